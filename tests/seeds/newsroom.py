"""A daily brief for tests: its feeds are what a test says, its time is the fake clock's."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from daily_brief import job_runs
from daily_brief.brief import Brief
from daily_brief.config import Feed
from daily_brief.desk import Desk, moment
from daily_brief.feeds import Article, FeedError
from outlast import Handle
from outlast.scheduler.trigger import Trigger
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock

from .app_helpers import drain

HOUR: Final = timedelta(hours=1)
CHECKED: Final = ("raw_articles", "clusters", "cluster_articles", "briefs", "brief_items", "feeds")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunRow:
    """S0 5, with its times parsed."""

    id: str
    job_name: str
    scheduled_for: datetime
    started_at: datetime
    finished_at: datetime | None
    status: str
    worker_instance: str | None
    error_message: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "JobRunRow":
        times = ("scheduled_for", "started_at", "finished_at")
        return cls(**{**row, **{name: row[name] and moment(row[name]) for name in times}})


class Killed(BaseException):
    """As the kernel would: nothing after it runs."""


class Newsroom:
    """A brief in the folder of a test. `feeds` are what its feeds give, or how they fail."""

    def __init__(self, folder: Path, store: SqliteStore, clock: FakeClock) -> None:
        self.folder = folder
        self.clock = clock
        self.feeds: dict[str, Sequence[Article] | Exception] = {}
        self.desk = Desk(store.path)
        self.brief = Brief(folder, store=store, desk=self.desk, clock=clock, get=self._get)
        self.app = self.brief.app
        self._slots = 0

    def give(self, **feeds: Sequence[Article] | Exception) -> None:
        """What the feeds give from now on."""
        self.feeds = dict(feeds)
        lines = [f'{name} = "https://{name}.example/feed"' for name in feeds]
        (self.folder / "brief.toml").write_text("\n".join(["[feeds]", *lines]))

    async def run(self, name: str, slot: datetime | None = None) -> JobRunRow:
        """Claim a slot of that job and let a worker run it; how that reads in S0's words."""
        self._slots += 1
        at = slot or START - timedelta(days=1) + timedelta(minutes=self._slots)
        handle = await self.claim(name, at)
        await drain(self.app, instance_id="news-1")
        return await self.row(handle.id)

    async def claim(self, name: str, at: datetime) -> Handle[Any]:
        """Claim a slot of that job, at any time: S0 claims more than occurrences of a schedule."""
        return await self.app.registry.get(name).options(slot=at, delay="0s").enqueue()

    async def row(self, job_id: str) -> JobRunRow:
        [run] = await self.app.runs(job_id)
        [row] = [row for row in await self.job_runs() if row["id"] == run.run_id]
        return JobRunRow.of(row)

    async def result(self, name: str) -> Any:
        """The same, and what the handler returned."""
        self._slots += 1
        at = START - timedelta(days=1) + timedelta(minutes=self._slots)
        handle = await self.claim(name, at)
        await drain(self.app, instance_id="news-1")
        return await handle.result()

    async def fire(self) -> None:
        """Trigger every due slot, as a worker's loop would."""
        await Trigger(self.app.store, self.app._ids.job).run_once()

    async def job_runs(self) -> list[dict[str, Any]]:
        await job_runs.install(self.app, self.desk)
        return job_runs.latest(self.desk, 1000)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return look(self.desk.path, query, *values)

    def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything the news tables hold."""
        return contents(self.desk.path)

    def _get(self, feed: Feed) -> list[Article]:
        found = self.feeds[feed.name]
        if isinstance(found, Exception):
            raise found
        return list(found)


def article(url: str, title: str = "", *, ago: timedelta = HOUR, summary: str = "") -> Article:
    return Article(
        url=f"https://news.example/{url}",
        title=title or f"Title of {url}",
        summary=summary,
        published_at=START - ago,
    )


def dead(why: str = "its server answers 500") -> FeedError:
    return FeedError(why)


def look(path: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query, values).fetchall()


def write(path: Path, statement: str, *values: Any) -> None:
    """As somebody with SQL would, with the constraints on."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = 1")
        connection.execute(statement, values)


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    return {name: look(path, f"SELECT * FROM {name}") for name in CHECKED}  # noqa: S608 - our names


def is_counted(path: Path) -> bool:
    """Whether every cluster's `article_count` is the number of its links."""
    wrong = look(
        path,
        "SELECT id FROM clusters WHERE article_count <>"
        " (SELECT count(*) FROM cluster_articles WHERE cluster_id = clusters.id)",
    )
    return not wrong


def crash_points(folder: Path, work: Callable[[Desk], object], prepare: Callable[[Desk], object]):
    """One desk for each statement of `work` and each side of it, killed there; and their count.

    A process that is killed runs nothing more: after the point, no statement gets through.
    """
    count = 0
    while True:
        desk = Desk(folder / f"killed-{count}.db")
        prepare(desk)
        left = count

        def probe(_name: str, _after: bool) -> None:
            nonlocal left
            if left <= 0:
                raise Killed
            left -= 1

        try:
            work(Desk(desk.path, probe=probe))
        except Killed:
            yield desk
            count += 1
        else:
            return
