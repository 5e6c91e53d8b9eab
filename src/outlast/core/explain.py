"""Why a job waits: the ordered gates before its claim, and the first one that blocks it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from shlex import quote
from typing import Final

from outlast.core.delivery import Delivery
from outlast.core.duration import format_short
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.printable import printable
from outlast.core.progress import describe_progress
from outlast.core.queue import Pause
from outlast.core.refusals import MAX_UNFIT, Refusals
from outlast.core.reservation import Reservation
from outlast.core.state import WAITING, State
from outlast.core.transfer_status import OPEN, TransferStage, TransferStatus
from outlast.core.worker import WorkerRecord
from outlast.core.worker_capacity import able

MOST_AHEAD: Final = 1_000
"""Jobs ahead are counted up to this number; beyond it the text says `1,000+`."""


class GateCode(StrEnum):
    """The gates in the order in which a job meets them. The codes are stable."""

    ENDED = "ended"  # the job has ended
    RUNNING = "running"  # a worker holds its lease
    TRANSFER = "transfer"  # the store accepts no claims during `outlast db copy`
    BLOCKED = "blocked"  # an earlier member of its group has not ended
    PARAMS = "params"  # workers refused it: its params do not fit their code
    DUE = "due"  # its due time is in the future
    DEADLINE = "deadline"  # its start deadline has passed
    PAUSED = "paused"  # its queue is paused
    RESERVATION = "reservation"  # a direct run has reserved its queue
    WORKER = "worker"  # no live worker serves its queue
    TYPE = "type"  # no worker of its queue knows its type
    CONCURRENCY = "concurrency"  # the concurrency limit of its queue is reached
    OVERLAP = "overlap"  # delivery `once`, and a job of its name runs
    ORDER = "order"  # other jobs come first
    SLOTS = "slots"  # every worker that could claim it is busy


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingJob:
    """Another job that blocks this one, and its lease holder."""

    id: JobId
    holder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFacts:
    """Everything that decides when a job is claimed, as stored at one moment."""

    job: Job
    now: datetime
    transfer: TransferStatus = OPEN
    pause: Pause | None = None
    concurrency: int | None = None
    open_runs: int = 0  # in its queue
    running: Sequence[BlockingJob] = ()  # a few of those jobs
    reservation: Reservation | None = None
    overlap: BlockingJob | None = None
    member: BlockingJob | None = None  # the group member that must end first
    ahead: int = 0  # jobs before it, for the worker that would claim it first
    next_one: JobId | None = None  # the first of the jobs ahead
    workers: Sequence[WorkerRecord] = ()  # alive
    busy: int = 0  # execution slots in use of the workers that could claim it
    lease_over: bool = False  # it runs, and its lease has expired
    is_holder_dead: bool = False  # it runs, and the process of its lease holder is dead
    run_started_at: datetime | None = None  # of its open run
    successor: JobId | None = None  # the job that retries it, if it has ended
    refusals: Refusals | None = None  # in a row, up to now
    max_unfit: timedelta = MAX_UNFIT  # setting of the app that asks


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate: open, or what blocks the job, what holds the gate shut and what opens it."""

    code: GateCode
    is_open: bool
    text: str
    holder: str | None = None
    clears: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Every gate of a job in order."""

    job: Job
    at: datetime
    gates: tuple[Gate, ...]

    @property
    def stop(self) -> Gate | None:
        """The first gate that is shut; None if the next claim takes the job."""
        return next((gate for gate in self.gates if not gate.is_open), None)

    @property
    def is_runnable(self) -> bool:
        """Whether every gate is open."""
        return self.stop is None

    @property
    def is_continued(self) -> bool:
        """Whether another job continues it: a retry, by hand or by its delivery."""
        return self.job.is_final and self.stop is not None and self.stop.holder is not None

    @property
    def verdict(self) -> str:
        """What the job waits for and what clears it, in one line."""
        if (stop := self.stop) is None:
            return "it is runnable: the next claim takes it"
        return stop.text if stop.clears is None else f"{stop.text} (clears when: {stop.clears})"

    def __str__(self) -> str:
        """Return the text that `outlast explain` prints."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the text of the explanation, line by line, safe to print."""
        return [printable(line) for line in self._lines()]

    def _lines(self) -> list[str]:
        job, stop = self.job, self.stop
        age = "" if job.is_final else f", {format_short(self.at - job.created_at)} old"
        again = f", {job.attempt_text}" if job.failures and job.state in WAITING else ""
        lines = [f'{job.type}  {job.id}  {job.state} in queue "{job.queue}"{age}{again}', ""]
        if job.slot_at is not None:
            whose = f" of schedule {job.schedule_id}" if job.schedule_id else ""
            lines.insert(1, f"  for the slot {job.slot_at:%F %T}Z{whose}")
        if stop is not None and stop.code in (GateCode.ENDED, GateCode.RUNNING):
            return [*lines, f"  {stop.text}", *self._remedy(stop)]
        for gate in self.gates:
            mark = "ok  " if gate.is_open else "STOP" if gate is stop else "also"
            lines.append(f"  {mark} {gate.code:<12} {gate.text}")
        if stop is None:
            return [*lines, "", "Runnable: the next claim takes it."]
        return lines if stop.clears is None else [*lines, "", f"Clears when: {stop.clears}"]

    def _remedy(self, stop: Gate) -> list[str]:
        """Return the lines that say what to do about a job that has ended or runs."""
        if stop.clears is None or not (self.job.is_final or "`" in stop.clears):
            return []
        return ["", f"{'Run it again' if self.job.is_final else 'Clears when'}: {stop.clears}"]


def explain(facts: WaitFacts) -> Explanation:
    """Return the gates of a job for these facts."""
    gates = tuple(_gates(facts))
    return Explanation(facts.job, facts.now, gates)


def _gates(facts: WaitFacts) -> Iterator[Gate]:
    job = facts.job
    if job.is_final:
        yield _ended(facts)
        return
    if job.state is State.RUNNING:
        yield _running(facts)
        return
    if facts.transfer.stage is not TransferStage.OPEN:
        yield _transfer(facts.transfer)
    yield _blocked(facts)
    if facts.refusals is not None:
        yield _refused(facts.refusals, facts.max_unfit)
    yield _due(facts)
    if job.start_deadline is not None and not job.token:
        yield _deadline(facts, job.start_deadline)
    yield _paused(facts)
    yield _reserved(facts)
    yield from _served(facts)
    if facts.concurrency is not None:
        yield _limited(facts, facts.concurrency)
    if job.delivery is Delivery.ONCE:
        yield _overlap(facts)
    yield _order(facts)
    yield from _slots(facts)


def _ended(facts: WaitFacts) -> Gate:
    job, successor = facts.job, facts.successor
    text = f"ended {job.state} ({job.reason or 'done'})"
    if successor is None:
        return _shut(GateCode.ENDED, text, clears=_retry_command(job))
    text += f"; job {successor} continues it: `outlast explain {successor}`"
    return _shut(GateCode.ENDED, text, holder=successor)


def _running(facts: WaitFacts) -> Gate:
    job = facts.job
    if facts.lease_over or facts.is_holder_dead:
        return _lost(facts)
    since = "" if facts.run_started_at is None else f" since {_utc(facts.run_started_at)}"
    asked = "; a cancel was requested" if job.cancel_requested else ""
    progress = "" if job.progress is None else f"; {describe_progress(job.progress)}"
    text = f"running on {job.holder}{since}, {job.attempt_text}{progress}{asked}"
    return _shut(GateCode.RUNNING, text, holder=job.holder, clears="its handler ends")


def _lost(facts: WaitFacts) -> Gate:
    """Return the gate of a job whose worker no longer renews its lease."""
    job = facts.job
    what = "is dead" if facts.is_holder_dead else "stopped renewing its lease, which has expired"
    if facts.workers:
        text = f"running; worker {job.holder} {what}, and another worker takes the job over"
        return _shut(
            GateCode.RUNNING, text, holder=job.holder, clears="a live worker takes it over"
        )
    text = f"running; worker {job.holder} {what}, and no live worker can take the job over"
    clears = f"`outlast worker -q {quote(job.queue)}`"
    return _shut(GateCode.RUNNING, text, holder=job.holder, clears=clears)


def _transfer(status: TransferStatus) -> Gate:
    """Return the gate of a store that is not open."""
    other = status.other
    resume = f"`outlast db copy --from {quote(other)} --to URL` ends; URL is that of this store"
    match status.stage:
        case TransferStage.SEALED:
            text = f"the store is sealed while `outlast db copy` moves it to {other}"
            until = "" if status.until is None else f", or at {_utc(status.until)} if it was killed"
            return _shut(GateCode.TRANSFER, text, holder=other, clears=f"the copy ends{until}")
        case TransferStage.MOVED:
            text = f"the store was moved to {other}"
            never = f"never here: start the workers with {other}"
            return _shut(GateCode.TRANSFER, text, holder=other, clears=never)
        case TransferStage.FILLING:
            text = f"the store is being filled from {other}"
        case _:
            text = f"the store holds all rows of {other} and is not open yet"
    return _shut(GateCode.TRANSFER, text, holder=other, clears=resume)


def _blocked(facts: WaitFacts) -> Gate:
    if facts.job.state is not State.BLOCKED:
        return _open(GateCode.BLOCKED, "waits for no other job")
    if facts.member is None:
        text = "members of its group are still being added"
        return _shut(
            GateCode.BLOCKED,
            text,
            holder=facts.job.group_id,
            clears="all members of the group are added",
        )
    text = f"job {facts.member.id}, its predecessor in group {facts.job.group_id}, has not ended"
    return _shut(
        GateCode.BLOCKED, text, holder=facts.member.id, clears=f"job {facts.member.id} ends"
    )


def _refused(refusals: Refusals, max_unfit: timedelta) -> Gate:
    clears = "a worker whose code its params fit claims it; `outlast check` tries them on new code"
    text, last = refusals.end_text(max_unfit), refusals.workers[-1]
    return _shut(GateCode.PARAMS, text, holder=last, clears=clears)


def _due(facts: WaitFacts) -> Gate:
    when = facts.job.available_at
    if when <= facts.now or facts.job.state is State.QUEUED:  # the clock may have been set back
        return _open(GateCode.DUE, f"since {_utc(when)}")
    why = f" (run {facts.job.token} {_last_end(facts.job)})" if facts.job.token else ""
    text = f"due at {_utc(when)}, in {format_short(when - facts.now)}{why}"
    return _shut(GateCode.DUE, text, clears=f"{_utc(when)}; `outlast edit {facts.job.id} --in 0s`")


def _deadline(facts: WaitFacts, deadline: datetime) -> Gate:
    if facts.now <= deadline:
        return _open(GateCode.DEADLINE, f"may start until {_utc(deadline)}")
    text = f"its start deadline {_utc(deadline)} has passed"
    return _shut(GateCode.DEADLINE, text, clears="never: maintenance ends it as skipped")


def _paused(facts: WaitFacts) -> Gate:
    pause, queue = facts.pause, facts.job.queue
    if pause is None or pause.is_over(facts.now):
        return _open(GateCode.PAUSED, f'queue "{queue}" is not paused')
    text = f'queue "{queue}" is paused since {_utc(pause.at)}: {pause.reason or "no reason given"}'
    until = "" if pause.until is None else f"at {_utc(pause.until)}, or "
    return _shut(
        GateCode.PAUSED, text, holder=queue, clears=f"{until}`outlast queue resume {quote(queue)}`"
    )


def _reserved(facts: WaitFacts) -> Gate:
    held = facts.reservation
    if held is None or held.job_id == facts.job.id:
        what = "its own" if held is not None else "no"
        return _open(GateCode.RESERVATION, f"{what} reservation holds the queue")
    text = (
        f"direct job {held.job_id} of {held.reserved_by} reserves the queue until "
        f"{_utc(held.expires_at)}, or longer if it is renewed"
    )
    when = "ends" if facts.concurrency == 1 else "is claimed"
    return _shut(GateCode.RESERVATION, text, holder=held.job_id, clears=f"job {held.job_id} {when}")


def _served(facts: WaitFacts) -> Iterator[Gate]:
    queue, kind = facts.job.queue, facts.job.type
    serving = [worker for worker in facts.workers if queue in worker.queues]
    if not serving:
        text = f'no live worker serves queue "{queue}"'
        yield _shut(GateCode.WORKER, text, clears=f"`outlast worker -q {quote(queue)}`")
        return
    if all(worker.is_stopping for worker in serving):
        yield _all_stopping(queue, serving)
        return
    serving = [worker for worker in serving if not worker.is_stopping]
    names = ", ".join(sorted({worker.instance_id for worker in serving})[:3])
    yield _open(GateCode.WORKER, f'{_workers(len(serving))} for queue "{queue}": {names}')
    if any(kind in worker.types for worker in serving):
        yield _open(GateCode.TYPE, f'type "{kind}" is known to them')
        return
    text = f'none of them knows type "{kind}"'
    yield _shut(GateCode.TYPE, text, holder=names, clears=f'a worker with the code of "{kind}"')


def _all_stopping(queue: str, serving: Sequence[WorkerRecord]) -> Gate:
    names = ", ".join(sorted(worker.instance_id for worker in serving)[:3])
    text = f'{_workers(len(serving))} for queue "{queue}", stopping and claiming no more: {names}'
    return _shut(GateCode.WORKER, text, holder=names, clears=f"`outlast worker -q {queue}`")


def _limited(facts: WaitFacts, most: int) -> Gate:
    if facts.open_runs < most:
        return _open(GateCode.CONCURRENCY, f"{facts.open_runs} of {most} running")
    by = ", ".join(f"{other.id} on {other.holder}" for other in facts.running)
    text = f"the limit of {most} is reached: {by}"
    first = facts.running[0].id if facts.running else None
    return _shut(GateCode.CONCURRENCY, text, holder=first, clears=f"job {first} ends")


def _overlap(facts: WaitFacts) -> Gate:
    if facts.overlap is None:
        return _open(GateCode.OVERLAP, f'no job named "{facts.job.name}" is running')
    text = (
        f'job {facts.overlap.id} of the same name "{facts.job.name}" runs on {facts.overlap.holder}'
    )
    return _shut(
        GateCode.OVERLAP, text, holder=facts.overlap.id, clears=f"job {facts.overlap.id} ends"
    )


def _order(facts: WaitFacts) -> Gate:
    if facts.reservation is not None and facts.reservation.job_id == facts.job.id:
        return _open(GateCode.ORDER, "its own reservation takes precedence")
    if not facts.ahead:
        return _open(GateCode.ORDER, "next in claim order")
    count = f"{MOST_AHEAD:,}+" if facts.ahead > MOST_AHEAD else f"{facts.ahead:,}"
    text = f"{count} ahead in claim order; {facts.next_one} is next"
    clears = f"they are claimed; `outlast move {facts.job.id} front`"
    return _shut(GateCode.ORDER, text, holder=facts.next_one, clears=clears)


def _slots(facts: WaitFacts) -> Iterator[Gate]:
    serving = able(facts.job, facts.workers)
    capacity = sum(worker.capacity for worker in serving)
    if facts.busy < capacity:
        yield _open(
            GateCode.SLOTS, f"{capacity - facts.busy} of {capacity} execution slots are free"
        )
    elif serving:
        text = f"all {capacity} execution slots of {_workers(len(serving))} are busy"
        yield _shut(GateCode.SLOTS, text, clears="a run ends, or another worker starts")


def _retry_command(job: Job) -> str | None:
    is_done = job.state is State.SUCCEEDED or job.delivery is Delivery.ONCE
    return None if is_done else f"`outlast retry {job.id}`"


def _last_end(job: Job) -> str:
    return "failed" if job.failures else "was released"


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _workers(number: int) -> str:
    return f"{number} worker" if number == 1 else f"{number} workers"


def _open(code: GateCode, text: str) -> Gate:
    return Gate(code=code, is_open=True, text=text)


def _shut(
    code: GateCode, text: str, *, holder: str | None = None, clears: str | None = None
) -> Gate:
    return Gate(code=code, is_open=False, text=text, holder=holder, clears=clears)
