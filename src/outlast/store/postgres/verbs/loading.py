"""Writing what another store dumped: page by page, in the steps that its store took itself."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from outlast.clock import from_micros
from outlast.store.contract.transfer import (
    COLUMNS,
    Row,
    TableKind,
    TransferStage,
    from_row,
    named,
    refuse_load,
)
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.rows.jobs import to_json_param

STEPS: Final[Mapping[TableKind, Sequence[str]]] = {
    TableKind.QUEUES: ("transfer.put_queues",),
    TableKind.GROUPS: ("transfer.put_groups",),
    TableKind.KEYS: ("transfer.put_keys",),
    TableKind.SLOTS: ("transfer.claim_slots", "transfer.put_slots", "transfer.mark_slots"),
    TableKind.SCHEDULES: ("transfer.delete_conflicting_schedules", "transfer.put_schedules"),
    TableKind.RECORDS: ("transfer.put_documents",),
    TableKind.JOBS: (
        "transfer.update_params", "transfer.put_jobs", "transfer.delete_waiting", "transfer.put_waiting",
        "transfer.mark_dead_letters", "transfer.put_ends",
    ),
    TableKind.RUNS: ("transfer.put_workers", "transfer.update_runs", "transfer.put_runs"),
    TableKind.EVENTS: ("transfer.put_events",),
    TableKind.RESERVATIONS: ("transfer.put_reservations",),
    TableKind.COUNTERS: ("transfer.raise_counters",),
}  # fmt: skip
"""The statements that write rows of each kind, in their order."""

DROPS: Final[Mapping[TableKind, str]] = {
    TableKind.QUEUES: "transfer.delete_queues",
    TableKind.GROUPS: "transfer.delete_groups",
    TableKind.KEYS: "transfer.delete_keys",
    TableKind.SCHEDULES: "transfer.delete_schedules",
    TableKind.RECORDS: "transfer.delete_documents",
    TableKind.EVENTS: "transfer.delete_events",
    TableKind.RESERVATIONS: "transfer.delete_reservations",
}
"""Slots are kept for ever, runs go with their jobs, and counters only rise."""


async def load(work: UnitOfWork, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row]) -> None:
    footing = from_row(next(iter(await work.rows("transfer_status.get")), None)).at(
        from_micros(work.now)
    )
    if footing.stage is not TransferStage.FILLING:
        raise refuse_load(footing)
    if gone:
        await _drop(work, kind, gone)
    if rows or kind is TableKind.COUNTERS:  # those of rows that are there count too
        encoded = to_json_param([_values(kind, row) for row in rows])
        moments = {"now": work.now, "mono": work.mono}
        for step in STEPS[kind]:
            await work.run(step, rows=encoded, **moments)


def _values(kind: TableKind, row: Row) -> dict[str, Any]:
    values = named(kind, row)
    if kind is TableKind.RUNS:
        values["artifacts"] = to_json_param(values["artifacts"])
    return values


async def _drop(work: UnitOfWork, kind: TableKind, gone: Sequence[Row]) -> None:
    keys = to_json_param([dict(zip(COLUMNS[kind], key, strict=False)) for key in gone])
    if kind in DROPS:
        await work.run(DROPS[kind], rows=keys)
    elif kind is TableKind.JOBS:
        await work.run("transfer.delete_waiting", rows=keys)
        await work.run("transfer.end_deleted_jobs", rows=keys)
        jobs = [job for (job,) in await work.rows("transfer.delete_jobs", rows=keys)]
        for part in (
            "maintenance.delete_runs",
            "maintenance.delete_ends",
            "maintenance.delete_events",
        ):
            await work.run(part, jobs=jobs)
