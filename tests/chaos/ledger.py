"""The store's file as an outsider reads it: what became of every job and every run."""

import asyncio
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from outlast import Outlast
from outlast.core.audit.violation import Violation
from outlast.core.delivery import Delivery
from outlast.jobs.jobtype import Bound
from outlast.store.sqlite.store import SqliteStore
from outlast.verify import Report, verify

from .notes import Notes
from .worker_app import register
from .worker_tree import PATIENCE

SLOT = datetime(2026, 1, 1, tzinfo=UTC)
SLOTS = count(1)
RUNS = """
SELECT j.id, r.token, r.status, r.reason, r.error, w.boot_id, w.instance_id, j.delivery,
  r.started_at / 1e6, r.finished_at / 1e6
FROM outlast_runs r
JOIN outlast_jobs j ON j.seq = r.job JOIN outlast_workers w ON w.id = r.worker
ORDER BY r.started_at, r.job, r.token
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A closed run; moments are wall time, in seconds."""

    job: str
    token: int
    status: str
    reason: str | None
    error: str | None
    boot: str
    instance: str
    delivery: str
    started: float
    finished: float


class Ledger:
    """Enqueues, and reads what became of it; every call is a connection of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.db"
        self.notes = Notes(folder)

    def enqueue(self, *wanted: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
        """Store jobs of these types with these arguments; their ids."""
        return asyncio.run(self._enqueue(wanted, options))

    async def _enqueue(
        self, wanted: Iterable[tuple[str, dict[str, Any]]], options: dict[str, Any]
    ) -> list[str]:
        app = register(Outlast(f"sqlite:///{self.path}"), self.notes)
        async with app:
            return [handle.id for handle in await app.enqueue_many(bound(app, wanted, options))]

    def make_effects(self) -> None:
        """A table of the user's own, in the store's file."""
        self.enqueue()
        self.rows("CREATE TABLE IF NOT EXISTS effects (n INTEGER NOT NULL, token INTEGER)")

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(
            sqlite3.connect(self.path, isolation_level=None, timeout=PATIENCE)
        ) as connection:
            return connection.execute(sql, values).fetchall()

    def expire_leases(self) -> None:
        """Expire the leases of all running jobs, as if their holders had been silent for long."""
        self.rows("UPDATE outlast_open_runs SET lease_until = 0")

    def runs(self, *jobs: str) -> list[Run]:
        found = [Run(*row) for row in self.rows(RUNS)]
        return [run for run in found if not jobs or run.job in jobs]

    def ends(self, *jobs: str) -> list[tuple[str, str | None]]:
        """How each run of these jobs ended, and why."""
        return [(run.status, run.reason) for run in self.runs(*jobs)]

    def states(self) -> dict[str, str]:
        return dict(self.rows("SELECT id, state FROM outlast_job_state"))

    def state(self, job: str) -> str:
        return self.states()[job]

    def failures(self, job: str) -> int:
        [(number,)] = self.rows("SELECT failures FROM outlast_job_state WHERE id = ?", job)
        return int(number)

    def results(self, job: str) -> list[str]:
        query = (
            "SELECT r.result FROM outlast_runs r JOIN outlast_jobs j ON j.seq = r.job "
            "WHERE j.id = ? AND r.status = 'succeeded'"
        )
        return [result for (result,) in self.rows(query, job)]

    def events(self, kind: str, *jobs: str) -> list[str]:
        """The jobs of which such an event is on record."""
        query = (
            "SELECT j.id FROM outlast_events e JOIN outlast_jobs j ON j.seq = e.job "
            "WHERE e.kind = ?"
        )
        return [job for (job,) in self.rows(query, kind) if not jobs or job in jobs]

    @property
    def unfinished(self) -> int:
        """How many jobs have not ended."""
        query = (
            "SELECT (SELECT count(*) FROM outlast_waiting)"
            " + (SELECT count(*) FROM outlast_open_runs)"
        )
        return int(self.rows(query)[0][0])

    @property
    def violations(self) -> tuple[Violation, ...]:
        """What a proof of the whole file finds wrong."""
        return asyncio.run(self._verify()).violations

    async def _verify(self) -> Report:
        store = SqliteStore(self.path)
        await store.open()
        try:
            return await verify(store)
        finally:
            await store.close()

    @property
    def is_sound(self) -> bool:
        """Whether every job has exactly one end, and the file is whole."""
        [(jobs, ends)] = self.rows(
            "SELECT (SELECT count(*) FROM outlast_jobs), (SELECT count(*) FROM outlast_ends)"
        )
        return jobs == ends and self.rows("PRAGMA integrity_check") == [("ok",)]


def bound(
    app: Outlast, wanted: Iterable[tuple[str, dict[str, Any]]], options: dict[str, Any]
) -> list[Bound[Any]]:
    return [_configured(app, name, options).bind(**params) for name, params in wanted]


def _configured(app: Outlast, name: str, options: dict[str, Any]) -> Any:
    kind = app.registry.get(name)
    if kind.delivery is not Delivery.ONCE:
        return kind.options(**options)
    return kind.options(slot=SLOT + next(SLOTS) * timedelta(seconds=1), **options)
