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
    footing = from_row(work.run("footing.get").fetchone()).at(from_micros(work.now))
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
        TableKind.QUEUES: ("copy.put_queues",),
        TableKind.GROUPS: ("copy.put_groups",),
        TableKind.KEYS: ("copy.put_keys",),
        TableKind.SLOTS: ("copy.claim_slots", "copy.put_slots", "copy.mark_slots"),
        TableKind.SCHEDULES: ("copy.clear_schedules", "copy.put_schedules"),
        TableKind.RECORDS: ("copy.drop_records", "copy.put_records"),
        TableKind.JOBS: (
            "copy.edit_jobs", "copy.put_jobs", "copy.leave_jobs", "copy.wait_jobs",
            "copy.bury_jobs", "copy.end_jobs",
        ),
        TableKind.RUNS: ("copy.run_workers", "copy.grow_runs", "copy.put_runs"),
        TableKind.EVENTS: ("copy.put_events",),
        TableKind.RESERVATIONS: ("copy.put_reservations",),
        TableKind.COUNTERS: ("copy.raise_counters", "copy.put_counters"),
    }  # fmt: skip
    for step in steps[kind]:
        work.run(step, **values)


def _drop(work: WriteTransaction, kind: TableKind, key: Mapping[str, Any]) -> None:
    """Slots are kept for ever, runs go with their jobs, and counters only rise."""
    if kind is TableKind.JOBS:
        for (seq,) in work.run("copy.gone_jobs", **key).fetchall():
            work.run("copy.leave_jobs", seq=seq)
            work.run("copy.lay_jobs", seq=seq)
    steps = {
        TableKind.QUEUES: "copy.drop_queues",
        TableKind.GROUPS: "copy.drop_groups",
        TableKind.KEYS: "copy.drop_keys",
        TableKind.SCHEDULES: "copy.drop_schedules",
        TableKind.RECORDS: "copy.drop_records",
        TableKind.JOBS: "copy.drop_jobs",
        TableKind.EVENTS: "copy.drop_events",
        TableKind.RESERVATIONS: "copy.drop_reservations",
    }
    if kind in steps:
        work.run(steps[kind], **key)
