"""Every step the protocol search may take: by a worker on one line, or by the world around it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.core import event as ev
from holdfast.core.decide import Change
from holdfast.core.delivery import Delivery
from holdfast.core.event import Event
from holdfast.core.state import RunStatus, State

from .crew import Held, Mode, Phase, Worker
from .invariants import (
    CANCEL,
    FAILED,
    LEASE_EXPIRED,
    OWNER_DEAD,
    RELEASED,
    SHUT_DOWN,
    STOPPED,
    SUCCEEDED,
    check_write,
    claim,
)
from .lineage import Line, Row, Store, decided, row_of, snapshot_of


class Step(NamedTuple):
    """One thing that can happen, and what the line and the worker are after it."""

    what: str
    line: Line
    worker: Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The store under test, and how wide the search is."""

    store: Store
    slots: int = 1  # how many jobs a worker holds at once
    releases: int = 1  # how often a job is handed back: that counts as nothing, so it is bounded
    endings: tuple[Event, ...] = (SUCCEEDED, FAILED)  # what a handler may come to


def by_worker(rules: Rules, worker: Worker, number: int, line: Line) -> Iterator[Step]:
    """Whatever this worker, its write under way or its supervisor can do to line `number`."""
    if worker.mode is Mode.ALIVE:
        yield from _taking(rules, worker, number, line)
    for held in worker.held:
        if held.line != number:
            continue
        if held.phase in {Phase.SENT, Phase.LATE}:
            yield _arriving(rules, worker, held, line)
        if worker.mode is Mode.ALIVE:
            yield from _working(rules, worker, held, line)
        if worker.mode is Mode.CRASHED and held.phase is not Phase.LATE:
            yield _mourned(rules, worker, held, line)


def by_world(rules: Rules, line: Line) -> Iterator[tuple[str, Line]]:
    """Time passing, promotion, reclaim, and the client that wants the job cancelled."""
    tip, lease = line.tip, line.tip.open
    if tip.waiting is State.RETRY_WAIT:
        yield "due", write(rules, line, decided(snapshot_of(line), ev.FellDue()))
    if lease is not None and not lease.lapsed:
        yield "lapse", with_tip(line, tip._replace(open=lease._replace(lapsed=True)))
    if lease is not None:
        yield "reclaim", write(rules, line, decided(snapshot_of(line), LEASE_EXPIRED))
    yield from _cancelling(rules, line)


def write(rules: Rules, line: Line, change: Change) -> Line:
    after = rules.store.apply(line, change)
    check_write(line, change, after)
    return after


def with_tip(line: Line, row: Row) -> Line:
    return line._replace(rows=(*line.rows[:-1], row))


def _cancelling(rules: Rules, line: Line) -> Iterator[tuple[str, Line]]:
    if not line.cancel and not line.is_over:
        yield "cancel", write(rules, line, decided(snapshot_of(line), CANCEL))._replace(cancel=True)


def _taking(rules: Rules, worker: Worker, number: int, line: Line) -> Iterator[Step]:
    if line.tip.waiting is not State.QUEUED or len(worker.held) >= rules.slots:
        return
    claimed = with_tip(line, rules.store.claim(line.tip))
    yield Step("claim", claimed, worker.takes(Held(number, snapshot_of(claimed))))


def _working(rules: Rules, worker: Worker, held: Held, line: Line) -> Iterator[Step]:
    match held.phase:
        case Phase.RUNNING:
            yield _renewed(rules, worker, held, line)
            for event in _endings(rules, held, line):
                what = f"send {type(event).__name__.lower()}"
                yield Step(what, line, worker.turns(held, Phase.SENT, event))
        case Phase.STALE:
            yield Step("answer", line, worker.drops(held))



def _endings(rules: Rules, held: Held, line: Line) -> Iterator[Event]:
    yield from rules.endings
    if line.delivery is not Delivery.LEASE:
        yield SHUT_DOWN
    elif sum(status is RunStatus.RELEASED for _, status in line.tip.runs) < rules.releases:
        yield RELEASED
    if is_held(held, line) and line.tip.open is not None and line.tip.open.marked:
        yield STOPPED


def _renewed(rules: Rules, worker: Worker, held: Held, line: Line) -> Step:
    index = row_of(held.snapshot.id)
    renewed = rules.store.renew(line.rows[index], held.snapshot.token)
    after = line._replace(rows=(*line.rows[:index], renewed, *line.rows[index + 1 :]))
    if is_held(held, line):
        return Step("renew", after, worker)
    claim(after == line, "a renewal with a stale token changed something")
    return Step("renew", line, worker.drops(held))


def is_held(held: Held, line: Line) -> bool:
    row = line.rows[row_of(held.snapshot.id)]
    return row.open is not None and row.token == held.snapshot.token


def _arriving(rules, worker, held, line):
    what = "straggle" if worker.mode is Mode.CRASHED else "arrive"
    return Step(what, _sent(rules, held, line), worker)


def _sent(rules: Rules, held: Held, line: Line) -> Line:
    assert held.event is not None
    return write(rules, line, decided(held.snapshot, held.event))


def _mourned(rules, worker, held, line):
    return Step("verdict", write(rules, line, decided(held.snapshot, OWNER_DEAD)), worker)


def settle(worker, number, line):
    out = []
    for held in worker.held:
        if held.line == number and held.phase is not Phase.STALE and not is_held(held, line):
            if worker.mode is Mode.CRASHED: continue
            held = Held(number, None, Phase.STALE)
        out.append(held)
    return worker._replace(held=tuple(sorted(out, key=repr)))
