"""What must hold in every state, and across every step, of the protocol search."""

from itertools import combinations

from holdfast.core import event as ev
from holdfast.core.decide import Change, Guard
from holdfast.core.delivery import Delivery
from holdfast.core.event import Event
from holdfast.core.state import Loss, RunStatus, State

from .crew import Worker
from .lineage import MAX_ATTEMPTS, Line, Row, Snapshot, Store, decided, row_id, row_of

SUCCEEDED = ev.Succeeded("1")
FAILED = ev.Failed("boom")
POISONED = ev.Failed("no use", permanent=True)
SKIPPED = ev.Skipped()
STOPPED = ev.Stopped("asked")
RELEASED = ev.Released("shutdown")
SHUT_DOWN = ev.Lost(Loss.SHUTDOWN)
OWNER_DEAD = ev.Lost(Loss.OWNER_DEAD)
LEASE_EXPIRED = ev.Lost(Loss.LEASE_EXPIRED)
CANCEL = ev.CancelRequested()

OF_A_RUN = (SUCCEEDED, FAILED, POISONED, SKIPPED, STOPPED, SHUT_DOWN, OWNER_DEAD, LEASE_EXPIRED)
OF_A_WAIT = {
    State.QUEUED: (CANCEL, ev.Misfired()),
    State.RETRY_WAIT: (CANCEL, ev.FellDue(), ev.GivenUp("enough")),
}
COUNTED = (RunStatus.FAILED, RunStatus.LOST)


class Broken(Exception):  # noqa: N818 - it is raised by the check, not by the code under test
    """An invariant does not hold."""


def claim(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def check_line(line: Line, store: Store) -> None:
    """Everything that can be seen by looking at one job and its successors."""
    counted = 0
    for row in line.rows:
        counted += sum(status in COUNTED for _, status in row.runs)
        _check_place(row)
        _check_runs(row)
        _check_cancel(row)
        claim(row.failures == counted, "failures are the failed and the lost runs")
        claim(counted <= MAX_ATTEMPTS, "no more attempts than allowed")
    _check_delivery(line)
    _check_stale_writes(line, store)


def check_step(what: str, before: Line, after: Line) -> None:
    """What a step may never do to a job, whatever its state."""
    for old, new in zip(before.rows, after.rows, strict=False):
        claim(new.token >= old.token, "a token only rises")
        claim(new.runs[: len(old.runs)] == old.runs, "a closed run never changes")
        claim(not old.ends or new == old, "an ended job never changes")
        claim(new.failures >= old.failures, "a failure is never forgotten")
    claim(before.rows == after.rows[: len(before.rows)] or len(after.rows) <= 3, "")
    was = before.tip.open
    if what == "reclaim" and before.rows != after.rows:
        claim(was is not None and was.lapsed, "a lease that was renewed is never reclaimed")


def check_workers(workers: list[Worker]) -> None:
    """No two of them ever hold one lease."""
    for one, other in combinations(workers, 2):
        shared = {held.ticket for held in one.held if held.snapshot} & {held.ticket for held in other.held}
        claim(not shared, "two workers took one job under one token")


def check_write(before: Line, change: Change, after: Line) -> None:
    row = before.rows[row_of(change.job_id)]
    needs_run = change.move.guard in {Guard.OPEN, Guard.LAPSED}
    is_stale = change.token != row.token or (needs_run and row.open is None)
    claim(not is_stale or after == before, "a write with a stale token changed something")


def _check_place(row: Row) -> None:
    places = (row.waiting is not None) + (row.open is not None) + bool(row.ends)
    claim(places == 1, "a job is in exactly one place")
    claim(len(row.ends) <= 1, "a job has at most one terminal record")


def _check_runs(row: Row) -> None:
    tokens = [token for token, _ in row.runs] + ([row.open.token] if row.open else [])
    claim(tokens == list(range(1, row.token + 1)), "each token opens one run, closed once")
    wins = [token for token, status in row.runs if status is RunStatus.SUCCEEDED]
    claim(len(wins) <= 1, "a job succeeds at most once")
    claim([row.result] == (wins or [None]), "a result is written once, by the run that succeeded")
    claim(bool(wins) == (row.ends == (State.SUCCEEDED,)), "a success ends the job, and only that")
    lost = sum(status is RunStatus.LOST for _, status in row.runs)
    claim(row.losses >= lost, "losses are counted")


def _check_cancel(row: Row) -> None:
    if row.asked is not None:
        claim(row.token == row.asked, "a job asked to stop gets no other run")
        claim(row.open is not None or bool(row.ends), "a job asked to stop ends with its run")


def _check_delivery(line: Line) -> None:
    if line.delivery is not Delivery.CHAIN:
        claim(len(line.rows) == 1, "only a chain has successors")
    if line.delivery is not Delivery.LEASE:
        claim(all(row.token <= 1 for row in line.rows), "a chain or once job runs at most once")
    if line.delivery is Delivery.CHAIN:
        for row, follower in zip(line.rows, (*line.rows[1:], None), strict=True):
            claim((follower is not None) == _is_owed_a_successor(row), "a successor when owed one")


def _is_owed_a_successor(row: Row) -> bool:
    failed = any(status in COUNTED for _, status in row.runs)
    return failed and row.failures < MAX_ATTEMPTS and row.asked is None


def _check_stale_writes(line: Line, store: Store) -> None:
    for index, row in enumerate(line.rows):
        for token, _ in row.runs:
            for event in (*OF_A_RUN, *([RELEASED] if line.delivery is Delivery.LEASE else [])):
                _check_stale_write(line, store, index, State.RUNNING, token, event)
        for token in range(row.token):
            for state, events in OF_A_WAIT.items():
                for event in events:
                    _check_stale_write(line, store, index, state, token, event)


def _check_stale_write(
    line: Line, store: Store, index: int, state: State, token: int, event: Event
) -> None:
    row = line.rows[index]
    former = Snapshot(row_id(index), state, line.delivery, token, row.failures, row.losses)
    change = decided(former, event)
    check_write(line, change, store.apply(line, change))
