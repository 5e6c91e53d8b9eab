"""The workers of the protocol search, and every step that they or the world can take on a job."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from outlast.core import event as ev
from outlast.core.decide import Change
from outlast.core.delivery import Delivery
from outlast.core.event import Event
from outlast.core.state import Loss, RunStatus, State

from .lineage import Line, Store, decided, snapshot

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
    """How a worker is."""

    ALIVE = "alive"
    PAUSED = "paused"  # frozen with all its beliefs; it may thaw long after its leases lapsed
    CRASHED = "crashed"  # gone for good; its supervisor knows what it held


class Phase(StrEnum):
    """How far a worker is with a job it took."""

    LOOKED = "looked"  # only in a seeded bug: about to take it
    RUNNING = "running"
    SENT = "sent"  # its write is under way and may arrive at any time, even after its death
    STALE = "stale"  # its run is over, by its own write or another's, and it does not know


CURRENT: Final = frozenset({Phase.RUNNING, Phase.SENT})


class Held(NamedTuple):
    """A lease as its worker believes in it: that of the line's open run, unless it is stale.

    Which run a stale one was of, and what it may be about to write, need not be remembered: the
    invariants try every write under every former token on every line that is ever reached.
    """

    line: int
    phase: Phase = Phase.RUNNING
    event: Event | None = None  # what it sent


class Worker(NamedTuple):
    """A child process; its supervisor speaks for it once it is dead."""

    mode: Mode = Mode.ALIVE
    held: tuple[Held, ...] = ()

    def becomes(self, mode: Mode) -> "Worker":
        return Worker(mode, self.held)._forgetting()

    def takes(self, held: Held) -> "Worker":
        return self._replace(held=tuple(sorted((*self.held, held), key=repr)))

    def drops(self, held: Held) -> "Worker":
        return self._replace(held=tuple(other for other in self.held if other != held))

    def loses(self, line: int) -> "Worker":
        """The open run of that line is over; whoever held it does not know."""
        worker = self
        for held in self.held:
            if held.line == line and held.phase is not Phase.LOOKED:
                worker = worker.drops(held).takes(Held(line, Phase.STALE))
        return worker._forgetting()

    def _forgetting(self) -> "Worker":
        """The dead have nothing more to say about runs that are over."""
        if self.mode is not Mode.CRASHED:
            return self
        return self._replace(held=tuple(held for held in self.held if held.phase in CURRENT))


class Step(NamedTuple):
    """One thing that can happen on a line, and how the line and the worker are after it."""

    what: str
    line: Line
    worker: Worker | None = None  # None: nobody's step
    change: Change | None = None  # what was written, if it was a write


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The store under test, and how wide the search is."""

    store: Store
    slots: int = 1  # how many jobs a worker holds at once
    releases: int = 1  # how often a job is handed back: that counts as nothing, so it is bounded
    endings: tuple[Event, ...] = (SUCCEEDED, FAILED)  # what a handler may come to


def steps_on(rules: Rules, worker: Worker, number: int, line: Line) -> Iterator[Step]:
    """Whatever this worker, its write under way or its supervisor can do to line `number`."""
    if worker.mode is Mode.ALIVE:
        yield from _taking(rules, worker, number, line)
    for held in worker.held:
        if held.line != number:
            continue
        if held.phase is Phase.SENT:
            yield _arriving(rules, worker, held, line)
        if worker.mode is Mode.ALIVE:
            yield from _working(rules, worker, held, line)
        if worker.mode is Mode.CRASHED:
            yield _write("verdict", rules, worker, line, OWNER_DEAD)


def steps_around(rules: Rules, line: Line) -> Iterator[Step]:
    """Time passing, promotion, reclaim, and the clients that want the job cancelled.

    A reclaimer may have seen the lease lapsed long ago: its write may come at any time. So may a
    client's that read the job before it moved on; the invariants try those on every line.
    """
    row, lease = line.tip, line.tip.open
    if row.waiting is State.RETRY_WAIT:
        yield _write("due", rules, None, line, ev.FellDue())
    if lease is not None:
        yield Step("lapse", line.with_tip(row._replace(open=lease._replace(lapsed=True))))
        yield _write("reclaim", rules, None, line, LEASE_EXPIRED)
    if line.cancels and not row.ends:
        asked = line._replace(cancels=line.cancels - 1)
        yield _write("cancel", rules, None, asked, CANCEL)


def _taking(rules: Rules, worker: Worker, number: int, line: Line) -> Iterator[Step]:
    if line.tip.waiting is not State.QUEUED or len(worker.held) >= rules.slots:
        return
    if rules.store.looks_first:
        yield Step("look", line, worker.takes(Held(number, Phase.LOOKED)))
    else:
        claimed = line.with_tip(rules.store.claim(line.tip))
        yield Step("claim", claimed, worker.takes(Held(number)))


def _working(rules: Rules, worker: Worker, held: Held, line: Line) -> Iterator[Step]:
    match held.phase:
        case Phase.LOOKED:
            claimed = line.with_tip(rules.store.claim(line.tip))
            yield Step("claim", claimed, worker.drops(held).takes(Held(held.line)))
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


def _arriving(rules: Rules, worker: Worker, held: Held, line: Line) -> Step:
    assert held.event is not None
    what = "straggle" if worker.mode is Mode.CRASHED else "arrive"
    return _write(what, rules, worker, line, held.event)


def _write(what: str, rules: Rules, worker: Worker | None, line: Line, event: Event) -> Step:
    change = decided(snapshot(line), event)
    return Step(what, rules.store.apply(line, change), worker, change)
