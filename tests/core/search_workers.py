"""Workers of the protocol search, and every step that can happen to a job."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from outlast.core import event as ev
from outlast.core.decide import Change
from outlast.core.delivery import Delivery
from outlast.core.event import Event
from outlast.core.state import Loss, RunStatus, State

from .search_store import Line, Store, decided, snapshot

SUCCEEDED: Final = ev.Succeeded("1")
FAILED: Final = ev.Failed("boom")
POISONED: Final = ev.Failed("no use", permanent=True)
STOPPED: Final = ev.Stopped("asked")
RELEASED: Final = ev.Released("shutdown")
SHUT_DOWN: Final = ev.Lost(Loss.SHUTDOWN)
OWNER_DEAD: Final = ev.Lost(Loss.OWNER_DEAD)
LEASE_EXPIRED: Final = ev.Lost(Loss.LEASE_EXPIRED)
CANCEL: Final = ev.CancelRequested()


class Mode(StrEnum):
    """State of a worker."""

    ALIVE = "alive"
    PAUSED = "paused"  # frozen; it may resume long after its leases have expired
    CRASHED = "crashed"  # dead; its supervisor knows its leases


class Phase(StrEnum):
    """How far a worker is with a job."""

    READ = "read"  # only in a seeded bug: read, not yet claimed
    RUNNING = "running"
    SENT = "sent"  # its write may arrive at any time, even after its death
    STALE = "stale"  # its run has ended and the worker does not know


CURRENT: Final = frozenset({Phase.RUNNING, Phase.SENT})


class HeldLease(NamedTuple):
    """A lease as its worker knows it: that of the line's open run, unless it is stale.

    The run of a stale lease and its pending writes are not modelled: the invariants try every
    write under every former token on every line that is reached.
    """

    line: int
    phase: Phase = Phase.RUNNING
    event: Event | None = None  # what it sent


class Worker(NamedTuple):
    """A child process; its supervisor reports its death."""

    mode: Mode = Mode.ALIVE
    held: tuple[HeldLease, ...] = ()

    def becomes(self, mode: Mode) -> "Worker":
        return Worker(mode, self.held)._without_stale_if_dead()

    def takes(self, held: HeldLease) -> "Worker":
        return self._replace(held=tuple(sorted((*self.held, held), key=repr)))

    def drops(self, held: HeldLease) -> "Worker":
        return self._replace(held=tuple(other for other in self.held if other != held))

    def loses(self, line: int) -> "Worker":
        """Return the worker after the open run of that line has ended without its knowledge."""
        worker = self
        for held in self.held:
            if held.line == line and held.phase is not Phase.READ:
                worker = worker.drops(held).takes(HeldLease(line, Phase.STALE))
        return worker._without_stale_if_dead()

    def _without_stale_if_dead(self) -> "Worker":
        """Return the worker without its stale leases if it is dead."""
        if self.mode is not Mode.CRASHED:
            return self
        return self._replace(held=tuple(held for held in self.held if held.phase in CURRENT))


class Step(NamedTuple):
    """One step, and the line and the worker after it."""

    what: str
    line: Line
    worker: Worker | None = None  # None: not the step of a worker
    change: Change | None = None  # what was written, if it was a write


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The store under test, and how wide the search is."""

    store: Store
    slots: int = 1  # jobs a worker holds at the same time
    releases: int = 1  # releases per job: they spend no attempt, so they are bounded
    endings: tuple[Event, ...] = (SUCCEEDED, FAILED)  # possible ends of a handler


def worker_steps(rules: Rules, worker: Worker, number: int, line: Line) -> Iterator[Step]:
    """Yield the steps of this worker, its pending write or its supervisor on line `number`."""
    if worker.mode is Mode.ALIVE:
        yield from _claim_steps(rules, worker, number, line)
    for held in worker.held:
        if held.line != number:
            continue
        if held.phase is Phase.SENT:
            yield _arrival(rules, worker, held, line)
        if worker.mode is Mode.ALIVE:
            yield from _run_steps(rules, worker, held, line)
        if worker.mode is Mode.CRASHED:
            yield _write("report death", rules, worker, line, OWNER_DEAD)


def other_steps(rules: Rules, line: Line) -> Iterator[Step]:
    """Yield the steps of time, promotion, reclaim and cancel requests.

    A reclaimer may have read the expired lease long ago, so its write may arrive at any time. The
    invariants try the late writes of clients on every line.
    """
    row, lease = line.tip, line.tip.open
    if row.waiting is State.RETRY_WAIT:
        yield _write("due", rules, None, line, ev.FellDue())
    if lease is not None:
        yield Step("expire", line.with_tip(row._replace(open=lease._replace(expired=True))))
        yield _write("reclaim", rules, None, line, LEASE_EXPIRED)
    if line.cancels and not row.ends:
        asked = line._replace(cancels=line.cancels - 1)
        yield _write("cancel", rules, None, asked, CANCEL)


def _claim_steps(rules: Rules, worker: Worker, number: int, line: Line) -> Iterator[Step]:
    if line.tip.waiting is not State.QUEUED or len(worker.held) >= rules.slots:
        return
    if rules.store.reads_before_claim:
        yield Step("read", line, worker.takes(HeldLease(number, Phase.READ)))
    else:
        claimed = line.with_tip(rules.store.claim(line.tip))
        yield Step("claim", claimed, worker.takes(HeldLease(number)))


def _run_steps(rules: Rules, worker: Worker, held: HeldLease, line: Line) -> Iterator[Step]:
    match held.phase:
        case Phase.READ:
            claimed = line.with_tip(rules.store.claim(line.tip))
            yield Step("claim", claimed, worker.drops(held).takes(HeldLease(held.line)))
        case Phase.RUNNING:
            renewed = line.with_tip(rules.store.renew(line.tip, line.tip.token))
            yield Step("renew", renewed, worker)
            for event in _endings(rules, line):
                what = f"send {type(event).__name__.lower()}"
                sent = held._replace(phase=Phase.SENT, event=event)
                yield Step(what, line, worker.drops(held).takes(sent))
        case Phase.STALE:
            yield Step("learn", line, worker.drops(held))


def _endings(rules: Rules, line: Line) -> Iterator[Event]:
    yield from rules.endings
    if line.delivery is not Delivery.LEASE:
        yield SHUT_DOWN
    elif sum(status is RunStatus.RELEASED for _, status in line.tip.runs) < rules.releases:
        yield RELEASED
    if line.tip.open is not None and line.tip.open.marked:
        yield STOPPED


def _arrival(rules: Rules, worker: Worker, held: HeldLease, line: Line) -> Step:
    assert held.event is not None
    what = "arrive late" if worker.mode is Mode.CRASHED else "arrive"
    return _write(what, rules, worker, line, held.event)


def _write(what: str, rules: Rules, worker: Worker | None, line: Line, event: Event) -> Step:
    change = decided(snapshot(line), event)
    return Step(what, rules.store.apply(line, change), worker, change)
