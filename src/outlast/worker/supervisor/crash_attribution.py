"""What becomes of the runs a dead child left on its board, and whom its death is charged to."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from outlast.core.decide import decide
from outlast.core.event import ZERO, Event, Lost, Released
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import Lease
from outlast.core.state import Loss, State
from outlast.store.contract.jobs import Jobs
from outlast.worker import log_events
from outlast.worker.supervisor.child_process import ChildProcess
from outlast.worker.supervisor.shared_lease_table import LeaseEntry
from outlast.worker.supervisor.watchdog import is_overdue

IN_PROCESS_EXECUTORS: Final = frozenset({"async", "thread"})
"""Executors whose handlers share the child's process, and can take it with them."""

CRASH_BACKOFF: Final = timedelta(milliseconds=800)
"""Longer than a child takes to start, shorter than the second a dead one's jobs may wait."""

MAX_CRASH_BACKOFF: Final = timedelta(minutes=1)


def charged_runs(entries: Sequence[LeaseEntry], *, from_outside: bool) -> frozenset[Lease]:
    """The runs that may have ended the process they were in; they pay with an attempt.

    A process that ended itself did so in the code it was running: the handler the event loop was
    in, or one of the threads. Ended from outside (out of memory, perhaps), any of them may be the
    reason. Only if there is none, one that has returned is. A job must not be charged for its
    neighbour, nor run for ever because of one.
    """
    inside = [
        entry for entry in entries if entry.started and entry.executor in IN_PROCESS_EXECUTORS
    ]
    returned = [entry for entry in entries if entry.has_returned]
    suspects = [entry for entry in inside if entry.is_stepping or entry.executor == "thread"]
    most = [] if from_outside else suspects
    return frozenset(entry.lease for entry in most or inside or returned)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """Why a child ended, and who pays for it."""

    reason: Loss
    charged: frozenset[Lease]
    error: str | None
    is_proved: bool = False  # one of the charged did it; otherwise any of them may have

    def event(self, job: Job, lease: Lease) -> Event:
        """What that means for one of its runs: lost if charged, else handed back if it may be."""
        if lease in self.charged:
            return Lost(self.reason, self.error, delay=_calm(job.losses + self.is_proved))
        beside = Loss.SHUTDOWN if self.reason is Loss.SHUTDOWN else Loss.OWNER_DEAD
        return Released(beside) if job.delivery.runs_again else Lost(beside, self.error)


def attribute_crash(kin: ChildProcess, entries: Sequence[LeaseEntry], *, now: int) -> CrashReport:
    """Why that child ended, and which of its runs pay for it."""
    match kin.killed_for:
        case Loss.SHUTDOWN:
            return CrashReport(reason=Loss.SHUTDOWN, charged=frozenset(), error=None)
        case Loss.TIMEOUT:
            late = {each.lease for each in entries if is_overdue(each, now)}
            error = "it ran longer than its max_runtime and did not stop when asked"
            return CrashReport(reason=Loss.TIMEOUT, charged=frozenset(late), error=error)
        case Loss.SILENT:
            charged = charged_runs(entries, from_outside=False)
            error = kin.stacks or "its process showed no sign of life; no stacks could be had"
            return CrashReport(reason=Loss.SILENT, charged=charged, error=error)
        case _:
            outside = kin.was_killed
            return CrashReport(
                reason=Loss.OWNER_DEAD,
                charged=charged_runs(entries, from_outside=outside),
                error=f"its process {kin.pid} ended: {kin.exit_description()}",
                is_proved=not outside,
            )


async def close_runs(
    store: Jobs, leases: Iterable[Lease], findings: CrashReport, *, new_id: Callable[[], JobId]
) -> Counter[State]:
    """Close the runs, each in one atomic write that is refused if it had ended; who went where.

    Among them those that had come to their end, which nobody lived to tell.
    """
    held = {lease.job_id: lease for lease in leases}
    found = [job for job in await store.get(list(held)) if job is not None]
    over = [job.state for job in found if job.is_final and job.token == held[job.id].token]
    jobs = [job for job in found if _is_open(job, held[job.id])]
    changes = [decide(job, findings.event(job, held[job.id]), new_id=new_id) for job in jobs]
    applied = await store.apply(changes)
    settled = [change for change, done in zip(changes, applied, strict=True) if done]
    for change in settled:
        log_events.job_lost(held[change.job_id], reason=change.reason, to=str(change.move.to))
    return Counter([*over, *(change.move.to for change in settled)])


def _is_open(job: Job, lease: Lease) -> bool:
    return job.state is State.RUNNING and job.token == lease.token


def _calm(crashes: int) -> timedelta:
    """Others go before a job that ends its processes, and each time it waits for longer."""
    return min(MAX_CRASH_BACKOFF, CRASH_BACKOFF * 2.0 ** min(crashes - 1, 10)) if crashes else ZERO
