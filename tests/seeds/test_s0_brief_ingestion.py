"""S0: RSS ingestion into the daily brief, which changes nothing when it is repeated."""

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from daily_brief.brief import Brief
from daily_brief.config import Feed
from daily_brief.desk import Desk
from daily_brief.feeds import Article
from daily_brief.ingest import ingest
from daily_brief.samples import Item, atom, rss, serve
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock

from .newsroom import Newsroom, article, contents, crash_points, dead, look, write
from .timeouts import SOON

FEEDS = [Feed(name=name, url=f"https://{name}.example/") for name in ("one", "two")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The news and Outlast's tables are in one file."""
    return tmp_path / "brief.db"


@pytest.fixture
async def room(tmp_path: Path, store: SqliteStore, clock: FakeClock) -> Newsroom:
    room = Newsroom(tmp_path, store, clock)
    await room.app.sync_schedules()
    return room


@pytest.mark.req("S0-1.c", "S0-3.e")
async def test_taking_a_feed_in_twice_leaves_the_same_tables(room: Newsroom) -> None:
    room.give(one=[article("a"), article("b")], two=[article("b"), article("c")])

    first = await room.result("rss_ingestion")
    once = room.contents()
    second = await room.result("rss_ingestion")

    assert first == {"new": 3, "duplicates": 1, "failed_feeds": 0}
    assert second == {"new": 0, "duplicates": 4, "failed_feeds": 0}
    assert room.contents() == once
    assert len(once["raw_articles"]) == 3


@pytest.mark.req("S0-4.a")
async def test_rss_ingestion_reads_real_feeds_from_a_server(
    tmp_path: Path, store: SqliteStore, clock: FakeClock
) -> None:
    hour = timedelta(hours=1)
    items = [
        Item(
            url=f"https://a.example/{n}", title=f"<b>T</b> & {n}", summary="S", at=START - n * hour
        )
        for n in (1, 2)
    ]
    pages = {"/rss": lambda: rss("A", items[:1]), "/atom": lambda: atom("B", items[1:])}
    brief = Brief(tmp_path, store=store, clock=clock)

    with serve(pages) as address:
        feeds = "\n".join(f'{name} = "{address}/{name}"' for name in ("rss", "atom", "nothing"))
        (tmp_path / "brief.toml").write_text(f"[feeds]\n{feeds}\n")
        await brief.app.sync_schedules()
        handle = await brief.app.schedules.run("rss_ingestion", START)
        async with brief.app.worker():
            done = await handle.result(SOON)

    assert brief.app.registry.get("rss_ingestion").policy.delivery == "once"
    assert done == {"new": 2, "duplicates": 0, "failed_feeds": 1}
    assert look(brief.desk.path, "SELECT url, feed, title, published_at FROM raw_articles") == [
        ("https://a.example/1", "rss", "T & 1", "2026-01-05T08:00:00.000000Z"),
        ("https://a.example/2", "atom", "T & 2", "2026-01-05T07:00:00.000000Z"),
    ]
    assert look(brief.desk.path, "SELECT error FROM feeds WHERE name = 'nothing'") == [
        ("its server answers 500",)
    ]


@pytest.mark.req("S0-8.1.a")
def test_the_database_refuses_a_url_that_it_has(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "brief.db")
    insert = (
        "INSERT INTO raw_articles (url, feed, title, summary, published_at, fetched_at)"
        " VALUES ('https://a.example/', 'f', 't', '', '', '')"
    )
    with desk.writing():
        pass
    write(desk.path, insert)

    with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE.*raw_articles\.url"):
        write(desk.path, insert)


@pytest.mark.req("S0-8.1.b")
async def test_a_duplicate_in_the_middle_spoils_nothing_but_itself(room: Newsroom) -> None:
    room.give(one=[article("there")])
    await room.run("rss_ingestion")
    room.give(one=[article("before"), article("there", "Another title"), article("after")])

    row = await room.run("rss_ingestion")

    assert row.status == "success"
    found = room.rows("SELECT url, title FROM raw_articles ORDER BY id")
    assert [url.rpartition("/")[2] for url, _ in found] == ["there", "before", "after"]
    assert found[0][1] == "Title of there"


@pytest.mark.req("S0-8.1.c")
async def test_a_duplicate_is_counted_and_any_other_refusal_of_the_database_fails_the_run(
    room: Newsroom,
) -> None:
    room.give(one=[article("a"), article("a")])
    good = await room.result("rss_ingestion")
    room.give(one=[article("b"), article("c", "x" * 301)])  # longer than a title can be

    bad = await room.run("rss_ingestion")

    assert good == {"new": 1, "duplicates": 1, "failed_feeds": 0}
    assert bad.status == "failed"
    assert "CHECK constraint failed" in (bad.error_message or "")
    assert room.rows("SELECT count(*) FROM raw_articles") == [(1,)]


@pytest.mark.req("S0-8.1.d", "S0-12.d")
def test_killed_anywhere_in_a_feed_and_run_again_it_is_as_one_clean_run(quick: Path) -> None:
    given = {"one": [article("a"), article("b")], "two": [article("b"), article("c")]}

    def take_in(desk: Desk) -> None:
        ingest(desk, FEEDS, lambda feed: given[feed.name], FakeClock().now)

    clean = Desk(quick / "clean.db")
    take_in(clean)
    wrecks = list(crash_points(quick, take_in, lambda _: None))
    halves = [contents(desk.path)["raw_articles"] for desk in wrecks]
    for desk in wrecks:
        take_in(desk)

    assert len(wrecks) == 11  # on either side of six statements, of which the duplicate has one
    assert [] in halves
    assert len(max(halves, key=len)) in {2, 3}, "some were killed in the middle"
    assert [contents(desk.path) for desk in wrecks] == [contents(clean.path)] * len(wrecks)


async def test_one_feed_that_fails_is_noted_and_the_others_are_taken_in(
    room: Newsroom, caplog: pytest.LogCaptureFixture
) -> None:
    room.give(one=dead("a secret"), two=[article("a")], three=RuntimeError("odd"))

    done = await room.result("rss_ingestion")

    assert done == {"new": 1, "duplicates": 0, "failed_feeds": 2}
    reported = dict(room.rows("SELECT name, error FROM feeds"))
    assert reported == {
        "one": "a secret",
        "two": None,
        "three": "cannot be understood: RuntimeError('odd')",
    }
    assert "a secret" not in caplog.text


async def test_when_every_feed_fails_so_does_the_run_and_the_next_one_is_well(
    room: Newsroom,
) -> None:
    room.give(one=dead(), two=dead())
    bad = await room.run("rss_ingestion")
    room.give(one=[article("a")], two=dead())

    good = await room.run("rss_ingestion")

    assert (bad.status, good.status) == ("failed", "success")
    assert "none of the 2 feeds" in (bad.error_message or "")
    assert dict(room.rows("SELECT name, error IS NULL FROM feeds")) == {"one": 1, "two": 0}


async def test_a_date_to_come_counts_as_now(room: Newsroom) -> None:
    room.give(one=[article("a", ago=timedelta(hours=-5)), undated("b")])

    await room.run("rss_ingestion")

    now = "2026-01-05T09:00:00.000000Z"
    assert room.rows("SELECT published_at FROM raw_articles") == [(now,), (now,)]


def undated(url: str) -> Article:
    return Article(url=f"https://news.example/{url}", title="T", summary="", published_at=None)
