"""The reservation monitor: ends reservations whose caller is dead or whose job is over."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from outlast.core.decide import decide
from outlast.core.event import Abandoned, Abandonment
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.reservation import Reservation, ReservationId
from outlast.core.state import WAITING
from outlast.errors import OperatorError
from outlast.store.contract import HasCapabilities
from outlast.store.contract.jobs import Jobs
from outlast.store.contract.locks import Locks
from outlast.store.contract.reservations import Reservations
from outlast.worker.maintenance.death_proof import decisive_locks

log = logging.getLogger("outlast.worker")

MAX_BATCH = 500
"""Reservations in one step at most."""


class ReservationFinding(StrEnum):
    """The state of an active reservation."""

    IN_USE = "in_use"  # its job runs; the lease of that run applies
    OBEYED = "obeyed"  # its job waits and it has not expired; the queue stays reserved
    JOB_OVER = "job_over"  # its job has ended or is gone
    HANDED_BACK = "handed_back"  # its job was claimed, waits again, and the reservation has expired
    OWNER_DEAD = "owner_dead"  # its caller died before a worker claimed the job
    CALLER_SILENT = "caller_silent"  # its caller did not renew it in time


REASONS = {
    ReservationFinding.OWNER_DEAD: Abandonment.OWNER_DEAD,
    ReservationFinding.CALLER_SILENT: Abandonment.CALLER_SILENT,
}
UNCHANGED = frozenset({ReservationFinding.IN_USE, ReservationFinding.OBEYED})
FREED = frozenset({ReservationFinding.JOB_OVER, ReservationFinding.HANDED_BACK})


@dataclass(frozen=True, slots=True)
class InspectionResult:
    """What one step found and did."""

    inspected: int = 0
    freed: int = 0  # their job was released, has ended or is gone
    expired: int = 0  # their caller was dead or silent; their job is cancelled


Found = tuple[Reservation, Job | None, ReservationFinding]


class ReservationStore(Jobs, Reservations, Locks, HasCapabilities, Protocol):
    """The pages of the store contract that the monitor needs."""


class ReservationMonitor:
    """Inspects reservations. Each write is atomic per reservation; a killed step is continued."""

    def __init__(self, store: ReservationStore, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._new_id = new_id

    async def run_once(self, *, log_all: bool = False) -> InspectionResult:
        """Inspect active reservations; `log_all` also logs those that do not change."""
        held = await self._store.reservations(active_only=True, limit=MAX_BATCH)
        if not held:
            return InspectionResult()
        overdue = await self._store.expired_reservations(limit=MAX_BATCH)
        expired, known = {each.id for each in overdue}, {each.id for each in held}
        held += [each for each in overdue if each.id not in known]  # beyond the first page
        jobs = await self._store.get([each.job_id for each in held])
        found = [
            (each, job, await self._judge(each, job, expired))
            for each, job in zip(held, jobs, strict=True)
        ]
        freed = await self._free(found)
        for each, _, finding in found:
            # A job that ended between the two reads released its reservation: no log line.
            if each.id in freed if finding in FREED else log_all or finding not in UNCHANGED:
                _log_finding(each, finding)
        return InspectionResult(len(held), len(freed), await self._expire(found))

    async def _judge(
        self, held: Reservation, job: Job | None, expired: set[ReservationId]
    ) -> ReservationFinding:
        if job is None or job.is_final:
            return ReservationFinding.JOB_OVER
        if job.state not in WAITING:
            return ReservationFinding.IN_USE
        if job.token:  # claimed and released: its caller has its answer
            return (
                ReservationFinding.HANDED_BACK if held.id in expired else ReservationFinding.OBEYED
            )
        if await self._is_dead(held.caller):
            return ReservationFinding.OWNER_DEAD
        return ReservationFinding.CALLER_SILENT if held.id in expired else ReservationFinding.OBEYED

    async def _is_dead(self, caller: str) -> bool:
        """Whether the caller's lock can be acquired, and that proves its process dead."""
        if not decisive_locks(self._store, [caller]):
            return False
        try:
            lock = await self._store.acquire_lock(caller)
        except OperatorError as error:
            log.warning("cannot check whether a caller is alive caller=%s: %s", caller, error)
            return False
        if lock is None:
            return False
        await lock.release()
        return True

    async def _free(self, found: Sequence[Found]) -> set[ReservationId]:
        if not any(finding in FREED for *_, finding in found):
            return set()
        return {each.id for each in await self._store.release_stale_reservations(limit=MAX_BATCH)}

    async def _expire(self, found: Sequence[Found]) -> int:
        # The store refuses if a worker claimed the job or the caller renewed meanwhile.
        changes = [
            decide(job, Abandoned(REASONS[finding]), new_id=self._new_id)
            for _, job, finding in found
            if job is not None and finding in REASONS
        ]
        return sum(await self._store.apply(changes)) if changes else 0


def _log_finding(held: Reservation, finding: ReservationFinding) -> None:
    log.warning(
        "reservation inspected reservation_id=%s queue=%s job=%s verdict=%s expires_at=%s",
        held.id,
        held.queue,
        held.job_id,
        finding,
        held.expires_at.isoformat(),
    )
