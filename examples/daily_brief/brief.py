"""The app of the brief: the jobs of S0 with their schedules; only the worker runs them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from outlast import JobType, Outlast, Run, Skip
from outlast.clock import Clock, SystemClock
from outlast.store.contract import Store

from . import config, edition, job_runs
from .cleanup import cleanup
from .cluster import cluster
from .config import DESK_FILE, Feed, store_url
from .desk import Desk
from .feeds import Article, fetch
from .ingest import Fetch, ingest
from .rules import RULES, SCOPE, UNKNOWN_INSTANCE, Rules
from .units import WORKER


class Brief:
    """The app of one folder: `brief.toml`, and `brief.db` with the news and the jobs.

    Each job is delivered `once`: a slot is claimed at most once, a name never overlaps itself, and
    what its worker's death interrupts is closed and not run again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        store: Store | None = None,
        desk: Desk | None = None,
        clock: Clock | None = None,
        get: Fetch | None = None,
        rules: Mapping[str, Rules] = RULES,
    ) -> None:
        self.folder: Final = folder.absolute()
        self.desk: Final = desk or Desk(self.folder / DESK_FILE)
        self.app: Final = Outlast(
            store or store_url(self.folder),
            retention=None,  # S0 11: the audit log is kept
            topology="single",  # S0 3
            scope=SCOPE,
            unknown_owner=UNKNOWN_INSTANCE,
            lifespan=self._prepare,
        )
        self.app.around(self._close_stale)
        self._clock = clock or SystemClock()
        self._get = get or self._fetch
        self._rules = rules
        self.rss_ingestion: Final = self._slot_job(self._ingest, "rss_ingestion")
        self.event_clustering: Final = self._slot_job(self._cluster, "event_clustering")
        self.retention_cleanup: Final = self._slot_job(self._clean, "retention_cleanup")
        self.brief_publication: Final = self._slot_job(self._publish, "brief_publication")

    @asynccontextmanager
    async def _prepare(self, app: Outlast) -> AsyncIterator[None]:
        """Before the first claim: the view, and S0 7.1 for slots that were claimed in SQL."""
        await job_runs.install(app, self.desk)
        await asyncio.to_thread(self._recover)
        yield

    def _recover(self) -> None:
        own, now = os.environ.get("OUTLAST_INSTANCE_ID", WORKER), self._clock.now()
        job_runs.recover(self.desk, own, now, unknown=UNKNOWN_INSTANCE, threshold=self._threshold)

    def _close_stale(self, run: Run) -> Iterator[None]:
        """S0 6.2: before a run, close the stale ones of its name."""
        now = self._clock.now()
        job_runs.close_stale(self.desk, run.type, now, self._threshold(run.type))
        yield

    def _threshold(self, name: str) -> timedelta:
        return self._rules[name].max_runtime

    def _slot_job(self, handler: Callable[..., Any], name: str) -> JobType[..., Any]:
        """Register a handler and declare its schedule under the same name."""
        rules = self._rules[name]
        kind = self.app.job(name=name, delivery="once", max_runtime=rules.max_runtime)(handler)
        self.app.schedule(
            name,
            rules.cron,
            kind,
            timezone="UTC",
            coalesce=rules.coalesce,
            misfire_grace=rules.misfire_grace,
            max_instances=1,
        )
        return kind

    def _ingest(self, run: Run) -> dict[str, int]:
        said = config.load(self.folder)
        total = len(said.feeds)
        done = ingest(
            self.desk, said.feeds, self._get, self._clock.now, lambda n: run.progress(n, total)
        )
        run.rows(done.new)
        return {"new": done.new, "duplicates": done.duplicates, "failed_feeds": done.failed_feeds}

    def _cluster(self, run: Run) -> dict[str, int]:
        done = cluster(self.desk, self._clock.now(), run.progress)
        run.rows(done.linked)
        return {"judged": done.judged, "linked": done.linked, "opened": done.opened}

    def _clean(self, run: Run) -> Mapping[str, int]:
        said = config.load(self.folder)
        deleted = cleanup(self.desk, said.purge, said.keep, self._clock.now())
        run.rows(sum(deleted.values()))
        return deleted

    def _publish(self, run: Run) -> int | Skip:
        now = self._clock.now()
        day = (run.slot_at or now).date()
        stories = edition.publish(self.desk, day, now)
        run.rows(stories)
        return stories or Skip(f"nothing to publish, or the brief of {day} is out already")

    def _fetch(self, feed: Feed) -> list[Article]:
        return fetch(feed, self._clock.monotonic)
