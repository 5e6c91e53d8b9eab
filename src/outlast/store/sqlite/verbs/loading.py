"""Writing what another store dumped: row by row, in the steps that its store took itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from outlast.clock import moment
from outlast.store.contract.transfer import COLUMNS, Kind, Row, Stage, from_row, named, refuse_load
from outlast.store.rows.jobs import dumps
from outlast.store.sqlite.writer import Work

Page = tuple[Kind, Sequence[Row], Sequence[Row]]


def load(work: Work, pages: Sequence[Page]) -> list[None]:
    """Each page after what is gone; only while the store is filled."""
    footing = from_row(work.run("footing.get").fetchone()).at(moment(work.now))
    if footing.stage is not Stage.FILLING:
        raise refuse_load(footing)
    for kind, rows, gone in pages:
        for key in gone:
            _drop(work, kind, dict(zip(COLUMNS[kind], key, strict=False)))
        for row in rows:
            _put(work, kind, _values(work, kind, row))
    return [None] * len(pages)


def _values(work: Work, kind: Kind, row: Row) -> dict[str, Any]:
    values = named(kind, row) | {"now": work.now, "mono": work.mono}
    if kind is Kind.RUNS:
        values["artifacts"] = dumps(values["artifacts"])
    return values


def _put(work: Work, kind: Kind, values: Mapping[str, Any]) -> None:
    steps = {
        Kind.QUEUES: ("copy.put_queues",),
        Kind.GROUPS: ("copy.put_groups",),
        Kind.KEYS: ("copy.put_keys",),
        Kind.SLOTS: ("copy.claim_slots", "copy.put_slots", "copy.mark_slots"),
        Kind.SCHEDULES: ("copy.clear_schedules", "copy.put_schedules"),
        Kind.RECORDS: ("copy.drop_records", "copy.put_records"),
        Kind.JOBS: (
            "copy.edit_jobs", "copy.put_jobs", "copy.leave_jobs", "copy.wait_jobs",
            "copy.bury_jobs", "copy.end_jobs",
        ),
        Kind.RUNS: ("copy.run_workers", "copy.grow_runs", "copy.put_runs"),
        Kind.EVENTS: ("copy.put_events",),
        Kind.RESERVATIONS: ("copy.put_reservations",),
        Kind.COUNTERS: ("copy.raise_counters", "copy.put_counters"),
    }  # fmt: skip
    for step in steps[kind]:
        work.run(step, **values)


def _drop(work: Work, kind: Kind, key: Mapping[str, Any]) -> None:
    """Slots are kept for ever, runs go with their jobs, and counters only rise."""
    if kind is Kind.JOBS:
        for (seq,) in work.run("copy.gone_jobs", **key).fetchall():
            work.run("copy.leave_jobs", seq=seq)
            work.run("copy.lay_jobs", seq=seq)
    steps = {
        Kind.QUEUES: "copy.drop_queues",
        Kind.GROUPS: "copy.drop_groups",
        Kind.KEYS: "copy.drop_keys",
        Kind.SCHEDULES: "copy.drop_schedules",
        Kind.RECORDS: "copy.drop_records",
        Kind.JOBS: "copy.drop_jobs",
        Kind.EVENTS: "copy.drop_events",
        Kind.RESERVATIONS: "copy.drop_reservations",
    }
    if kind in steps:
        work.run(steps[kind], **key)
