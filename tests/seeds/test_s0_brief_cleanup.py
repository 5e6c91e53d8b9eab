"""S0: retention cleanup, from certain tables only, and never what a published brief refers to."""

import logging
import sqlite3
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from daily_brief.cleanup import NotPurgeable, cleanup
from daily_brief.cluster import cluster
from daily_brief.config import ALLOWED, BadConfig, Config, Feed, load
from daily_brief.desk import Desk
from daily_brief.edition import publish
from daily_brief.feeds import Article
from daily_brief.ingest import ingest
from daily_brief.rules import RULES
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock

from .newsroom import HOUR, Killed, Newsroom, article, contents, is_counted, look, write

KEEP = timedelta(days=14)
LATER = START + KEEP + timedelta(seconds=1)
PURGED = {"cluster_articles": 3, "raw_articles": 3, "clusters": 1, "feeds": 1}
IMMUTABLE = ("briefs", "brief_items", "job_runs")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The news and Outlast's tables are in one file."""
    return tmp_path / "brief.db"


def take_in(desk: Desk, *news: Article) -> None:
    ingest(desk, [Feed(name="one", url="https://a/")], lambda _: list(news), FakeClock().now)
    cluster(desk, START)


def old_desk(path: Path) -> Desk:
    """One event was published, with both of its articles; three articles came after that."""
    desk = Desk(path)
    take_in(
        desk,
        article("storm", "Storm Vesna floods harbour", ago=2 * HOUR),
        article("s2", "Storm Vesna harbour"),
    )
    publish(desk, date(2026, 1, 5), START)
    take_in(
        desk,
        article("s3", "Storm Vesna again"),
        article("x", "Herons count"),
        article("y", "Heron count up"),
    )
    return desk


@pytest.fixture
async def room(tmp_path: Path, store: SqliteStore, clock: FakeClock) -> Newsroom:
    room = Newsroom(tmp_path, store, clock)
    await room.app.sync_schedules()
    return room


@pytest.mark.req("S0-4.c")
async def test_retention_cleanup_is_registered_with_an_explicit_allow_list(room: Newsroom) -> None:
    old_desk(room.desk.path)
    for name in RULES:
        await room.app.schedules.pause(name)  # which would have missed thousands of slots
    room.clock.advance(KEEP + timedelta(seconds=1))

    done = await room.result("retention_cleanup")

    assert room.app.registry.get("retention_cleanup").policy.delivery == "once"
    assert set(ALLOWED).isdisjoint(IMMUTABLE)
    assert done == PURGED


@pytest.mark.req("S0-8.3.a")
@pytest.mark.parametrize("table", [*IMMUTABLE, "sqlite_master", "raw_articles; DROP TABLE feeds"])
def test_another_table_is_refused_before_anything_is_deleted(tmp_path: Path, table: Any) -> None:
    desk = old_desk(tmp_path / "brief.db")
    before = contents(desk.path)

    with pytest.raises(NotPurgeable, match="may not be purged; the allow-list is"):
        cleanup(desk, ["raw_articles", table], KEEP, LATER)

    assert contents(desk.path) == before


@pytest.mark.req("S0-8.3.a")
def test_only_tables_of_the_list_are_touched(tmp_path: Path) -> None:
    desk = old_desk(tmp_path / "brief.db")
    before = contents(desk.path)

    cleanup(desk, ["feeds"], KEEP, LATER)

    after = contents(desk.path)
    assert {name for name in before if before[name] != after[name]} == {"feeds"}


@pytest.mark.req("S0-8.3.a")
def test_the_settings_cannot_name_another_table(tmp_path: Path) -> None:
    (tmp_path / "brief.toml").write_text('purge = ["briefs"]\n[feeds]\n')

    with pytest.raises(BadConfig, match="purge"):
        load(tmp_path)


@pytest.mark.req("S0-8.3.b")
def test_of_expired_articles_those_that_a_brief_refers_to_stay(tmp_path: Path) -> None:
    desk = old_desk(tmp_path / "brief.db")

    cleanup(desk, ALLOWED, KEEP, LATER)

    urls = [
        url.rpartition("/")[2]
        for (url,) in look(desk.path, "SELECT url FROM raw_articles ORDER BY id")
    ]
    assert urls == ["storm", "s2"]
    assert look(desk.path, "SELECT count(*) FROM brief_items") == [(2,)]
    assert look(desk.path, "SELECT title, article_count FROM clusters") == [
        ("Storm Vesna floods harbour", 2)
    ]
    assert is_counted(desk.path)


@pytest.mark.req("S0-8.3.b")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM raw_articles WHERE id = 1",
        "DELETE FROM clusters WHERE id = 1",
        "DELETE FROM briefs",
        "DELETE FROM brief_items",
        "UPDATE briefs SET published_at = ''",
        "UPDATE brief_items SET place = 9",
    ],
)
def test_the_database_itself_keeps_what_was_published(tmp_path: Path, statement: str) -> None:
    desk = old_desk(tmp_path / "brief.db")
    write(desk.path, "DELETE FROM cluster_articles")

    with pytest.raises(sqlite3.IntegrityError, match=r"FOREIGN KEY|immutable"):
        write(desk.path, statement)


@pytest.mark.req("S0-8.3.c")
def test_a_fault_after_any_delete_leaves_everything(tmp_path: Path) -> None:
    desk = old_desk(tmp_path / "brief.db")
    before = contents(desk.path)
    seen: list[str] = []

    def cut_short(after: int) -> None:
        left = after

        def probe(name: str, is_after: bool) -> None:
            nonlocal left
            left -= is_after
            if left == 0:
                seen.append(name)
                raise Killed

        with pytest.raises(Killed):
            cleanup(Desk(desk.path, probe=probe), ALLOWED, KEEP, LATER)

    for after in range(1, 6):
        cut_short(after)
        assert contents(desk.path) == before

    assert seen == [*(f"purge_{table}" for table in ALLOWED), "recount"]


@pytest.mark.req("S0-8.3.d")
def test_the_log_names_each_table_and_how_many_were_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = old_desk(tmp_path / "brief.db")

    with caplog.at_level(logging.INFO, logger="daily_brief"):
        cleanup(desk, ALLOWED, KEEP, LATER)

    facts = [record.facts for record in caplog.records]  # type: ignore[attr-defined]  # ours
    assert {fact["table"]: fact["deleted"] for fact in facts} == PURGED
    assert "retention_deleted table=raw_articles deleted=3" in caplog.messages


@pytest.mark.req("S0-8.3.e")
def test_a_second_cleanup_deletes_and_logs_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = old_desk(tmp_path / "brief.db")
    cleanup(desk, ALLOWED, KEEP, LATER)
    before = contents(desk.path)

    with caplog.at_level(logging.INFO, logger="daily_brief"):
        again = cleanup(desk, ALLOWED, KEEP, LATER)

    assert again == dict.fromkeys(PURGED, 0)
    assert contents(desk.path) == before
    assert "retention_deleted table=raw_articles deleted=0" in caplog.messages


def test_a_purged_url_stays_away_while_its_feed_still_lists_it(tmp_path: Path) -> None:
    desk = old_desk(tmp_path / "brief.db")
    cleanup(desk, ALLOWED, KEEP, START + KEEP + HOUR)
    kept = look(desk.path, "SELECT url FROM raw_articles ORDER BY url")

    take_in(desk, article("storm"), article("x", "Herons count"), article("new", "A new one"))

    urls = look(desk.path, "SELECT url FROM raw_articles ORDER BY url")
    assert urls == sorted([*kept, ("https://news.example/new",)])
    assert ("https://news.example/x",) not in kept


def test_what_is_not_old_enough_stays(tmp_path: Path) -> None:
    desk = old_desk(tmp_path / "brief.db")
    before = contents(desk.path)

    deleted = cleanup(desk, ALLOWED, KEEP, START + KEEP)

    assert deleted == dict.fromkeys(PURGED, 0)
    assert contents(desk.path) == before


def test_the_example_s_own_settings_are_read(tmp_path: Path) -> None:
    found = load(tmp_path)

    assert isinstance(found, Config)
    assert (found.keep, found.purge) == (KEEP, ALLOWED)
    assert all(feed.url.startswith("https://") for feed in found.feeds)
    assert len(found.feeds) >= 5
