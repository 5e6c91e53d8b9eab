"""Writing what another store dumped: row by row, in the steps that its store took itself."""

from collections.abc import Mapping, Sequence
from typing import Any

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
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.writer import WriteTransaction

Page = tuple[TableKind, Sequence[Row], Sequence[Row]]


def load(work: WriteTransaction, pages: Sequence[Page]) -> list[None]:
    """Each page after what is gone; only while the store is filled."""
    footing = from_row(work.run("transfer_status.get").fetchone()).at(from_micros(work.now))
    if footing.stage is not TransferStage.FILLING:
        raise refuse_load(footing)
    for kind, rows, gone in pages:
        for key in gone:
            _drop(work, kind, dict(zip(COLUMNS[kind], key, strict=False)))
        for row in rows:
            _put(work, kind, _values(work, kind, row))
    return [None] * len(pages)


def _values(work: WriteTransaction, kind: TableKind, row: Row) -> dict[str, Any]:
    values = named(kind, row) | {"now": work.now, "mono": work.mono}
    if kind is TableKind.RUNS:
        values["artifacts"] = to_json_param(values["artifacts"])
    return values


def _put(work: WriteTransaction, kind: TableKind, values: Mapping[str, Any]) -> None:
    steps = {
        TableKind.QUEUES: ("transfer.put_queues",),
        TableKind.GROUPS: ("transfer.put_groups",),
        TableKind.KEYS: ("transfer.put_keys",),
        TableKind.SLOTS: ("transfer.claim_slots", "transfer.put_slots", "transfer.mark_slots"),
        TableKind.SCHEDULES: ("transfer.clear_schedules", "transfer.put_schedules"),
        TableKind.DOCUMENTS: ("transfer.drop_documents", "transfer.put_documents"),
        TableKind.JOBS: (
            "transfer.edit_jobs", "transfer.put_jobs", "transfer.leave_jobs", "transfer.wait_jobs",
            "transfer.bury_jobs", "transfer.end_jobs",
        ),
        TableKind.RUNS: ("transfer.run_workers", "transfer.grow_runs", "transfer.put_runs"),
        TableKind.EVENTS: ("transfer.put_events",),
        TableKind.RESERVATIONS: ("transfer.put_reservations",),
        TableKind.COUNTERS: ("transfer.raise_counters", "transfer.put_counters"),
    }  # fmt: skip
    for step in steps[kind]:
        work.run(step, **values)


def _drop(work: WriteTransaction, kind: TableKind, key: Mapping[str, Any]) -> None:
    """Slots are kept for ever, runs go with their jobs, and counters only rise."""
    if kind is TableKind.JOBS:
        for (seq,) in work.run("transfer.gone_jobs", **key).fetchall():
            work.run("transfer.leave_jobs", seq=seq)
            work.run("transfer.lay_jobs", seq=seq)
    steps = {
        TableKind.QUEUES: "transfer.drop_queues",
        TableKind.GROUPS: "transfer.drop_groups",
        TableKind.KEYS: "transfer.drop_keys",
        TableKind.SCHEDULES: "transfer.drop_schedules",
        TableKind.DOCUMENTS: "transfer.drop_documents",
        TableKind.JOBS: "transfer.drop_jobs",
        TableKind.EVENTS: "transfer.drop_events",
        TableKind.RESERVATIONS: "transfer.drop_reservations",
    }
    if kind in steps:
        work.run(steps[kind], **key)
