"""The contract of a move: how a store stands towards work, and everything it holds, page by page.

A store that says nothing of itself is open. Any other footing refuses whatever somebody wants of
it: `add`, `claim`, `fire`, and every verb that changes what waits or is set, with `StoreSealed`, or
with `StoreMoved` where it is for good. What runs goes on: ends of runs, leases, progress, the list
of workers. A seal is over by itself when its time has passed and nobody has renewed it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from outlast.clock import from_micros, to_micros
from outlast.core.decide import SUCCESS, Change, Guard
from outlast.core.event import EventKind as Told
from outlast.errors import OperatorError, StoreMoved, StoreSealed

MAX_ADDRESS: Final = 2048
"""How long, in characters, the address of the other store may be."""

Row = Sequence[Any]
"""What JSON can hold, in the order of `COLUMNS`; moments are microseconds since 1970 (UTC)."""


class TransferStage(StrEnum):
    """How far a store is in a move."""

    OPEN = "open"  # it takes work; there is no move, or it is over
    FILLING = "filling"  # everything of another store is written into it
    SEALED = "sealed"  # the rest of it is copied elsewhere
    READY = "ready"  # it holds everything, and takes work when the other one does so no more
    MOVED = "moved"  # another store has taken its place, for good


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferStatus:
    """Where a store is in which move. `other` has no password; `by` names the move itself.

    `until` is when a seal is over by itself; from `grace` on workers hand back what still runs.
    """

    stage: TransferStage = TransferStage.OPEN
    other: str = ""
    transfer_id: str = ""
    until: datetime | None = None
    grace: datetime | None = None

    def at(self, now: datetime) -> "TransferStatus":
        """The same at that moment: a seal whose time has passed is none."""
        is_over = self.until is not None and self.until <= now
        return OPEN if is_over else self


OPEN: Final = TransferStatus()


class TableKind(StrEnum):
    """What a store holds, in the order in which it can be stored anew."""

    QUEUES = "queues"
    GROUPS = "groups"
    KEYS = "keys"
    SLOTS = "slots"
    SCHEDULES = "schedules"
    DOCUMENTS = "documents"
    JOBS = "jobs"  # with their place or their end
    RUNS = "runs"
    EVENTS = "events"
    RESERVATIONS = "reservations"
    COUNTERS = "counters"  # the last numbers given, so that none is given twice


COLUMNS: Final[Mapping[TableKind, tuple[str, ...]]] = {
    TableKind.QUEUES: (
        "name", "ordering", "gap", "concurrency", "paused_at", "pause_reason", "resume_at",
    ),
    TableKind.GROUPS: (
        "seq", "id", "name", "mode", "on_failure", "total", "created_at", "sealed_at", "closing",
        "reason", "swept",
    ),
    TableKind.KEYS: ("scope", "key", "bucket", "job_id"),
    TableKind.SLOTS: (
        "series", "slot_at", "outcome", "planned", "actual", "schedule_id", "job_id", "reason",
    ),
    TableKind.SCHEDULES: (
        "id", "name", "plan", "version", "enabled", "created_at", "updated_at", "next_slot",
        "next_trigger_at", "last_triggered_at",
    ),
    TableKind.DOCUMENTS: ("kind", "key", "value", "version", "created_at", "updated_at"),
    TableKind.JOBS: (
        "seq", "id", "type", "name", "queue", "delivery", "params", "max_attempts", "created_at",
        "slot_at", "start_deadline", "retry_of", "root_id", "group_id", "member_of", "template_id",
        "template_at", "schedule_id", "state", "reason", "finished_at", "priority", "position",
        "available_at", "token", "failures", "losses",
    ),
    TableKind.RUNS: (
        "seq", "token", "job_id", "run_id", "status", "reason", "holder", "boot_id", "started_at",
        "finished_at", "error", "result", "exit_code", "log_path", "artifacts", "progress",
    ),
    TableKind.EVENTS: (
        "id", "job_id", "queue", "at", "kind", "token", "run_id", "reason", "detail",
    ),
    TableKind.RESERVATIONS: (
        "seq", "id", "queue", "job_id", "caller", "request", "status", "reason", "reserved_at",
        "expires_at", "span", "ended_at",
    ),
    TableKind.COUNTERS: ("name", "last"),
}  # fmt: skip

FIRST: Final[Mapping[TableKind, tuple[Any, ...]]] = {
    TableKind.QUEUES: ("",),
    TableKind.GROUPS: (0,),
    TableKind.KEYS: ("", "", ""),
    TableKind.SLOTS: ("", -(2**62)),
    TableKind.SCHEDULES: ("",),
    TableKind.DOCUMENTS: ("", ""),
    TableKind.JOBS: (0,),
    TableKind.RUNS: (0, 0),
    TableKind.EVENTS: (0,),
    TableKind.RESERVATIONS: (0,),
    TableKind.COUNTERS: ("",),
}
"""Before the first key of each kind. A key is as many of the first columns."""


def key_of(kind: TableKind, row: Row) -> tuple[Any, ...]:
    """What tells a row from all others of its kind, and where it stands in their order."""
    return tuple(row[: len(FIRST[kind])])


def named(kind: TableKind, row: Row) -> dict[str, Any]:
    """The row by the names of its columns."""
    return dict(zip(COLUMNS[kind], row, strict=True))


def plain(kind: TableKind, row: Row) -> Row:
    """A row of an SQL store as every store shows it: booleans, and artifacts as a list."""
    shown = list(row)
    for name in _BOOLEANS & set(COLUMNS[kind]):
        place = COLUMNS[kind].index(name)
        shown[place] = bool(shown[place])
    if kind is TableKind.RUNS:
        shown[_ARTIFACTS] = json.loads(shown[_ARTIFACTS])
    return shown


_BOOLEANS: Final = frozenset({"enabled", "swept"})
_ARTIFACTS: Final = COLUMNS[TableKind.RUNS].index("artifacts")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """A wish to be at another stage; spans are from now on.

    A seal that begins has a `grace`. One that is renewed has none: if it was over meanwhile,
    somebody may have begun something since, and it is not to be had again by the way.
    """

    stage: TransferStage
    other: str
    transfer_id: str
    span: timedelta | None = None
    grace: timedelta | None = None


def next_status(
    present: TransferStatus, step: StatusChange, now: datetime
) -> TransferStatus | None:
    """Where the step leads; None if the present footing does not allow it.

    Filled is what is open, or what the same store fills already; sealed what is open, or sealed for
    the same store already: the move that began it is over with that. Every other step belongs to
    the move that is under way.
    """
    there = present.at(now)
    is_same = (there.other, there.transfer_id) == (step.other, step.transfer_id)
    match step.stage:
        case TransferStage.FILLING:
            is_resumed = (
                there.stage in (TransferStage.FILLING, TransferStage.READY)
                and there.other == step.other
            )
            allowed = there.stage is TransferStage.OPEN or is_resumed
        case TransferStage.SEALED:
            is_mine = there.stage is TransferStage.SEALED and is_same
            allowed = is_mine if step.grace is None else _may_be_sealed(there, step)
        case TransferStage.READY:
            allowed = there.stage is TransferStage.FILLING and is_same
        case TransferStage.MOVED:
            allowed = there.stage is TransferStage.SEALED and is_same
        case TransferStage.OPEN:
            allowed = there.stage is not TransferStage.MOVED and is_same
    return _led(there, step, now) if allowed else None


def _may_be_sealed(there: TransferStatus, step: StatusChange) -> bool:
    is_resumed = there.stage is TransferStage.SEALED and there.other == step.other
    return there.stage is TransferStage.OPEN or is_resumed


def _led(there: TransferStatus, step: StatusChange, now: datetime) -> TransferStatus:
    if step.stage is TransferStage.OPEN:
        return OPEN
    if step.stage is not TransferStage.SEALED:
        return TransferStatus(stage=step.stage, other=step.other, transfer_id=step.transfer_id)
    assert step.span is not None, "a seal has an end"
    grace = there.grace if step.grace is None else now + step.grace
    return TransferStatus(
        stage=TransferStage.SEALED,
        other=step.other,
        transfer_id=step.transfer_id,
        until=now + step.span,
        grace=grace,
    )


def closed_error(footing: TransferStatus) -> OperatorError:
    """What whoever wants something of a store that is not open is told."""
    if footing.stage is TransferStage.MOVED:
        return StoreMoved(
            f"this store was moved to {footing.other}, for good; use that address instead. "
            "Nothing was written",
            to=footing.other,
        )
    words = {
        TransferStage.SEALED: f"is being moved to {footing.other}; wait until that is over",
        TransferStage.FILLING: f"is being filled from {footing.other}; wait until that is over, or begin "
        f"it again: outlast db copy --from {footing.other} --to this one",
        TransferStage.READY: f"holds all of {footing.other} and waits to take its place; finish that: "
        f"outlast db copy --from {footing.other} --to this one",
    }
    return StoreSealed(f"this store {words[footing.stage]}. Nothing was written")


def refuse_load(footing: TransferStatus) -> OperatorError:
    """Only a store that is filled takes rows as they are."""
    return StoreSealed(f"this store is {footing.stage}, not filling; it takes no rows as they are")


def allowed_while_sealed(change: Change) -> bool:
    """Whether a change closes a run, which is written also where nothing new is begun."""
    if change.move is SUCCESS:
        return True  # the routine: nothing more is looked at
    is_of_a_run = change.move.guard in (Guard.OPEN, Guard.LAPSED)
    return is_of_a_run and change.move.kind is not Told.CANCEL_REQUESTED


def to_row(footing: TransferStatus) -> dict[str, Any]:
    """What the stores bind."""
    return {
        "stage": str(footing.stage),
        "other": footing.other,
        "transfer_id": footing.transfer_id,
        "until": _number(footing.until),
        "grace": _number(footing.grace),
    }


def from_row(row: Row | None) -> TransferStatus:
    """What was stored; open if nothing was."""
    if row is None:
        return OPEN
    stage, other, by, until, grace = row
    return TransferStatus(
        stage=TransferStage(stage),
        other=other,
        transfer_id=by,
        until=_moment(until),
        grace=_moment(grace),
    )


def _number(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def _moment(number: int | None) -> datetime | None:
    return None if number is None else from_micros(number)


class Transfers(Protocol):
    """What `outlast db copy` needs of the two stores."""

    async def transfer_status(self) -> TransferStatus:
        """How it stands now; a seal whose time has passed is none."""
        ...

    async def change_transfer_status(self, step: StatusChange) -> bool:
        """Take the step, if the present footing allows it (see `after`); False if it does not.

        One write that is compared: of many at once one leads on from where the other led. When it
        answers, whatever was begun before it and it forbids is written, or never will be.
        """
        ...

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        """The next rows of a kind by their keys, after that one; `ended_only`: of jobs those alone.

        Jobs that run are left out, and so are open runs. A page is one moment.
        """
        ...

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        """Have these rows exactly so, and none with the keys of `gone`. Only while it is filled.

        One write, and harmless to repeat. Left out, without a word, is what belongs to a job, a
        predecessor or a group that is not there. A counter only rises.
        """
        ...
