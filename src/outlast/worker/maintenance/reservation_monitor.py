"""Looking after reservations: a queue is never held for a caller that is gone."""

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
from outlast.store.contract.jobs import Jobs
from outlast.store.contract.locks import Locks
from outlast.store.contract.reservations import Reservations

log = logging.getLogger("outlast.worker")

MAX_BATCH = 500


class ReservationFinding(StrEnum):
    """What was found of an active reservation."""

    IN_USE = "in_use"  # its job runs: the lease of that run decides
    OBEYED = "obeyed"  # its job waits and its time is not over: the queue stays held
    JOB_OVER = "job_over"  # nothing is left that it could be for
    HANDED_BACK = "handed_back"  # its job was taken and waits again, and nobody renews it
    OWNER_DEAD = "owner_dead"  # its caller was seen dead before any worker took the job
    CALLER_SILENT = "caller_silent"  # nobody renewed it in time


REASONS = {
    ReservationFinding.OWNER_DEAD: Abandonment.OWNER_DEAD,
    ReservationFinding.CALLER_SILENT: Abandonment.CALLER_SILENT,
}
LEFT = frozenset({ReservationFinding.IN_USE, ReservationFinding.OBEYED})
FREED = frozenset({ReservationFinding.JOB_OVER, ReservationFinding.HANDED_BACK})


@dataclass(frozen=True, slots=True)
class InspectionResult:
    """What one step found and did."""

    inspected: int = 0
    freed: int = 0  # their job was handed back long ago, had ended or was gone
    expired: int = 0  # their caller was dead or silent, and their job is cancelled


Found = tuple[Reservation, Job | None, ReservationFinding]


class ReservationStore(Jobs, Reservations, Locks, Protocol):
    """What this needs of a store."""


class ReservationMonitor:
    """Each step is one atomic write per reservation: killed in the middle, the next goes on."""

    def __init__(self, store: ReservationStore, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._new_id = new_id

    async def run_once(self, *, tell_all: bool = False) -> InspectionResult:
        """Look at every active one; `tell_all` also logs those that stay as they are."""
        held = await self._store.reservations(active_only=True, limit=MAX_BATCH)
        if not held:
            return InspectionResult()
        late = await self._store.expired_reservations(limit=MAX_BATCH)
        lapsed, known = {each.id for each in late}, {each.id for each in held}
        held += [each for each in late if each.id not in known]  # older than so many others
        jobs = await self._store.get([each.job_id for each in held])
        found = [
            (each, job, await self._judge(each, job, lapsed))
            for each, job in zip(held, jobs, strict=True)
        ]
        freed = await self._free(found)
        for each, _, verdict in found:
            # Its job may have ended between the two reads: then it was not held for nothing.
            if each.id in freed if verdict in FREED else tell_all or verdict not in LEFT:
                _tell(each, verdict)
        return InspectionResult(len(held), len(freed), await self._expire(found))

    async def _judge(
        self, held: Reservation, job: Job | None, lapsed: set[ReservationId]
    ) -> ReservationFinding:
        if job is None or job.is_final:
            return ReservationFinding.JOB_OVER
        if job.state not in WAITING:
            return ReservationFinding.IN_USE
        if job.token:  # it was taken and handed back: its caller has its answer
            return (
                ReservationFinding.HANDED_BACK if held.id in lapsed else ReservationFinding.OBEYED
            )
        if await self._is_dead(held.caller):
            return ReservationFinding.OWNER_DEAD
        return ReservationFinding.CALLER_SILENT if held.id in lapsed else ReservationFinding.OBEYED

    async def _is_dead(self, caller: str) -> bool:
        """Whoever can take a caller's lock has proved that nobody has it."""
        try:
            hold = await self._store.acquire_lock(caller)
        except OperatorError as error:
            log.warning("cannot tell whether a caller lives caller=%s: %s", caller, error)
            return False
        if hold is None:
            return False
        await hold.release()
        return True

    async def _free(self, found: Sequence[Found]) -> set[ReservationId]:
        if not any(verdict in FREED for *_, verdict in found):
            return set()
        return {each.id for each in await self._store.release_stale_reservations(limit=MAX_BATCH)}

    async def _expire(self, found: Sequence[Found]) -> int:
        # A refusal means that a worker took the job, or that the caller was heard after all.
        changes = [
            decide(job, Abandoned(REASONS[verdict]), new_id=self._new_id)
            for _, job, verdict in found
            if job is not None and verdict in REASONS
        ]
        return sum(await self._store.apply(changes)) if changes else 0


def _tell(held: Reservation, verdict: ReservationFinding) -> None:
    log.warning(
        "reservation inspected reservation_id=%s queue=%s job=%s verdict=%s expires_at=%s",
        held.id,
        held.queue,
        held.job_id,
        verdict,
        held.expires_at.isoformat(),
    )
