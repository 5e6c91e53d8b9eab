"""Firing many slots at one moment: those with nothing in their way go in together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from outlast.clock import to_micros
from outlast.core.job import NewJob
from outlast.core.schedule import Firing
from outlast.core.state import State
from outlast.store.rows import jobs as job_rows
from outlast.store.rows import schedules as schedule_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.writer import WriteTransaction

COLUMNS: Final = (
    "id", "type", "name", "params", "queue", "delivery", "max_attempts", "slot_at",
    "start_deadline", "group_id", "template_id", "template_at", "schedule_id", "state",
    "priority", "available_at",
)  # fmt: skip
"""What the statements take of a job, by its place in this list."""


def fire_batch(work: WriteTransaction, firings: Sequence[Firing]) -> bool:
    """Answer all of them in a few statements; False, and nothing, if any is not routine."""
    jobs = [replace(each.job, slot=each.slot) for each in firings if each.job is not None]
    if len(jobs) < len(firings) or not all(map(_is_unkeyed, jobs)) or not _apart(firings, jobs):
        return False
    encoded = to_json_param(
        [_bound_firing(firing, job) for firing, job in zip(firings, jobs, strict=True)]
    )
    if work.one("schedules.routine", firings=encoded) < len(firings):
        return False
    work.run("schedules.go_on_together", firings=encoded)
    _insert_together(work, jobs)
    work.run("schedules.claim_together", firings=encoded, now=work.now)
    work.run("schedules.keys_together", firings=encoded)
    return True


def _insert_together(work: WriteTransaction, jobs: Sequence[NewJob]) -> None:
    bound = [job_rows.new_job(job, work.now) | {"id": job.id, "params": job.params} for job in jobs]
    for values in bound:
        job_rows.require_storable(values.values())
    encoded = to_json_param([[values[name] for name in COLUMNS] for values in bound])
    last = work.run("schedules.jobs_together", jobs=encoded, now=work.now).lastrowid or 0
    first = last - len(jobs) + 1
    work.run("schedules.wait_together", jobs=encoded, now=work.now, first=first)
    work.run("add.place", first=first)
    work.queues.update(each["queue"] for each in bound if each["state"] == State.QUEUED)


def _is_unkeyed(job: NewJob) -> bool:
    return job.key is None and job.retry_of is None and not job.member


def _apart(firings: Sequence[Firing], jobs: Sequence[NewJob]) -> bool:
    keys = [job.active_key for job in jobs if job.active_key is not None]
    return (
        len({firing.schedule_id for firing in firings}) == len(firings)
        and len({firing.slot for firing in firings}) == len(firings)
        and len({job.id for job in jobs}) == len(jobs)
        and len(set(keys)) == len(keys)
    )


def _bound_firing(firing: Firing, job: NewJob) -> list[Any]:
    return [
        firing.schedule_id,
        firing.version,
        firing.slot.series,
        to_micros(firing.slot.at),
        firing.outcome,
        to_micros(firing.planned),
        firing.reason,
        schedule_rows.number(firing.next_slot),
        schedule_rows.number(firing.next_trigger_at),
        job.id,
        job.active_key,
    ]
