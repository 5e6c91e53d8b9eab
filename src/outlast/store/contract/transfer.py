"""Contract of a transfer: the transfer status, and every row of a store, page by page."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from outlast.clock import from_micros, to_micros
from outlast.core.transfer_status import (
    MAX_ADDRESS,
    OPEN,
    StatusChange,
    TransferStage,
    TransferStatus,
    allowed_while_sealed,
    closed_error,
    next_status,
    refuse_load,
)

__all__ = [
    "COLUMNS",
    "FIRST",
    "MAX_ADDRESS",
    "OPEN",
    "Row",
    "StatusChange",
    "TableKind",
    "TransferStage",
    "TransferStatus",
    "Transfers",
    "allowed_while_sealed",
    "closed_error",
    "from_row",
    "key_of",
    "named",
    "next_status",
    "plain",
    "refuse_load",
    "to_row",
]

Row = Sequence[Any]
"""Values that JSON can hold, in the order of `COLUMNS`; times are UTC microseconds since 1970."""


class TableKind(StrEnum):
    """Tables of a store, in an order in which their rows can be loaded."""

    QUEUES = "queues"
    GROUPS = "groups"
    KEYS = "keys"
    SLOTS = "slots"
    SCHEDULES = "schedules"
    DOCUMENTS = "documents"
    JOBS = "jobs"  # each with its state row
    RUNS = "runs"
    EVENTS = "events"
    RESERVATIONS = "reservations"
    COUNTERS = "counters"  # the highest number given out, so that none is used twice


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
        "available_at", "token", "failures", "losses", "active_key", "metadata",
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
"""A key below every key of the table. Its length is the number of key columns, the first ones."""


def key_of(kind: TableKind, row: Row) -> tuple[Any, ...]:
    """Return the key of a row: unique in its table, and its position in the order of dumps."""
    return tuple(row[: len(FIRST[kind])])


def named(kind: TableKind, row: Row) -> dict[str, Any]:
    """Return the row as a mapping from column name to value."""
    return dict(zip(COLUMNS[kind], row, strict=True))


def plain(kind: TableKind, row: Row) -> Row:
    """Convert a row of an SQL store: flags to booleans, artifacts from JSON text to a list."""
    shown = list(row)
    for name in _BOOLEANS & set(COLUMNS[kind]):
        place = COLUMNS[kind].index(name)
        shown[place] = bool(shown[place])
    if kind is TableKind.RUNS:
        shown[_ARTIFACTS] = json.loads(shown[_ARTIFACTS])
    return shown


_BOOLEANS: Final = frozenset({"enabled", "swept"})
_ARTIFACTS: Final = COLUMNS[TableKind.RUNS].index("artifacts")


def to_row(status: TransferStatus) -> dict[str, Any]:
    """Return the statement parameters for a status."""
    return {
        "stage": str(status.stage),
        "other": status.other,
        "transfer_id": status.transfer_id,
        "until": _micros(status.until),
        "grace": _micros(status.grace),
    }


def from_row(row: Row | None) -> TransferStatus:
    """Return the status of a stored row; open if there is none."""
    if row is None:
        return OPEN
    stage, other, transfer_id, until, grace = row
    return TransferStatus(
        stage=TransferStage(stage),
        other=other,
        transfer_id=transfer_id,
        until=_time(until),
        grace=_time(grace),
    )


def _micros(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


class Transfers(Protocol):
    """Operations of a store that `outlast db copy` uses."""

    async def transfer_status(self) -> TransferStatus:
        """Return the present status; an expired seal is open."""
        ...

    async def change_transfer_status(self, step: StatusChange) -> bool:
        """Change the status if `next_status` allows it; return False if it does not.

        One compare-and-swap: of concurrent changes each sees the result of the one before. When
        it returns, every write that the new status forbids is committed or will be refused.
        """
        ...

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        """Return the next rows of a table in key order, after that key, from one snapshot.

        Running jobs and open runs are left out. With `ended_only`, only ended jobs are returned.
        """
        ...

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        """Write these rows as they are and delete the rows with the keys of `gone`.

        Only while the store is being filled. One atomic, idempotent write. Rows of a missing job,
        predecessor or group are skipped. A counter is never lowered.
        """
        ...
