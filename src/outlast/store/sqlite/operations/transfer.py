"""Transfer: the transfer status, dumping rows by key, loading rows of another store."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from outlast.clock import from_micros
from outlast.store.contract.transfer import (
    COLUMNS,
    FIRST,
    Row,
    StatusChange,
    TableKind,
    TransferStage,
    TransferStatus,
    from_row,
    named,
    next_status,
    plain,
    refuse_load,
    to_row,
)
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.base import SqliteOperations
from outlast.store.sqlite.writer import WriteTransaction

_READS: Final[Mapping[TableKind, str]] = {
    TableKind.QUEUES: "transfer.queues",
    TableKind.GROUPS: "transfer.groups",
    TableKind.KEYS: "transfer.keys",
    TableKind.SLOTS: "transfer.slots",
    TableKind.SCHEDULES: "transfer.schedules",
    TableKind.DOCUMENTS: "transfer.documents",
    TableKind.JOBS: "transfer.jobs",
    TableKind.RUNS: "transfer.runs",
    TableKind.LOGS: "transfer.logs",
    TableKind.EVENTS: "transfer.events",
    TableKind.RESERVATIONS: "transfer.reservations",
    TableKind.COUNTERS: "transfer.counters",
}

Page = tuple[TableKind, Sequence[Row], Sequence[Row]]


class SqliteTransferOperations(SqliteOperations):
    """What `outlast db copy` reads and writes."""

    async def transfer_status(self) -> TransferStatus:
        """Return the transfer status as of now."""
        found = await self._reader.rows("transfer_status.get")
        return from_row(found[0] if found else None).at(self._clock.now())

    async def change_transfer_status(self, step: StatusChange) -> bool:
        """Change the status if the present one allows it; the writer ends all earlier writes."""
        changed: bool = (await self._writer.submit(change_transfer_status, [step]))[0]
        return changed

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        """Return the next rows of a kind by key."""
        key = FIRST[kind] if after is None else after
        values: dict[str, Any] = dict(zip(COLUMNS[kind], key, strict=False))
        if kind is TableKind.JOBS:
            values["ended_only"] = ended_only
        found = await self._reader.rows(_READS[kind], limit=limit, **values)
        return [plain(kind, row) for row in found]

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        """Delete the rows with the keys of `gone` and write `rows`, in one transaction."""
        if rows or gone:
            await self._writer.submit(load, [(kind, rows, gone)])


def change_transfer_status(tx: WriteTransaction, changes: Sequence[StatusChange]) -> list[bool]:
    """Make each status change that the status at its turn allows."""
    return [_change_status_once(tx, change) for change in changes]


def load(tx: WriteTransaction, pages: Sequence[Page]) -> list[None]:
    """Write pages of rows; raises StoreSealed unless the store is being filled."""
    status = from_row(tx.run("transfer_status.get").fetchone()).at(from_micros(tx.now))
    if status.stage is not TransferStage.FILLING:
        raise refuse_load(status)
    for kind, rows, gone in pages:
        for key in gone:
            _delete_row(tx, kind, dict(zip(COLUMNS[kind], key, strict=False)))
        for row in rows:
            _write_row(tx, kind, _row_params(tx, kind, row))
    return [None] * len(pages)


def _change_status_once(tx: WriteTransaction, change: StatusChange) -> bool:
    present = from_row(tx.run("transfer_status.get").fetchone())
    status = next_status(present, change, from_micros(tx.now))
    if status is None:
        return False
    if status.stage is TransferStage.OPEN:
        tx.run("transfer_status.clear")
        tx.notify_queues.add("")  # every queue accepts claims again
    else:
        tx.run("transfer_status.set", **to_row(status))
    return True


def _row_params(tx: WriteTransaction, kind: TableKind, row: Row) -> dict[str, Any]:
    values = named(kind, row) | {"now": tx.now, "mono": tx.mono}
    if kind is TableKind.RUNS:
        values["artifacts"] = to_json_param(values["artifacts"])
    return values


def _write_row(tx: WriteTransaction, kind: TableKind, values: Mapping[str, Any]) -> None:
    """Write one row in the steps that the store itself takes, so that every trigger agrees."""
    statements = {
        TableKind.QUEUES: ("transfer.put_queues",),
        TableKind.GROUPS: ("transfer.put_groups",),
        TableKind.KEYS: ("transfer.put_keys",),
        TableKind.SLOTS: ("transfer.claim_slots", "transfer.put_slots", "transfer.mark_slots"),
        TableKind.SCHEDULES: ("transfer.clear_schedules", "transfer.put_schedules"),
        TableKind.DOCUMENTS: ("transfer.drop_documents", "transfer.put_documents"),
        TableKind.JOBS: (
            "transfer.edit_jobs", "transfer.put_jobs", "transfer.leave_waiting",
            "transfer.wait_jobs", "transfer.change_ends", "transfer.end_jobs",
        ),
        TableKind.RUNS: ("transfer.run_workers", "transfer.update_runs", "transfer.put_runs"),
        TableKind.LOGS: ("transfer.put_logs",),
        TableKind.EVENTS: ("transfer.put_events",),
        TableKind.RESERVATIONS: ("transfer.put_reservations",),
        TableKind.COUNTERS: ("transfer.raise_counters", "transfer.put_counters"),
    }  # fmt: skip
    for name in statements[kind]:
        tx.run(name, **values)


def _delete_row(tx: WriteTransaction, kind: TableKind, key: Mapping[str, Any]) -> None:
    """Delete one row; slots stay for ever, runs go with their jobs, counters only rise."""
    if kind is TableKind.JOBS:
        for (seq,) in tx.run("transfer.chain_of", **key).fetchall():
            tx.run("transfer.leave_waiting", seq=seq)
            tx.run("transfer.end_deleted", seq=seq)
    statements = {
        TableKind.QUEUES: "transfer.drop_queues",
        TableKind.GROUPS: "transfer.drop_groups",
        TableKind.KEYS: "transfer.drop_keys",
        TableKind.SCHEDULES: "transfer.drop_schedules",
        TableKind.DOCUMENTS: "transfer.drop_documents",
        TableKind.JOBS: "transfer.drop_jobs",
        TableKind.EVENTS: "transfer.drop_events",
        TableKind.RESERVATIONS: "transfer.drop_reservations",
    }
    if kind in statements:
        tx.run(statements[kind], **key)
