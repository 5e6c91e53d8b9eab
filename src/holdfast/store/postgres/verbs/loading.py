"""Writing what another store dumped: page by page, in the steps that its store took itself."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.clock import moment
from holdfast.store.moving import COLUMNS, Kind, Row, Stage, from_row, named, refuse_load
from holdfast.store.postgres.work import Work
from holdfast.store.rows import dumps

STEPS: Final[Mapping[Kind, Sequence[str]]] = {
    Kind.QUEUES: ("put_queues",),
    Kind.GROUPS: ("put_groups",),
    Kind.KEYS: ("put_keys",),
    Kind.SLOTS: ("claim_slots", "put_slots", "mark_slots"),
    Kind.SCHEDULES: ("clear_schedules", "put_schedules"),
    Kind.RECORDS: ("put_records",),
    Kind.JOBS: (
        "edit_jobs", "put_jobs", "leave_jobs", "wait_jobs", "bury_jobs", "end_jobs",
    ),
    Kind.RUNS: ("run_workers", "grow_runs", "put_runs"),
    Kind.EVENTS: ("put_events",),
    Kind.RESERVATIONS: ("put_reservations",),
    Kind.COUNTERS: ("raise_counters",),
}  # fmt: skip
"""The statements that write rows of each kind, in their order."""

KEPT: Final = frozenset({Kind.SLOTS, Kind.RUNS, Kind.COUNTERS})
"""Slots are kept for ever, runs go with their jobs, and counters only rise."""


async def load(work: Work, kind: Kind, rows: Sequence[Row], gone: Sequence[Row]) -> None:
    footing = from_row(next(iter(await work.rows("footing.get")), None)).at(moment(work.now))
    if footing.stage is not Stage.FILLING:
        raise refuse_load(footing)
    if gone and kind not in KEPT:
        await _drop(work, kind, gone)
    if rows:
        encoded = dumps([_values(kind, row) for row in rows])
        moments = {"now": work.now, "mono": work.mono}
        for step in STEPS[kind]:
            await work.run(f"copy.{step}", rows=encoded, **moments)


def _values(kind: Kind, row: Row) -> dict[str, Any]:
    values = named(kind, row)
    if kind is Kind.RUNS:
        values["artifacts"] = dumps(values["artifacts"])
    return values


async def _drop(work: Work, kind: Kind, gone: Sequence[Row]) -> None:
    keys = dumps([dict(zip(COLUMNS[kind], key, strict=False)) for key in gone])
    if kind is not Kind.JOBS:
        await work.run(f"copy.drop_{kind}", rows=keys)
        return
    await work.run("copy.leave_jobs", rows=keys)
    await work.run("copy.lay_jobs", rows=keys)
    jobs = [job for (job,) in await work.rows("copy.gone_jobs", rows=keys)]
    for part in ("runs", "ends", "events"):
        await work.run(f"prune.{part}", jobs=jobs)
