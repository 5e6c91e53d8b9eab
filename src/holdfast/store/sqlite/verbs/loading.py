"""Writing what another store dumped: row by row, in the steps that its store took itself."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.clock import moment
from holdfast.core.state import WAITING
from holdfast.store.moving import COLUMNS, FIRST, Kind, Row, Stage, from_row, named, refuse_load
from holdfast.store.rows import dumps
from holdfast.store.sqlite.writer import Work

Values = dict[str, Any]


def load(work: Work, pages: Sequence[tuple[Kind, Sequence[Row], Sequence[Row]]]) -> list[None]:
    """Each page after what is gone; only while the store is filled."""
    footing = from_row(work.run("footing.get").fetchone()).at(moment(work.now))
    if footing.stage is not Stage.FILLING:
        raise refuse_load(footing)
    for kind, rows, gone in pages:
        for key in gone:
            _drop(work, kind, dict(zip(COLUMNS[kind], key[: len(FIRST[kind])], strict=False)))
        put = _PUT.get(kind)
        if kind is Kind.SCHEDULES:
            for row in rows:
                work.run("copy.clear_schedules", **named(kind, row))
        for row in rows:
            values = named(kind, row)
            if put is None:
                work.run(f"copy.put_{kind}", **values)
            else:
                put(work, values)
    return [None] * len(pages)


def _drop(work: Work, kind: Kind, key: Values) -> None:
    if kind is Kind.JOBS:
        for (seq,) in work.run("copy.gone_jobs", **key).fetchall():
            work.run("copy.leave_jobs", seq=seq)
            work.run("copy.lay_jobs", seq=seq)
    if kind in DROPPED:
        work.run(f"copy.drop_{kind}", **key)


DROPPED: Final = frozenset(Kind) - {Kind.SLOTS, Kind.RUNS, Kind.COUNTERS}
"""Slots are kept for ever, runs go with their jobs, and counters only rise."""


def _put_slot(work: Work, values: Values) -> None:
    work.run("copy.claim_slots", **values)
    work.run("copy.put_slots", **values)
    work.run("copy.mark_slots", **values)


def _put_record(work: Work, values: Values) -> None:
    work.run("copy.drop_records", kind=values["kind"], key=values["key"])
    work.run("copy.put_records", **values)


def _put_job(work: Work, values: Values) -> None:
    work.run("copy.edit_jobs", id=values["id"], params=values["params"])
    work.run("copy.put_jobs", **values)
    work.run("copy.leave_jobs", seq=values["seq"])
    if values["state"] in WAITING:
        work.run("copy.wait_jobs", **values)
    else:
        work.run("copy.bury_jobs", **values)
        work.run("copy.end_jobs", **values)


def _put_run(work: Work, values: Values) -> None:
    values["artifacts"] = dumps(values["artifacts"])
    work.run("claim.worker", instance=values["holder"], boot=values["boot_id"])
    work.run("copy.grow_runs", **values)
    work.run("copy.put_runs", **values)


def _put_reservation(work: Work, values: Values) -> None:
    work.run("copy.put_reservations", now=work.now, mono=work.mono, **values)


def _raise_counter(work: Work, values: Values) -> None:
    if values["name"] in COUNTED:
        work.run("copy.raise_counters", **values)
        work.run("copy.put_counters", **values)


COUNTED: Final = frozenset({"events", "records", "schedules"})
"""Other numbers are those of rows that are there."""

_PUT: Final[dict[Kind, Callable[[Work, Values], None]]] = {
    Kind.SLOTS: _put_slot,
    Kind.RECORDS: _put_record,
    Kind.JOBS: _put_job,
    Kind.RUNS: _put_run,
    Kind.RESERVATIONS: _put_reservation,
    Kind.COUNTERS: _raise_counter,
}
