"""The app of the brief: the jobs of S0 with their schedules; only the worker runs them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from outlast import JobType, Outlast, Run, Skip
from outlast.clock import Clock, SystemClock
from outlast.store.contract import Store

from . import config, edition
from .cleanup import cleanup
from .cluster import cluster
from .config import DESK_FILE, JOBS_FILE, Feed
from .desk import Desk
from .feeds import Article, fetch
from .ingest import Fetch, ingest
from .rules import RULES, Rules


class Brief:
    """The app of one folder: `brief.toml`, `brief.db` with the news, `jobs.db` with the jobs.

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
        url = f"sqlite:///{self.folder / JOBS_FILE}"
        self.app: Final = Outlast(store or url, retention=None)  # S0 11: the audit log is kept
        self._clock = clock or SystemClock()
        self._get = get or self._fetch
        self._rules = rules
        self.rss_ingestion: Final = self._slot_job(self._ingest, "rss_ingestion")
        self.event_clustering: Final = self._slot_job(self._cluster, "event_clustering")
        self.retention_cleanup: Final = self._slot_job(self._clean, "retention_cleanup")
        self.brief_publication: Final = self._slot_job(self._publish, "brief_publication")

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
