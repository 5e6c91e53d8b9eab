"""S0: event clustering, deterministic, and counting only links that were really made."""

import sqlite3
from itertools import permutations
from pathlib import Path
from random import Random
from threading import Barrier, Thread

import pytest

from daily_brief.cluster import Clustered, cluster, likeness
from daily_brief.config import Feed
from daily_brief.desk import Desk
from daily_brief.feeds import Article
from daily_brief.ingest import ingest
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock

from .newsroom import HOUR, Newsroom, article, contents, crash_points, is_counted, look, write

STORM = [
    article("storm-1", "Storm Vesna floods Aldersund harbour", ago=3 * HOUR),
    article("storm-2", "Aldersund harbour flooded by Storm Vesna", ago=2 * HOUR),
    article("storm-3", "Storm Vesna: the damage in Aldersund", ago=HOUR),
]
BUDGET = [
    article("budget-1", "Parliament passes the budget", ago=3 * HOUR),
    article("budget-2", "Budget passes parliament by three votes", ago=HOUR),
]
ALONE = [article("heron", "More herons than ever on the Brenn", ago=2 * HOUR)]
NEWS = [*STORM, *BUDGET, *ALONE]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The news and Outlast's tables are in one file."""
    return tmp_path / "brief.db"


def fill(desk: Desk, news: list[Article]) -> None:
    ingest(desk, [Feed(name="one", url="https://a/")], lambda _: news, FakeClock().now)


def events(path: Path) -> dict[str, list[str]]:
    """The urls of each cluster, by its title."""
    found: dict[str, list[str]] = {}
    for title, url in look(
        path,
        "SELECT c.title, a.url FROM clusters AS c"
        " JOIN cluster_articles AS l ON l.cluster_id = c.id"
        " JOIN raw_articles AS a ON a.id = l.raw_article_id ORDER BY c.title, a.url",
    ):
        found.setdefault(title, []).append(url.rpartition("/")[2])
    return found


TOGETHER = {
    "More herons than ever on the Brenn": ["heron"],
    "Parliament passes the budget": ["budget-1", "budget-2"],
    "Storm Vesna floods Aldersund harbour": ["storm-1", "storm-2", "storm-3"],
}


@pytest.fixture
async def room(tmp_path: Path, store: SqliteStore, clock: FakeClock) -> Newsroom:
    room = Newsroom(tmp_path, store, clock)
    await room.app.sync_schedules()
    return room


@pytest.mark.req("S0-4.b")
async def test_event_clustering_puts_articles_of_one_event_together(room: Newsroom) -> None:
    room.give(one=NEWS)
    await room.run("rss_ingestion")

    done = await room.result("event_clustering")

    assert room.app.registry.get("event_clustering").policy.delivery == "once"
    assert done == {"judged": 6, "linked": 6, "opened": 3}
    assert events(room.desk.path) == TOGETHER


@pytest.mark.req("S0-3.e", "S0-8.2.b")
async def test_clustering_a_clustered_set_changes_nothing(room: Newsroom) -> None:
    room.give(one=NEWS)
    await room.run("rss_ingestion")
    await room.run("event_clustering")
    before = room.contents()

    again = await room.result("event_clustering")

    assert again == {"judged": 6, "linked": 0, "opened": 0}, "judged once more, every one"
    assert room.contents() == before
    assert len(before["cluster_articles"]) == 6


@pytest.mark.req("S0-8.2.a")
async def test_the_database_refuses_a_link_that_it_has(room: Newsroom) -> None:
    room.give(one=ALONE)
    await room.run("rss_ingestion")
    await room.run("event_clustering")

    with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE.*cluster_id.*raw_article_id"):
        write(room.desk.path, "INSERT INTO cluster_articles VALUES (1, 1)")


@pytest.mark.req("S0-8.2.c")
def test_however_articles_arrive_and_runs_are_repeated_the_count_is_of_links(
    quick: Path,
) -> None:
    random = Random(5)
    for number in range(12):
        desk = Desk(quick / f"{number}.db")
        news = random.sample(NEWS, len(NEWS))
        while news:
            fill(desk, [news.pop() for _ in range(min(len(news), random.randint(1, 3)))])
            for _ in range(random.randint(1, 3)):
                cluster(desk, START)

        assert is_counted(desk.path)
        [(links, counted)] = look(
            desk.path,
            "SELECT (SELECT count(*) FROM cluster_articles), sum(article_count) FROM clusters",
        )
        assert links == counted == 6


@pytest.mark.req("S0-8.2.c")
def test_two_that_cluster_at_once_link_and_count_each_article_once(tmp_path: Path) -> None:
    """As when a run that was given up is in truth alive beside the next one."""
    desk = Desk(tmp_path / "brief.db")
    many = [article(f"{n}", f"Event{n // 5} word{n // 5} other{n}") for n in range(250)]
    fill(desk, many[:200])
    fill(desk, many[200:])
    together = Barrier(2)
    done: list[Clustered] = []

    def one() -> None:
        together.wait()
        done.append(cluster(desk, START))

    threads = [Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(each.linked for each in done) == 250
    assert sum(each.opened for each in done) == 50
    assert is_counted(desk.path)
    assert look(desk.path, "SELECT max(article_count), count(*) FROM clusters") == [(5, 50)]


@pytest.mark.req("S0-8.2.d", "S0-12.d")
def test_killed_between_link_and_count_and_run_again_it_is_as_one_clean_run(
    quick: Path,
) -> None:
    clean = Desk(quick / "clean.db")
    fill(clean, NEWS)
    cluster(clean, START)

    wrecks = list(
        crash_points(quick, lambda desk: cluster(desk, START), lambda desk: fill(desk, NEWS))
    )
    were_counted = [is_counted(desk.path) for desk in wrecks]
    for desk in wrecks:
        cluster(desk, START)

    assert len(wrecks) > 40
    assert all(were_counted), "a link and its count are one transaction"
    assert [contents(desk.path) for desk in wrecks] == [contents(clean.path)] * len(wrecks)


def test_the_same_articles_make_the_same_clusters_in_whatever_order_they_are_stored(
    quick: Path,
) -> None:
    for number, order in enumerate(list(permutations(NEWS))[::97]):
        desk = Desk(quick / f"{number}.db")
        fill(desk, list(order))
        cluster(desk, START)

        assert events(desk.path) == TOGETHER


def test_an_event_of_last_week_takes_no_new_article(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "brief.db")
    old = article("old", "Storm Vesna floods Aldersund harbour", ago=170 * HOUR)
    fill(desk, [old, STORM[0]])

    cluster(desk, START)

    assert look(desk.path, "SELECT article_count FROM clusters") == [(1,), (1,)]


@pytest.mark.parametrize(
    ("one", "other", "is_alike"),
    [
        ("Storm Vesna floods harbour", "Harbour flooded: storm Vesna", True),
        ("The bank's rates stay", "Rate of the banks stays", True),
        ("Herons on the Brenn", "Budget passes", False),
        ("New year, new budget", "New video of the year", False),  # nothing but stop words
        ("", "", False),
    ],
)
def test_titles_are_alike_by_the_words_that_tell(one: str, other: str, is_alike: bool) -> None:
    assert (likeness(one, other) > 0) is is_alike
    assert likeness(one, other) == likeness(other, one)
