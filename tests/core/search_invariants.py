"""What must hold in every state, and across every step, of the protocol search."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

from outlast.core import event as ev
from outlast.core.decide import Change, Guard
from outlast.core.delivery import Delivery
from outlast.core.event import Event
from outlast.core.state import RunStatus, State

from . import search_workers
from .search_store import MAX_ATTEMPTS, Line, Row, Snapshot, Store, decided, snapshot
from .search_workers import CURRENT, Step, Worker

COUNTED = frozenset({RunStatus.FAILED, RunStatus.LOST})
OF_A_RUN = (
    search_workers.SUCCEEDED,
    search_workers.FAILED,
    search_workers.POISONED,
    search_workers.STOPPED,
    search_workers.SHUT_DOWN,
    search_workers.OWNER_DEAD,
    search_workers.LEASE_EXPIRED,
    search_workers.CANCEL,
    ev.Skipped(),
)
OF_A_WAIT = (
    (State.QUEUED, search_workers.CANCEL),
    (State.QUEUED, ev.Misfired()),
    (State.RETRY_WAIT, search_workers.CANCEL),
    (State.RETRY_WAIT, ev.FellDue()),
    (State.RETRY_WAIT, ev.GivenUp("enough")),
)


class InvariantBroken(Exception):
    """An invariant is broken after `step`."""

    def __init__(self, invariant: str) -> None:
        super().__init__(invariant)
        self.invariant = invariant
        self.step = ""


def must(hold: bool, invariant: str) -> None:
    if not hold:
        raise InvariantBroken(invariant)


def check_line(line: Line, store: Store) -> None:
    """Everything that can be told by looking at one job and its successors."""
    for row in line.rows:
        _check_place(row)
        _check_runs(row)
        _check_cancel(row)
    _check_counts(line)
    _check_delivery(line)
    for change in _late_writes(line):
        must(store.apply(line, change) == line, "a write under a former token changes nothing")
    for row in line.rows:
        for token in range(row.token + (row.open is None)):
            must(store.renew(row, token) == row, "a renewal under a former token changes nothing")


def check_step(before: Line, step: Step) -> None:
    """What no step may do to a job, whatever its state."""
    must(len(step.line.rows) >= len(before.rows), "a job is never deleted")
    for old, new in zip(before.rows, step.line.rows, strict=False):
        must(new.token >= old.token, "a token only rises")
        must(new.runs[: len(old.runs)] == old.runs, "a closed run never changes")
        must(not old.ends or new == old, "an ended job never changes")
    if step.change is not None and before.rows != step.line.rows:
        lease = before.tip.open
        is_guarded = step.change.move.guard is Guard.LAPSED
        must(
            not is_guarded or (lease is not None and lease.expired),
            "a fresh lease is never reclaimed",
        )


def check_workers(workers: Iterable[Worker]) -> None:
    """No two workers ever hold one lease."""
    held = Counter(held.line for worker in workers for held in worker.held if held.phase in CURRENT)
    must(all(count == 1 for count in held.values()), "a run has one holder")


def _check_place(row: Row) -> None:
    places = (row.waiting is not None) + (row.open is not None) + bool(row.ends)
    must(places == 1, "a job is in exactly one place")
    must(len(row.ends) <= 1, "a job has at most one terminal record")


def _check_runs(row: Row) -> None:
    tokens = [token for token, _ in row.runs] + ([row.open.token] if row.open else [])
    wins = [token for token, status in row.runs if status is RunStatus.SUCCEEDED]
    must(tokens == list(range(1, row.token + 1)), "each token opens one run and closes it once")
    must([row.result] == (wins or [None]), "a result is written once, by the run that succeeded")
    must(bool(wins) == (row.ends == (State.SUCCEEDED,)), "a success ends its job as succeeded")


def _check_cancel(row: Row) -> None:
    if row.asked is not None:
        must(row.token == row.asked, "a job asked to stop gets no other run")
        must(row.open is not None or bool(row.ends), "a job asked to stop ends with its run")


def _check_counts(line: Line) -> None:
    closed: Counter[RunStatus] = Counter()
    for row in line.rows:
        closed.update(status for _, status in row.runs)
        counted = sum(closed[status] for status in COUNTED)
        must(row.failures == counted, "failures are the failed and the lost runs")
        must(row.losses == closed[RunStatus.LOST], "losses are the lost runs")
        must(row.failures <= MAX_ATTEMPTS, "there are no more attempts than allowed")


def _check_delivery(line: Line) -> None:
    if line.delivery is Delivery.LEASE:
        must(len(line.rows) == 1, "a lease job has no successor")
        return
    must(all(row.token <= 1 for row in line.rows), "a linked or once job runs at most once")
    owed = [line.delivery is Delivery.LINKED and _is_owed_a_successor(row) for row in line.rows]
    has = [True] * (len(line.rows) - 1) + [False]
    must(has == owed, "a successor follows a failure with attempts left, unless cancelled")


def _is_owed_a_successor(row: Row) -> bool:
    failed = any(status in COUNTED for _, status in row.runs) and not row.is_permanent
    return failed and row.failures < MAX_ATTEMPTS and row.asked is None


def _late_writes(line: Line) -> Iterator[Change]:
    """Yield every write that an earlier lease holder or reader may still make."""
    for index, row in enumerate(line.rows):
        seen = snapshot(line._replace(rows=line.rows[: index + 1]))
        for (token, _), event in product(row.runs, _of_a_run(line.delivery)):
            yield _as_of(seen, State.RUNNING, token, event)
        for token, (state, event) in product(range(row.token), OF_A_WAIT):
            yield _as_of(seen, state, token, event)


def _of_a_run(delivery: Delivery) -> tuple[Event, ...]:
    return (*OF_A_RUN, search_workers.RELEASED) if delivery is Delivery.LEASE else OF_A_RUN


def _as_of(now: Snapshot, state: State, token: int, event: Event) -> Change:
    then = Snapshot(now.id, state, now.delivery, token, now.failures, now.losses)
    return decided(then, event)
