"""Writing what another store dumped: page by page, in the steps that its store took itself."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from outlast.clock import moment
from outlast.store.contract.transfer import COLUMNS, Kind, Row, Stage, from_row, named, refuse_load
from outlast.store.postgres.unit_of_work import Work
from outlast.store.rows.jobs import dumps

STEPS: Final[Mapping[Kind, Sequence[str]]] = {
    Kind.QUEUES: ("copy.put_queues",),
    Kind.GROUPS: ("copy.put_groups",),
    Kind.KEYS: ("copy.put_keys",),
    Kind.SLOTS: ("copy.claim_slots", "copy.put_slots", "copy.mark_slots"),
    Kind.SCHEDULES: ("copy.clear_schedules", "copy.put_schedules"),
    Kind.RECORDS: ("copy.put_records",),
    Kind.JOBS: (
        "copy.edit_jobs", "copy.put_jobs", "copy.leave_jobs", "copy.wait_jobs",
        "copy.bury_jobs", "copy.end_jobs",
    ),
    Kind.RUNS: ("copy.run_workers", "copy.grow_runs", "copy.put_runs"),
    Kind.EVENTS: ("copy.put_events",),
    Kind.RESERVATIONS: ("copy.put_reservations",),
    Kind.COUNTERS: ("copy.raise_counters",),
}  # fmt: skip
"""The statements that write rows of each kind, in their order."""

DROPS: Final[Mapping[Kind, str]] = {
    Kind.QUEUES: "copy.drop_queues",
    Kind.GROUPS: "copy.drop_groups",
    Kind.KEYS: "copy.drop_keys",
    Kind.SCHEDULES: "copy.drop_schedules",
    Kind.RECORDS: "copy.drop_records",
    Kind.EVENTS: "copy.drop_events",
    Kind.RESERVATIONS: "copy.drop_reservations",
}
"""Slots are kept for ever, runs go with their jobs, and counters only rise."""


async def load(work: Work, kind: Kind, rows: Sequence[Row], gone: Sequence[Row]) -> None:
    footing = from_row(next(iter(await work.rows("footing.get")), None)).at(moment(work.now))
    if footing.stage is not Stage.FILLING:
        raise refuse_load(footing)
    if gone:
        await _drop(work, kind, gone)
    if rows or kind is Kind.COUNTERS:  # those of rows that are there count too
        encoded = dumps([_values(kind, row) for row in rows])
        moments = {"now": work.now, "mono": work.mono}
        for step in STEPS[kind]:
            await work.run(step, rows=encoded, **moments)


def _values(kind: Kind, row: Row) -> dict[str, Any]:
    values = named(kind, row)
    if kind is Kind.RUNS:
        values["artifacts"] = dumps(values["artifacts"])
    return values


async def _drop(work: Work, kind: Kind, gone: Sequence[Row]) -> None:
    keys = dumps([dict(zip(COLUMNS[kind], key, strict=False)) for key in gone])
    if kind in DROPS:
        await work.run(DROPS[kind], rows=keys)
    elif kind is Kind.JOBS:
        await work.run("copy.leave_jobs", rows=keys)
        await work.run("copy.lay_jobs", rows=keys)
        jobs = [job for (job,) in await work.rows("copy.gone_jobs", rows=keys)]
        for part in ("prune.runs", "prune.ends", "prune.events"):
            await work.run(part, jobs=jobs)
