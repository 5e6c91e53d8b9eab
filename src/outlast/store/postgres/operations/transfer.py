"""Transfer of the store: status, dump and load of rows."""

from collections.abc import Mapping, Sequence
from functools import partial
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
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.rows.jobs import to_json_param

SEAL_LOCK_TIMEOUT_MS: Final = 1000
"""Milliseconds that a seal waits for open transactions; new ones wait behind it meanwhile."""

DUMPS: Final[Mapping[TableKind, str]] = {
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
"""The statement that reads a page of each kind."""

LOADS: Final[Mapping[TableKind, Sequence[str]]] = {
    TableKind.QUEUES: ("transfer.put_queues",),
    TableKind.GROUPS: ("transfer.put_groups",),
    TableKind.KEYS: ("transfer.put_keys",),
    TableKind.SLOTS: ("transfer.claim_slots", "transfer.put_slots", "transfer.mark_slots"),
    TableKind.SCHEDULES: ("transfer.delete_conflicting_schedules", "transfer.put_schedules"),
    TableKind.DOCUMENTS: ("transfer.put_documents",),
    TableKind.JOBS: (
        "transfer.update_params", "transfer.put_jobs", "transfer.delete_waiting",
        "transfer.put_waiting", "transfer.mark_dead_letters", "transfer.put_ends",
    ),
    TableKind.RUNS: ("transfer.put_workers", "transfer.update_runs", "transfer.put_runs"),
    TableKind.LOGS: ("transfer.put_logs",),
    TableKind.EVENTS: ("transfer.put_events",),
    TableKind.RESERVATIONS: ("transfer.put_reservations",),
    TableKind.COUNTERS: ("transfer.raise_counters",),
}  # fmt: skip
"""The statements that write rows of each kind, in order."""

DELETES: Final[Mapping[TableKind, str]] = {
    TableKind.QUEUES: "transfer.delete_queues",
    TableKind.GROUPS: "transfer.delete_groups",
    TableKind.KEYS: "transfer.delete_keys",
    TableKind.SCHEDULES: "transfer.delete_schedules",
    TableKind.DOCUMENTS: "transfer.delete_documents",
    TableKind.EVENTS: "transfer.delete_events",
    TableKind.RESERVATIONS: "transfer.delete_reservations",
}
"""The statement that deletes rows of each kind.

Slots are never deleted, runs are deleted with their jobs, and counters only rise.
"""


class PostgresTransferOperations(PostgresOperations):
    """The transfer status, and the rows of the store page by page."""

    async def transfer_status(self) -> TransferStatus:
        """Return the transfer status; an expired seal counts as open."""
        found = await self._pool.rows("transfer_status.get")
        if not found:
            return from_row(None)
        return from_row(tuple(found[0])).at(await self.now())

    async def change_transfer_status(self, step: StatusChange) -> bool:
        """Change the transfer status if the present one allows it; return whether it did."""
        operation = partial(_change_status, step=step, schema=self.address.schema)
        return await self._pool.transact(operation)

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        """Return the next rows of a kind, by key."""
        key = FIRST[kind] if after is None else after
        values: dict[str, Any] = dict(zip(COLUMNS[kind], key, strict=False))
        values |= {"ended_only": ended_only, "limit": limit}
        found = await self._pool.rows(DUMPS[kind], **values)
        return [plain(kind, tuple(row)) for row in found]

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        """Write rows of another store and delete the keys in `gone`, in one transaction."""
        if rows or gone or kind is TableKind.COUNTERS:  # counters also rise with stored rows
            await self._pool.transact(partial(_load, kind=kind, rows=rows, gone=gone))


async def _change_status(work: PostgresUnitOfWork, step: StatusChange, *, schema: str) -> bool:
    await work.rows("transfer_status.lock", name=schema)
    present = await _status(work)
    status = next_status(present, step, from_micros(work.now))
    if status is None:
        return False
    if status.stage is TransferStage.OPEN:
        await work.run("transfer_status.clear")
        work.queues.add("")  # any queue may have work again
    else:
        if present.at(from_micros(work.now)).stage is TransferStage.OPEN:
            await _lock_status_table(work)
        await work.run("transfer_status.set", **to_row(status))
    return True


async def _lock_status_table(work: PostgresUnitOfWork) -> None:
    """Wait for every transaction that found the store open, and keep others from starting."""
    await work.rows("transfer_status.set_lock_timeout", millis=str(SEAL_LOCK_TIMEOUT_MS))
    await work.run("transfer_status.lock_table")


async def _status(work: PostgresUnitOfWork) -> TransferStatus:
    return from_row(next(iter(await work.rows("transfer_status.get")), None))


async def _load(
    work: PostgresUnitOfWork, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row]
) -> None:
    status = (await _status(work)).at(from_micros(work.now))
    if status.stage is not TransferStage.FILLING:
        raise refuse_load(status)
    if gone:
        await _delete(work, kind, gone)
    if rows or kind is TableKind.COUNTERS:
        encoded = to_json_param([_values(kind, row) for row in rows])
        moments = {"now": work.now, "mono": work.mono}
        for statement in LOADS[kind]:
            await work.run(statement, rows=encoded, **moments)


def _values(kind: TableKind, row: Row) -> dict[str, Any]:
    values = named(kind, row)
    if kind is TableKind.RUNS:
        values["artifacts"] = to_json_param(values["artifacts"])
    return values


async def _delete(work: PostgresUnitOfWork, kind: TableKind, gone: Sequence[Row]) -> None:
    keys = to_json_param([dict(zip(COLUMNS[kind], key, strict=False)) for key in gone])
    if kind in DELETES:
        await work.run(DELETES[kind], rows=keys)
    elif kind is TableKind.JOBS:
        await work.run("transfer.delete_waiting", rows=keys)
        await work.run("transfer.end_deleted_jobs", rows=keys)
        jobs = [job for (job,) in await work.rows("transfer.delete_jobs", rows=keys)]
        for statement in (
            "maintenance.delete_runs",
            "maintenance.delete_ends",
            "maintenance.delete_events",
        ):
            await work.run(statement, jobs=jobs)
