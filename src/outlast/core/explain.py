"""Why a job waits: the gates it meets on its way to a worker, and the one that stops it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from outlast.core.delivery import Delivery
from outlast.core.duration import format_short
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.queue import Pause
from outlast.core.reservation import Reservation
from outlast.core.run import LeaseHolder
from outlast.core.state import State
from outlast.core.worker import WorkerRecord

MOST_AHEAD: Final = 1_000
"""Up to here the jobs ahead are counted; beyond, it says `1,000+`."""


class GateCode(StrEnum):
    """The gates in the order in which a job meets them. The words are stable."""

    ENDED = "ended"  # it is over
    RUNNING = "running"  # a worker holds its lease
    BLOCKED = "blocked"  # an earlier member of its group has not ended
    DUE = "due"  # its time has not come
    DEADLINE = "deadline"  # it was to start by a time that has passed
    PAUSED = "paused"  # its queue is paused
    RESERVATION = "reservation"  # a direct run holds its queue
    WORKER = "worker"  # nobody alive serves its queue
    TYPE = "type"  # whoever serves its queue does not know its type
    CONCURRENCY = "concurrency"  # as many of its queue run as may
    OVERLAP = "overlap"  # a job of its name runs, and it is delivered once
    ORDER = "order"  # others come first
    SLOTS = "slots"  # every worker that could take it is busy


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingJob:
    """Another job that stands in the way, and who runs it."""

    id: JobId
    holder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFacts:
    """All that decides when a job is taken, as the store had it at one moment."""

    job: Job
    now: datetime
    pause: Pause | None = None
    concurrency: int | None = None
    open_runs: int = 0  # of its queue
    running: Sequence[BlockingJob] = ()  # a few of those
    reservation: Reservation | None = None
    overlap: BlockingJob | None = None
    member: BlockingJob | None = None  # of its group, that must end first
    ahead: int = 0  # for whoever is the next to take it: of types that one knows
    next_one: JobId | None = None  # the first of those ahead
    workers: Sequence[WorkerRecord] = ()  # alive
    busy: int = 0  # slots of those that could take it, in use
    lease_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate: open, or what stops the job there, who holds it shut and what would open it."""

    code: GateCode
    is_open: bool
    text: str
    holder: str | None = None
    clears: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Every gate in order. `stop` is the first that is shut; None: the next claim takes it."""

    job: Job
    at: datetime
    gates: tuple[Gate, ...]

    @property
    def stop(self) -> Gate | None:
        return next((gate for gate in self.gates if not gate.is_open), None)

    @property
    def is_runnable(self) -> bool:
        return self.stop is None

    def __str__(self) -> str:
        """Return the text that `outlast explain` prints."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the lines of the text: the job, its gates in order, and the remedy."""
        job, stop = self.job, self.stop
        age = "" if job.is_final else f", {format_short(self.at - job.created_at)} old"
        said = [f'{job.type}  {job.id}  {job.state} in queue "{job.queue}"{age}', ""]
        if job.slot_at is not None:
            whose = f" of schedule {job.schedule_id}" if job.schedule_id else ""
            said.insert(1, f"  for the slot {job.slot_at:%F %T}Z{whose}")
        for gate in self.gates:
            mark = "ok  " if gate.is_open else "STOP" if gate is stop else "also"
            said.append(f"  {mark} {gate.code:<12} {gate.text}")
        if stop is None:
            return [*said, "", "Runnable: the next claim takes it."]
        return said if stop.clears is None else [*said, "", f"Clears when: {stop.clears}"]


def explain(situation: WaitFacts) -> Explanation:
    """The gates of a job in that situation."""
    gates = tuple(_gates(situation))
    return Explanation(situation.job, situation.now, gates)


def able(job: Job, workers: Iterable[WorkerRecord]) -> list[WorkerRecord]:
    """Those that could take it: they serve its queue and know its type."""
    return [worker for worker in workers if job.queue in worker.queues and job.type in worker.types]


def in_use(workers: Iterable[WorkerRecord], open_runs: Mapping[LeaseHolder, int]) -> int:
    """How many of their slots are; what one has at hand beyond its slots keeps no other busy."""
    return sum(min(open_runs.get(worker.holder, 0), worker.capacity) for worker in workers)


def types_wanted_by(
    workers: Sequence[WorkerRecord], open_runs: Mapping[LeaseHolder, int]
) -> set[frozenset[str] | None]:
    """Of which types each takes the next: who has a free slot, or all if none has; None is any."""
    free = [worker for worker in workers if open_runs.get(worker.holder, 0) < worker.capacity]
    return {frozenset(worker.types) for worker in free or workers} or {None}


def _gates(here: WaitFacts) -> Iterator[Gate]:
    job = here.job
    if job.is_final:
        yield _shut(
            GateCode.ENDED, f"it ended {job.state} ({job.reason or 'done'})", clears=_again(job)
        )
        return
    if job.state is State.RUNNING:
        yield _running(here)
        return
    yield _blocked(here)
    yield _due(here)
    if job.start_deadline is not None and not job.token:
        yield _deadline(here, job.start_deadline)
    yield _paused(here)
    yield _reserved(here)
    yield from _served(here)
    if here.concurrency is not None:
        yield _limited(here, here.concurrency)
    if job.delivery is Delivery.ONCE:
        yield _overlap(here)
    yield _order(here)
    yield from _slots(here)


def _running(here: WaitFacts) -> Gate:
    job = here.job
    since = "" if job.started_at is None else f" since {_clock(job.started_at)}"
    if here.lease_over:
        text = f"its lease, held by {job.holder}, is over; it is about to be taken over"
        return _shut(
            GateCode.RUNNING, text, holder=job.holder, clears="any live worker takes it over"
        )
    asked = "; it was asked to stop" if job.cancel_requested else ""
    text = f"{job.holder} runs it{since}{asked}"
    return _shut(GateCode.RUNNING, text, holder=job.holder, clears="its handler ends")


def _blocked(here: WaitFacts) -> Gate:
    if here.job.state is not State.BLOCKED:
        return _open(GateCode.BLOCKED, "waits for no other job")
    if here.member is None:
        text = "its group is not complete yet"
        return _shut(
            GateCode.BLOCKED, text, holder=here.job.group_id, clears="the group is complete"
        )
    text = f"job {here.member.id}, before it in group {here.job.group_id}, has not ended"
    return _shut(GateCode.BLOCKED, text, holder=here.member.id, clears=f"job {here.member.id} ends")


def _due(here: WaitFacts) -> Gate:
    when = here.job.available_at
    if when <= here.now or here.job.state is State.QUEUED:  # the clock may have been set back since
        return _open(GateCode.DUE, f"since {_clock(when)}")
    why = f" (run {here.job.token} {_last(here.job)})" if here.job.token else ""
    text = f"due at {_clock(when)}, in {format_short(when - here.now)}{why}"
    return _shut(GateCode.DUE, text, clears=f"{_clock(when)}; `outlast edit {here.job.id} --in 0s`")


def _deadline(here: WaitFacts, deadline: datetime) -> Gate:
    if here.now <= deadline:
        return _open(GateCode.DEADLINE, f"may start until {_clock(deadline)}")
    text = f"it was to start by {_clock(deadline)}"
    return _shut(GateCode.DEADLINE, text, clears="never: a worker's tick will skip it")


def _paused(here: WaitFacts) -> Gate:
    pause, queue = here.pause, here.job.queue
    if pause is None or pause.is_over(here.now):
        return _open(GateCode.PAUSED, f'queue "{queue}" is not paused')
    text = (
        f'queue "{queue}" is paused since {_clock(pause.at)}: {pause.reason or "no reason given"}'
    )
    until = "" if pause.until is None else f"at {_clock(pause.until)}, or "
    return _shut(
        GateCode.PAUSED, text, holder=queue, clears=f"{until}`outlast queue resume {queue}`"
    )


def _reserved(here: WaitFacts) -> Gate:
    held = here.reservation
    if held is None or held.job_id == here.job.id:
        who = "its own reservation" if held is not None else "nobody"
        return _open(GateCode.RESERVATION, f"{who} holds the queue")
    text = (
        f"direct job {held.job_id} of {held.reserved_by} holds the queue until "
        f"{_clock(held.expires_at)}, or longer if it is renewed"
    )
    when = "ends" if here.concurrency == 1 else "is taken"
    return _shut(GateCode.RESERVATION, text, holder=held.job_id, clears=f"job {held.job_id} {when}")


def _served(here: WaitFacts) -> Iterator[Gate]:
    queue, kind = here.job.queue, here.job.type
    serving = [worker for worker in here.workers if queue in worker.queues]
    if not serving:
        text = f'no live worker serves queue "{queue}"'
        yield _shut(GateCode.WORKER, text, clears=f"`outlast worker -q {queue}`")
        return
    names = ", ".join(sorted({worker.instance_id for worker in serving})[:3])
    yield _open(GateCode.WORKER, f'{len(serving)} serve queue "{queue}": {names}')
    if any(kind in worker.types for worker in serving):
        yield _open(GateCode.TYPE, f'type "{kind}" is known there')
        return
    text = f'none of them knows type "{kind}"'
    yield _shut(GateCode.TYPE, text, holder=names, clears=f'a worker with the code of "{kind}"')


def _limited(here: WaitFacts, most: int) -> Gate:
    if here.open_runs < most:
        return _open(GateCode.CONCURRENCY, f"{here.open_runs} of {most} run")
    by = ", ".join(f"{other.id} on {other.holder}" for other in here.running)
    text = f"the queue lets {most} run, and {here.open_runs} do: {by}"
    first = here.running[0].id if here.running else None
    return _shut(GateCode.CONCURRENCY, text, holder=first, clears=f"job {first} ends")


def _overlap(here: WaitFacts) -> Gate:
    if here.overlap is None:
        return _open(GateCode.OVERLAP, f'no job named "{here.job.name}" runs')
    text = (
        f'job {here.overlap.id}, of the same name "{here.job.name}", runs on {here.overlap.holder}'
    )
    return _shut(
        GateCode.OVERLAP, text, holder=here.overlap.id, clears=f"job {here.overlap.id} ends"
    )


def _order(here: WaitFacts) -> Gate:
    if here.reservation is not None and here.reservation.job_id == here.job.id:
        return _open(GateCode.ORDER, "its own reservation goes before the order")
    if not here.ahead:
        return _open(GateCode.ORDER, "next in claim order")
    count = f"{MOST_AHEAD:,}+" if here.ahead > MOST_AHEAD else f"{here.ahead:,}"
    text = f"behind {count} in claim order; {here.next_one} is next"
    clears = f"they are taken; `outlast move {here.job.id} front`"
    return _shut(GateCode.ORDER, text, holder=here.next_one, clears=clears)


def _slots(here: WaitFacts) -> Iterator[Gate]:
    serving = able(here.job, here.workers)
    room = sum(worker.capacity for worker in serving)
    if here.busy < room:
        yield _open(GateCode.SLOTS, f"{room - here.busy} of {room} slots are idle")
    elif serving:
        text = f"all {room} slots of {len(serving)} workers are busy"
        yield _shut(GateCode.SLOTS, text, clears="a run ends, or another worker starts")


def _again(job: Job) -> str | None:
    is_good = job.state is State.SUCCEEDED or job.delivery is Delivery.ONCE
    return None if is_good else f"`outlast retry {job.id}` makes a new job of it"


def _last(job: Job) -> str:
    return "failed" if job.failures else "gave it back"


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _open(code: GateCode, text: str) -> Gate:
    return Gate(code=code, is_open=True, text=text)


def _shut(
    code: GateCode, text: str, *, holder: str | None = None, clears: str | None = None
) -> Gate:
    return Gate(code=code, is_open=False, text=text, holder=holder, clears=clears)
