"""Inject the corruption that recovery repairs into a store."""

from collections import Counter
from dataclasses import replace
from typing import Protocol

from outlast.core.event import EventKind
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.reservation import ReservationId
from outlast.core.state import RunStatus, State
from outlast.testing.model.store import ModelStore
from outlast.testing.model.tables import Tables


class CorruptionInjector(Protocol):
    """What a store brings so that the tests in `conformance.broken` can break it."""

    async def detach(self, job_id: JobId, *, runs: bool = True) -> None:
        """Take the job from wherever it waits, runs or ended; without `runs` its closed runs too.

        An open run is gone without a trace.
        """
        ...

    async def drop_successor(self, job_id: JobId) -> None:
        """Take away its successor, as if it had never been written."""
        ...

    async def orphan(self, job_id: JobId) -> None:
        """Take the job away from under its closed runs; another one was stored after it."""
        ...

    async def replace_params(self, job_id: JobId, params: str) -> None:
        """Write other params, which `add` would refuse."""
        ...

    async def retarget_reservation(self, reservation_id: ReservationId, job_id: JobId) -> None:
        """Let a reservation be for another job, which may have ended or not exist."""
        ...

    async def drop_slot_row(self, job_id: JobId) -> None:
        """Take away the row of the slot that the job was made for."""
        ...

    async def drop_active_key(self, key: str) -> None:
        """Delete an active key, whichever job holds it."""
        ...


class ModelCorrupter:
    """Breaks a model store."""

    def __init__(self, store: ModelStore) -> None:
        self._tables: Tables = store._all_tables  # noqa: SLF001 - corruption bypasses the API

    async def detach(self, job_id: JobId, *, runs: bool = True) -> None:
        tables, job = self._tables, self._tables.jobs[job_id]
        closed = [run for run in tables.runs[job_id] if run.status is not RunStatus.RUNNING]
        tables.runs[job_id] = closed if runs else []
        tables.leases.pop(job_id, None)
        tables.jobs[job_id] = self._adrift(job)

    async def drop_successor(self, job_id: JobId) -> None:
        tables = self._tables
        successor = tables.successors.pop(job_id)
        tables.forget(successor)
        for key, holder in tables.active_keys.items():
            if holder == successor:
                tables.active_keys[key] = job_id

    async def orphan(self, job_id: JobId) -> None:
        del self._tables.jobs[job_id]
        del self._tables.events[job_id]

    async def replace_params(self, job_id: JobId, params: str) -> None:
        self._tables.jobs[job_id] = replace(self._tables.jobs[job_id], params=params)

    async def retarget_reservation(self, reservation_id: ReservationId, job_id: JobId) -> None:
        held = self._tables.reservations[reservation_id]
        self._tables.reservations[reservation_id] = replace(held, job_id=job_id)

    async def drop_slot_row(self, job_id: JobId) -> None:
        rows = self._tables.slots.items()
        self._tables.slots = {slot: row for slot, row in rows if row.job_id != job_id}

    async def drop_active_key(self, key: str) -> None:
        del self._tables.active_keys[key]

    def _adrift(self, job: Job) -> Job:
        runs, before = self._tables.runs[job.id], self._chained_from(job)
        ended = Counter(run.status for run in runs)
        last = runs[-1] if runs else None
        failures, losses = (before.failures, before.losses) if before else (0, 0)
        return replace(
            job,
            state=State.RUNNING,
            reason=None,
            priority=0,
            position=0,
            available_at=job.created_at,
            token=last.token if last else 0,
            failures=failures + ended[RunStatus.FAILED] + ended[RunStatus.LOST],
            losses=losses + ended[RunStatus.LOST],
            cancel_requested=False,
            holder=last.holder if last else None,
            boot_id=last.boot_id if last else None,
            started_at=runs[0].started_at if runs else None,
            finished_at=None,
        )

    def _chained_from(self, job: Job) -> Job | None:
        """The job whose closing write brought this one about; one retried by hand has none."""
        if job.retry_of is None:
            return None
        kinds = [event.kind for event in self._tables.events[job.retry_of]]
        return self._tables.jobs[job.retry_of] if EventKind.CHAINED in kinds else None
