"""Writing schedules, and answering their slots: each firing alone, all of it or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from outlast.clock import to_micros
from outlast.core.schedule import Firing, Schedule
from outlast.store.contract.schedules import FireResult, SetSchedule
from outlast.store.rows import schedules as schedule_rows
from outlast.store.sqlite.operations.add import insert_keyed
from outlast.store.sqlite.operations.savepoint import in_savepoint
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.verbs.together import fire_batch
from outlast.store.sqlite.writer import WriteTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWrite:
    """A wish to write a schedule, to create it (nothing expected) or to delete it (no value)."""

    id: str
    expected: int | None
    value: SetSchedule | None


@require_open_store
def set_schedule(
    work: WriteTransaction, settings: Sequence[ScheduleWrite]
) -> list[Schedule | None]:
    return [
        _delete_schedule(work, each)
        if each.value is None
        else _write_schedule(work, each, each.value)
        for each in settings
    ]


@require_open_store
def fire(work: WriteTransaction, firings: Sequence[Firing]) -> list[FireResult]:
    if not work.isolate_items and len(firings) > 1 and fire_batch(work, firings):
        return [FireResult.WRITTEN] * len(firings)
    return [_fire_alone(work, firing) for firing in firings]


def _write_schedule(
    work: WriteTransaction, asked: ScheduleWrite, value: SetSchedule
) -> Schedule | None:
    bound = schedule_rows.values(value) | {"id": asked.id}
    known = {"id": asked.id, "expected": asked.expected}
    found = work.run("schedules.expected", name=bound["name"], **known).fetchone()
    if found is None:
        return None
    created_at, updated_at, last = found
    work.run("schedules.delete", **known)
    work.run(
        "schedules.write",
        created_at=work.now if created_at is None else created_at,
        updated_at=work.now if updated_at is None else max(work.now, updated_at + 1),
        last_triggered_at=last,
        **bound,
    )
    return _read_schedule(work, asked.id)


def _delete_schedule(work: WriteTransaction, asked: ScheduleWrite) -> Schedule | None:
    there = _read_schedule(work, asked.id)
    gone = work.run("schedules.delete", id=asked.id, expected=asked.expected)
    return there if gone.rowcount > 0 else None


def _read_schedule(work: WriteTransaction, schedule_id: str) -> Schedule | None:
    found = work.run("schedules.get", name=schedule_id).fetchone()
    return None if found is None else schedule_rows.schedule(found)


def _fire_alone(work: WriteTransaction, firing: Firing) -> FireResult:
    """A job that the database refuses undoes all of a batch; then each is tried by itself."""
    if not work.isolate_items:
        return _fire(work, firing)
    fired = in_savepoint(work, lambda: _fire(work, firing))
    return fired if isinstance(fired, FireResult) else FireResult.REFUSED


def _fire(work: WriteTransaction, firing: Firing) -> FireResult:
    at = to_micros(firing.slot.at)
    has_row, is_busy = work.run("schedules.look", **_looked_for(firing), at=at).fetchone()
    onward = {
        "at": at,
        "id": firing.schedule_id,
        "version": firing.version,
        "next_slot": schedule_rows.number(firing.next_slot),
        "next_trigger_at": schedule_rows.number(firing.next_trigger_at),
    }
    if has_row:
        passed = work.run("schedules.pass_by", **onward)
        return FireResult.TAKEN if passed.rowcount > 0 else FireResult.STALE
    if is_busy:
        stands = work.one("schedules.stands", at=at, id=onward["id"], version=onward["version"])
        return FireResult.BUSY if stands else FireResult.STALE
    if work.run("schedules.go_on", triggers=firing.job is not None, **onward).rowcount < 1:
        return FireResult.STALE
    _answer_slot(work, firing, at)
    return FireResult.WRITTEN


def _looked_for(firing: Firing) -> dict[str, Any]:
    job = firing.job
    key = job.key if job else None
    return {
        "series": firing.slot.series,
        "job_id": job and job.id,
        "key": key and key.key,
        "bucket": key and key.bucket,
        "active_key": job and job.active_key,
    }


def _answer_slot(work: WriteTransaction, firing: Firing, at: int) -> None:
    if firing.job is not None:
        insert_keyed(work, replace(firing.job, slot=firing.slot))
    work.run(
        "schedules.claim_slot",
        series=firing.slot.series,
        at=at,
        now=work.now,
        id=firing.schedule_id,
        outcome=firing.outcome,
        planned=to_micros(firing.planned),
        job_id=None if firing.job is None else firing.job.id,
        reason=firing.reason,
    )
