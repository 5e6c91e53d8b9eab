"""The store of the protocol search: one job and its successors, as small as the tables allow.

Every destination comes from the real `decide`. What is modelled is how a store claims, renews and
applies: `Store` keeps the contract, and each seeded bug of the tests overrides one of its methods.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple, assert_never

from outlast.core.decide import Change, Guard, decide
from outlast.core.delivery import Delivery
from outlast.core.event import Event
from outlast.core.ids import JobId
from outlast.core.state import WAITING, RunStatus, State

MAX_ATTEMPTS: Final = 2


class Open(NamedTuple):
    """The open run of a job, which is its lease: fresh or expired."""

    token: int
    expired: bool = False
    marked: bool = False  # a cancel was requested


class Row(NamedTuple):
    """One job in the three state tables; only the store keeps it in exactly one."""

    waiting: State | None = State.QUEUED
    open: Open | None = None
    ends: tuple[State, ...] = ()
    token: int = 0
    failures: int = 0
    losses: int = 0
    runs: tuple[tuple[int, RunStatus], ...] = ()  # the ended ones, each with its token
    result: int | None = None  # the token that wrote it
    asked: int | None = None  # not stored: the token under which its run was asked to stop
    is_permanent: bool = False  # not stored: its last error was permanent

    @property
    def state(self) -> State:
        if self.open is not None:
            return State.RUNNING
        return self.waiting or self.ends[-1]


class Line(NamedTuple):
    """A job and its successors; the last one is the tip."""

    delivery: Delivery
    rows: tuple[Row, ...] = (Row(),)
    cancels: int = 0  # cancel requests still to come

    @property
    def tip(self) -> Row:
        return self.rows[-1]

    @property
    def run(self) -> tuple[int, int] | None:
        """Which run is open: the job and the token; None if there is none."""
        return None if self.tip.open is None else (len(self.rows), self.tip.open.token)

    def with_tip(self, row: Row) -> "Line":
        return self._replace(rows=(*self.rows[:-1], row))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job as it was read, for a decision."""

    id: JobId
    state: State
    delivery: Delivery
    token: int
    failures: int
    losses: int
    max_attempts: int | None = MAX_ATTEMPTS


def snapshot(line: Line) -> Snapshot:
    """Return the present tip."""
    row, job_id = line.tip, JobId(str(len(line.rows) - 1))
    return Snapshot(job_id, row.state, line.delivery, row.token, row.failures, row.losses)


@cache
def decided(seen: Snapshot, event: Event) -> Change:
    return decide(seen, event, new_id=lambda: JobId(str(int(seen.id) + 1)))


class Store:
    """The store contract, applied to one line."""

    reads_before_claim = False  # a seeded bug: read the job, then claim it without comparing

    def claim(self, row: Row) -> Row:
        token = row.token + 1
        return row._replace(waiting=None, open=Open(token), token=token)

    def renew(self, row: Row, token: int) -> Row:
        if row.open is None or row.token != token:
            return row
        return row._replace(open=row.open._replace(expired=False))

    def apply(self, line: Line, change: Change) -> Line:
        """The line after the change; the same line if the change was refused."""
        index = int(change.job_id)
        row = line.rows[index]
        if not (self.is_current(row, change) and self.guard_holds(row, change)):
            return line
        written = self.write(row, change)
        rows = (*line.rows[:index], written, *line.rows[index + 1 :])
        if change.successor is not None and not self.yields(row, change):
            rows += (Row(failures=written.failures, losses=written.losses),)
        return line._replace(rows=rows)

    def is_current(self, row: Row, change: Change) -> bool:
        return row.token == change.token

    def guard_holds(self, row: Row, change: Change) -> bool:
        match change.move.guard:
            case Guard.OPEN:
                return row.open is not None
            case Guard.LAPSED:
                return row.open is not None and row.open.expired
            case Guard.WAITING:
                return row.waiting is not None
            case Guard.STATE:
                return row.open is None and row.state is change.was
            case Guard.DETACHED:
                return row.open is None and row.waiting is None and not row.ends
        assert_never(change.move.guard)

    def yields(self, row: Row, change: Change) -> bool:
        return change.move.yields_to_cancel and row.open is not None and row.open.marked

    def write(self, row: Row, change: Change) -> Row:
        to = State.CANCELLED if self.yields(row, change) else change.move.to
        if to is State.RUNNING:
            assert row.open is not None
            return row._replace(open=row.open._replace(marked=True), asked=row.token)
        return self.put(self.close(row, change), to)

    def close(self, row: Row, change: Change) -> Row:
        status = change.move.run
        if status is None:
            return row
        return row._replace(
            open=None,
            runs=(*row.runs, (change.token, status)),
            failures=row.failures if change.failures is None else change.failures,
            losses=row.losses if change.losses is None else change.losses,
            result=change.token if status is RunStatus.SUCCEEDED else row.result,
            is_permanent=change.reason == "permanent",
        )

    def put(self, row: Row, to: State) -> Row:
        if to in WAITING:
            return row._replace(waiting=to)
        return row._replace(waiting=None, ends=(*row.ends, to))
