"""S0: what the daily brief's web answers to each request, called in this process."""

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from daily_brief.web import Web
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock

from .brief_web import call
from .newsroom import Newsroom, article


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The news and Outlast's tables are in one file."""
    return tmp_path / "brief.db"


@pytest.mark.req("S0-10.c")
async def test_the_page_claims_a_slot_and_no_slot_twice(
    tmp_path: Path, store: SqliteStore, clock: FakeClock
) -> None:
    room = Newsroom(tmp_path, store, clock)
    room.give(one=[article("a")])
    await room.app.sync_schedules()
    form = {"job_name": "rss_ingestion", "scheduled_for": "2026-01-05T08:00"}

    def post(**form: str) -> tuple[int, dict[str, str], str]:
        return call(Web(tmp_path), "POST", "/runs", **form)

    first, head, _ = await asyncio.to_thread(post, **form)
    waiting = [slot.outcome for slot in await room.app.schedules.history("rss_ingestion")]
    second, _, said = await asyncio.to_thread(post, **form)

    assert (first, second) == (303, 409)
    target = urlsplit(head["Location"])
    pages = [
        (await asyncio.to_thread(call, Web(tmp_path), "GET", target.path, {"QUERY_STRING": query}))[
            2
        ]
        for query in (target.query, "claimed=%3Cscript%3E&slot=2026-01-05T08:00:00Z")
    ]
    assert ["rss_ingestion is claimed. The worker runs it" in text for text in pages] == [
        True,
        False,
    ]
    assert "<script" not in pages[1]
    assert waiting == ["manual"]
    assert "a slot runs once, so take another" in said
    assert await room.job_runs() == [], "it is the worker that runs it"


@pytest.mark.req("S0-10.b")
async def test_the_page_asks_for_an_explicit_slot(
    tmp_path: Path, store: SqliteStore, clock: FakeClock
) -> None:
    room = Newsroom(tmp_path, store, clock)
    await room.app.sync_schedules()

    async def status(**form: str) -> int:
        return (await asyncio.to_thread(call, Web(tmp_path), "POST", "/runs", **form))[0]

    assert await status(job_name="rss_ingestion") == 400
    assert await status(job_name="rss_ingestion", scheduled_for="soon") == 400
    assert await status(scheduled_for="2026-01-05T08:00") == 400
    assert await status(job_name="nobody", scheduled_for="2026-01-05T08:00") == 404
    assert await status(job_name="x" * 5000, scheduled_for="2026-01-05T08:00") == 413
    assert await room.app.schedules.history("rss_ingestion") == []


def test_a_form_of_another_site_claims_nothing(tmp_path: Path) -> None:
    form = {"job_name": "rss_ingestion", "scheduled_for": "2026-01-05T08:00"}
    head = {"HTTP_ORIGIN": "https://evil.example", "HTTP_HOST": "127.0.0.1:8000"}

    status, _, _ = call(Web(tmp_path), "POST", "/runs", head, **form)

    assert status == 403


def test_pages_that_are_not_there_say_so(tmp_path: Path) -> None:
    got = {
        path: call(Web(tmp_path), "GET", path)[0]
        for path in ("/nothing", "/briefs/2026-01-05", "/briefs/../../etc/passwd", "/", "/runs")
    }

    assert got == {
        "/nothing": 404,
        "/briefs/2026-01-05": 404,
        "/briefs/../../etc/passwd": 404,
        "/": 200,
        "/runs": 200,
    }
    assert call(Web(tmp_path), "DELETE", "/")[0] == 405
    assert call(Web(tmp_path), "HEAD", "/")[2] == ""


def test_health_names_what_is_and_what_is_not_guaranteed(tmp_path: Path) -> None:
    _, _, text = call(Web(tmp_path), "GET", "/healthz")

    said = json.loads(text)
    assert (said["status"], said["topology"]) == ("ok", "single")
    assert len(said["guaranteed"]) == 5
