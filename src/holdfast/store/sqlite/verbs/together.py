"""Firing many slots at one moment: those with nothing in their way go in together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.clock import micros
from holdfast.core.job import NewJob
from holdfast.core.schedule import Firing
from holdfast.core.state import State
from holdfast.store.sqlite import rows, schedule_rows
from holdfast.store.sqlite.rows import dumps
from holdfast.store.sqlite.writer import Work


def fire_together(work: Work, firings: Sequence[Firing]) -> bool:
    """Answer all of them in a few statements; False, and nothing, if any is not routine."""
    jobs = [replace(each.job, slot=each.slot) for each in firings if each.job is not None]
    if len(jobs) < len(firings) or not all(map(_is_plain, jobs)) or not _distinct(firings, jobs):
        return False
    encoded = dumps([_row(firing, job) for firing, job in zip(firings, jobs, strict=True)])
    if work.one("schedule.routine", firings=encoded) < len(firings):
        return False
    work.run("schedule.go_on_together", firings=encoded)
    _insert(work, jobs)
    work.run("schedule.claim_together", firings=encoded, now=work.now)
    work.run("schedule.keys_together", firings=encoded)
    return True


def _insert(work: Work, jobs: Sequence[NewJob]) -> None:
    values = [_values(job, work.now) for job in jobs]
    encoded = dumps(values)
    last = work.run("schedule.jobs_together", jobs=encoded, now=work.now).lastrowid or 0
    first = last - len(jobs) + 1
    work.run("schedule.wait_together", jobs=encoded, now=work.now, first=first)
    work.run("add.place", first=first)
    work.queues.update(each["queue"] for each in values if each["state"] == State.QUEUED)


def _values(job: NewJob, now: int) -> dict[str, Any]:
    values = rows.new_job(job, now) | {"id": job.id, "params": job.params}
    rows.require_storable(values.values())
    return values


def _is_plain(job: NewJob) -> bool:
    return job.key is None and job.retry_of is None and not job.member


def _distinct(firings: Sequence[Firing], jobs: Sequence[NewJob]) -> bool:
    keys = [job.active_key for job in jobs if job.active_key is not None]
    return (
        len({firing.schedule_id for firing in firings}) == len(firings)
        and len({firing.slot for firing in firings}) == len(firings)
        and len({job.id for job in jobs}) == len(jobs)
        and len(set(keys)) == len(keys)
    )


def _row(firing: Firing, job: NewJob) -> list[Any]:
    return [
        firing.schedule_id,
        firing.version,
        firing.slot.series,
        micros(firing.slot.at),
        firing.outcome,
        micros(firing.planned),
        firing.reason,
        schedule_rows.number(firing.next_slot),
        schedule_rows.number(firing.next_trigger_at),
        job.id,
        job.active_key,
    ]
