"""Crash attribution: closes the runs of a dead child and decides which are charged."""

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
from outlast.core.state import Loss, RunStatus, State
from outlast.store.contract.jobs import Jobs
from outlast.worker import log_events
from outlast.worker.supervisor.child_process import ChildProcess
from outlast.worker.supervisor.lease_guard import UNCOVERED_STATUS
from outlast.worker.supervisor.shared_lease_table import LeaseEntry
from outlast.worker.supervisor.watchdog import is_overdue

IN_PROCESS_EXECUTORS: Final = frozenset({"async", "thread"})
"""Executors whose handlers run in the child's process and can crash it."""

CRASH_BACKOFF: Final = timedelta(milliseconds=800)
"""Delay of a charged job: longer than a child takes to start, shorter than the one second
within which the jobs of a dead child run again."""

MAX_CRASH_BACKOFF: Final = timedelta(minutes=1)


def charged_runs(entries: Sequence[LeaseEntry], *, from_outside: bool) -> frozenset[Lease]:
    """Return the runs that may have crashed their process; each loses an attempt.

    A process that crashed did so in the code it was running: the handler of the current step of
    the event loop, or a thread. A process that was killed from outside, perhaps for its memory,
    charges every handler it ran. If it ran none, the runs that had returned are charged: a job
    that crashes its process must not run for ever.
    """
    inside = [
        entry for entry in entries if entry.started and entry.executor in IN_PROCESS_EXECUTORS
    ]
    returned = [entry for entry in entries if entry.has_returned]
    suspects = [entry for entry in inside if entry.is_stepping or entry.executor == "thread"]
    likely = [] if from_outside else suspects
    return frozenset(entry.lease for entry in likely or inside or returned)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """Why a child ended, and which runs are charged."""

    reason: Loss
    charged: frozenset[Lease]
    error: str | None
    is_proved: bool = False  # a charged run crashed the process; otherwise it only may have

    def event(self, job: Job, lease: Lease) -> Event:
        """Return the event of a run: lost if charged, else released if its delivery allows it."""
        if lease in self.charged:
            return Lost(self.reason, self.error, delay=_crash_backoff(job.losses + self.is_proved))
        reason = Loss.SHUTDOWN if self.reason is Loss.SHUTDOWN else Loss.OWNER_DEAD
        return Released(reason) if job.delivery.runs_again else Lost(reason, self.error)


def attribute_crash(child: ChildProcess, entries: Sequence[LeaseEntry], *, now: int) -> CrashReport:
    """Return why a child ended and which of its runs are charged."""
    match child.killed_for:
        case Loss.SHUTDOWN:
            return CrashReport(reason=Loss.SHUTDOWN, charged=frozenset(), error=None)
        case Loss.TIMEOUT:
            overdue = {each.lease for each in entries if is_overdue(each, now)}
            error = "it ran longer than its max_runtime and did not stop when asked"
            return CrashReport(reason=Loss.TIMEOUT, charged=frozenset(overdue), error=error)
        case Loss.SILENT:
            charged = charged_runs(entries, from_outside=False)
            error = child.stacks or "its process sent no heartbeat; its stacks could not be dumped"
            return CrashReport(reason=Loss.SILENT, charged=charged, error=error)
        case Loss.LEASE_EXPIRED:
            return _lease_expired(entries)
        case _ if child.process.returncode == UNCOVERED_STATUS:
            return _lease_expired(entries)
        case _:
            outside = child.was_killed
            return CrashReport(
                reason=Loss.OWNER_DEAD,
                charged=charged_runs(entries, from_outside=outside),
                error=f"its process {child.pid} ended: {child.exit_description()}",
                is_proved=not outside,
            )


def _lease_expired(entries: Sequence[LeaseEntry]) -> CrashReport:
    """Charge the `once` runs of a child that was ended because of them."""
    once = frozenset(entry.lease for entry in entries if entry.once_since is not None)
    error = "its lease could not be renewed, so it was ended before its next slot could start"
    return CrashReport(reason=Loss.LEASE_EXPIRED, charged=once, error=error)


async def close_runs(
    store: Jobs, leases: Iterable[Lease], report: CrashReport, *, new_id: Callable[[], JobId]
) -> Counter[State]:
    """Close runs, each in one atomic write that is refused if the run has ended.

    Returns the new states of the jobs. They include jobs that had ended before the child could
    report it.
    """
    held = {lease.job_id: lease for lease in leases}
    found = [job for job in await store.get(list(held)) if job is not None]
    ended = [job.state for job in found if job.is_final and job.token == held[job.id].token]
    jobs = [job for job in found if _is_open(job, held[job.id])]
    changes = [decide(job, report.event(job, held[job.id]), new_id=new_id) for job in jobs]
    applied = await store.apply(changes)
    settled = [change for change, done in zip(changes, applied, strict=True) if done]
    for change in settled:
        if change.move.run is not RunStatus.LOST:
            continue  # released
        log_events.job_lost(held[change.job_id], reason=change.reason, to=str(change.move.to))
    return Counter([*ended, *(change.move.to for change in settled)])


def _is_open(job: Job, lease: Lease) -> bool:
    return job.state is State.RUNNING and job.token == lease.token


def _crash_backoff(crashes: int) -> timedelta:
    """Return the delay of a job after that many crashes, so that other jobs go first."""
    return min(MAX_CRASH_BACKOFF, CRASH_BACKOFF * 2.0 ** min(crashes - 1, 10)) if crashes else ZERO
