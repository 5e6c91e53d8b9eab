"""Storing new jobs: those alike together, those that may meet a holder alone."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from outlast.clock import to_micros
from outlast.core.job import NewJob
from outlast.core.state import State
from outlast.store.contract.jobs import Added
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.savepoint import in_savepoint
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.verbs.group import group_of
from outlast.store.sqlite.writer import WriteTransaction


@require_open_store
def add(work: WriteTransaction, jobs: Sequence[NewJob]) -> list[Added]:
    """Plain neighbours go in together; whatever may meet a holder goes alone, in its turn."""
    added: list[Added] = []
    for together, group in groupby(jobs, key=lambda job: job.is_plain and not work.isolate_items):
        neighbours = list(group)
        added += _insert(work, neighbours) if together else [_add_one(work, n) for n in neighbours]
    return added


def _insert(work: WriteTransaction, jobs: Sequence[NewJob]) -> list[Added]:
    """Store jobs that nothing stands in the way of, those alike in one go."""
    for _, group in groupby(jobs, key=job_rows.insert_shape):
        same = list(group)
        if len(same) == 1:
            _insert_one(work, same[0])
        else:
            _insert_alike(work, same)
    return [Added(job.id, created=True) for job in jobs]


def _insert_one(
    work: WriteTransaction, job: NewJob, retry_of: int | None = None, root: int | None = None
) -> None:
    values = job_rows.new_job(job, work.now)
    values |= {"id": job.id, "params": job.params, "retry_of": retry_of, "root": root}
    job_rows.require_storable(values.values())
    values["member_of"] = group_of(work, job)
    values["job"] = work.run("add.job", **values).lastrowid
    work.run("add.wait", **values)
    if retry_of is not None:
        work.run("add.retried", **values)
    _note(work, values)


def _insert_alike(work: WriteTransaction, jobs: Sequence[NewJob]) -> None:
    values = job_rows.new_job(jobs[0], work.now)
    job_rows.require_storable(values.values())
    values["member_of"] = group_of(work, jobs[0])
    values["jobs"] = to_json_param([(job.id, job.params) for job in jobs])
    last = work.run("add.jobs_alike", **values).lastrowid or 0
    values["first"] = last - len(jobs) + 1  # nobody else inserts meanwhile: they are consecutive
    work.run("add.wait_alike", **values)
    work.run("add.place", first=values["first"])
    _note(work, values)


def _note(work: WriteTransaction, values: Mapping[str, Any]) -> None:
    """Workers are woken for what they can take now, not for what is due later."""
    if values["state"] == State.QUEUED:
        work.queues.add(values["queue"])


def _add_one(work: WriteTransaction, job: NewJob) -> Added:
    added = in_savepoint(work, lambda: _add_keyed(work, job))
    return added if isinstance(added, Added) else Added(job.id, created=False, refused=added)


def _add_keyed(work: WriteTransaction, job: NewJob) -> Added:
    job_rows.require_storable([*chain(*_keys(job)), job.slot and job.slot.series])
    if work.one("add.known", id=job.id):
        return Added(job.id, created=False)
    holder = _holder(work, job)
    if holder is not None:
        return Added(holder, created=False)
    insert_keyed(work, job)
    if job.slot is not None:
        place = {"series": job.slot.series, "at": to_micros(job.slot.at)}
        work.run("add.take_slot", id=job.id, now=work.now, **place)
    return Added(job.id, created=True)


def insert_keyed(work: WriteTransaction, job: NewJob) -> None:
    """Store a job that nothing stands in the way of, with its keys and without its slot's row."""
    job_rows.require_storable(chain(*_keys(job)))
    _insert_one(work, job, *_predecessor(work, job))
    _take_keys(work, job)


def _holder(work: WriteTransaction, job: NewJob) -> Any:
    """Who has its slot, its key or its active key, asked in that order."""
    holder = None
    if job.slot is not None:
        at = to_micros(job.slot.at)
        holder = work.one("add.slot_holder", series=job.slot.series, at=at)
    for scope, key, bucket in _keys(job):
        holder = holder or work.one("add.key_holder", scope=scope, key=key, bucket=bucket)
    return holder


def _take_keys(work: WriteTransaction, job: NewJob) -> None:
    for scope, key, bucket in _keys(job):
        work.run("add.take_key", scope=scope, key=key, bucket=bucket, id=job.id)


def _keys(job: NewJob) -> Iterable[tuple[str, str, str]]:
    if job.key is not None:
        yield "key", job.key.key, job.key.bucket
    if job.active_key is not None:
        yield "active", job.active_key, ""


def _predecessor(work: WriteTransaction, job: NewJob) -> tuple[int | None, int | None]:
    if job.retry_of is None:
        return None, None
    seq, root, trouble = work.run("add.predecessor", id=job.retry_of).fetchone()
    if trouble is not None:
        raise ValueError(trouble)
    return seq, root
