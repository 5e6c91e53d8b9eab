"""Writing schedules, and answering their slots: each firing alone, all of it or nothing."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.clock import micros
from holdfast.core.schedule import Firing, Schedule
from holdfast.store.schedules import Fired, SetSchedule
from holdfast.store.sqlite import schedule_rows
from holdfast.store.sqlite.verbs.add import add_keyed
from holdfast.store.sqlite.writer import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A wish to write a schedule, to create it (nothing expected) or to delete it (no value)."""

    id: str
    expected: int | None
    value: SetSchedule | None


def set_schedule(work: Work, settings: Sequence[Setting]) -> list[Schedule | None]:
    return [
        _delete(work, each) if each.value is None else _write(work, each, each.value)
        for each in settings
    ]


def fire(work: Work, firings: Sequence[Firing]) -> list[Fired]:
    return [_fire_alone(work, firing) for firing in firings]


def _write(work: Work, asked: Setting, value: SetSchedule) -> Schedule | None:
    bound = schedule_rows.values(value) | {"id": asked.id}
    known = {"id": asked.id, "expected": asked.expected}
    found = work.run("schedule.expected", name=bound["name"], **known).fetchone()
    if found is None:
        return None
    created_at, updated_at, last = found
    work.run("schedule.delete", **known)
    work.run(
        "schedule.write",
        created_at=work.now if created_at is None else created_at,
        updated_at=work.now if updated_at is None else max(work.now, updated_at + 1),
        last_triggered_at=last,
        **bound,
    )
    return _read(work, asked.id)


def _delete(work: Work, asked: Setting) -> Schedule | None:
    there = _read(work, asked.id)
    gone = work.run("schedule.delete", id=asked.id, expected=asked.expected)
    return there if gone.rowcount > 0 else None


def _read(work: Work, schedule_id: str) -> Schedule | None:
    found = work.run("schedule.get", name=schedule_id).fetchone()
    return None if found is None else schedule_rows.schedule(found)


class _Undone(Exception):
    """It must not be written after all."""

    def __init__(self, fired: Fired) -> None:
        self.fired = fired


def _fire_alone(work: Work, firing: Firing) -> Fired:
    work.run("item.save")
    queues = set(work.queues)
    try:
        fired = _fire(work, firing)
    except _Undone as undone:
        work.run("item.undo")
        work.queues, fired = queues, undone.fired
    except (sqlite3.IntegrityError, ValueError, OverflowError):
        work.run("item.undo")
        work.queues, fired = queues, Fired.REFUSED
    work.run("item.keep")
    return fired


def _fire(work: Work, firing: Firing) -> Fired:
    at = micros(firing.slot.at)
    place = {"series": firing.slot.series, "at": at}
    onward = {
        "at": at,
        "id": firing.schedule_id,
        "version": firing.version,
        "next_slot": schedule_rows.number(firing.next_slot),
        "next_trigger_at": schedule_rows.number(firing.next_trigger_at),
    }
    if work.one("schedule.has_slot", **place):
        passed = work.run("schedule.pass_by", **onward)
        return Fired.TAKEN if passed.rowcount > 0 else Fired.STALE
    if work.run("schedule.go_on", triggers=firing.job is not None, **onward).rowcount < 1:
        return Fired.STALE
    _answer(work, firing, place)
    return Fired.WRITTEN


def _answer(work: Work, firing: Firing, place: dict[str, Any]) -> None:
    if firing.job is not None:
        job = replace(firing.job, slot=firing.slot)
        added = add_keyed(work, job, takes_slot=False)
        if not added.created:
            raise _Undone(Fired.BUSY)
    work.run(
        "schedule.claim_slot",
        now=work.now,
        id=firing.schedule_id,
        outcome=firing.outcome,
        planned=micros(firing.planned),
        job_id=None if firing.job is None else firing.job.id,
        reason=firing.reason,
        **place,
    )
