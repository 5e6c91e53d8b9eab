"""Add jobs: similar plain jobs in one statement, jobs with keys or slots one by one."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from outlast.clock import to_micros
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.key_window import check_replacement, has_valid_window
from outlast.core.state import State
from outlast.store.contract.jobs import Added
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations import key_windows
from outlast.store.sqlite.operations.base import SqliteOperations, require_open_store
from outlast.store.sqlite.operations.groups import group_of
from outlast.store.sqlite.operations.savepoint import in_savepoint
from outlast.store.sqlite.writer import WriteTransaction


class SqliteAddOperations(SqliteOperations):
    """Enqueue jobs."""

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Store each job with its keys and slot; return what became of each."""
        return await self._writer.submit(add, jobs) if jobs else []


@require_open_store
def add(tx: WriteTransaction, jobs: Sequence[NewJob]) -> list[Added]:
    """Insert runs of plain jobs together and every other job under its own savepoint."""
    added: list[Added] = []
    for is_plain, group in groupby(jobs, key=lambda job: job.is_plain and not tx.isolate_items):
        neighbours = list(group)
        added += (
            _insert_plain(tx, neighbours) if is_plain else [_add_one(tx, n) for n in neighbours]
        )
    return added


def insert_keyed(tx: WriteTransaction, job: NewJob) -> None:
    """Insert a job and its keys, but not its slot; no job may hold its id, keys or slot."""
    job_rows.require_storable(chain(*_keys(job)))
    _insert_one(tx, job, *_predecessor(tx, job))
    for scope, key, bucket in _keys(job):
        name = {"scope": scope, "key": key, "bucket": bucket, "expires_at": None}
        tx.run("add.claim_key", **name, id=job.id)
    if job.window is not None:
        key_windows.claim(tx, job, job.window)


def _insert_plain(tx: WriteTransaction, jobs: Sequence[NewJob]) -> list[Added]:
    """Insert jobs without keys, slots or predecessors, those of one shape in one statement."""
    for _, group in groupby(jobs, key=job_rows.insert_shape):
        same = list(group)
        if len(same) == 1:
            _insert_one(tx, same[0])
        else:
            _insert_batch(tx, same)
    return [Added(job.id, created=True) for job in jobs]


def _insert_one(
    tx: WriteTransaction, job: NewJob, retry_of: int | None = None, root: int | None = None
) -> None:
    values = job_rows.new_job(job, tx.now)
    values |= {"id": job.id, "params": job.params, "retry_of": retry_of, "root": root}
    job_rows.require_storable(values.values())
    values["member_of"] = group_of(tx, job)
    values["job"] = tx.run("add.job", **values).lastrowid
    tx.run("add.wait", **values)
    if retry_of is not None:
        tx.run("add.retried", **values)
    _notify_workers(tx, values)


def _insert_batch(tx: WriteTransaction, jobs: Sequence[NewJob]) -> None:
    values = job_rows.new_job(jobs[0], tx.now)
    job_rows.require_storable(values.values())
    values["member_of"] = group_of(tx, jobs[0])
    values["jobs"] = to_json_param([(job.id, job.params) for job in jobs])
    last = tx.run("add.job_batch", **values).lastrowid or 0
    values["first"] = last - len(jobs) + 1  # the write lock is held, so the numbers are consecutive
    tx.run("add.wait_batch", **values)
    tx.run("add.set_positions", first=values["first"])
    _notify_workers(tx, values)


def _notify_workers(tx: WriteTransaction, values: Mapping[str, Any]) -> None:
    """Wake workers for jobs that can be claimed, now or when they are due."""
    if values["state"] != State.BLOCKED:
        tx.notify_queues.add(values["queue"])


def _add_one(tx: WriteTransaction, job: NewJob) -> Added:
    added = in_savepoint(tx, lambda: _add_keyed(tx, job))
    return added if isinstance(added, Added) else Added(job.id, created=False, refused=added)


def _add_keyed(tx: WriteTransaction, job: NewJob) -> Added:
    job_rows.require_storable([*chain(*_keys(job)), job.slot and job.slot.series])
    if tx.value("add.known", id=job.id):
        return Added(job.id, created=False)
    holder = _holder_of_slot_or_key(tx, job)
    if holder is not None:
        return key_windows.answer(tx, job, holder)
    check_replacement(job)
    insert_keyed(tx, job)
    if job.slot is not None:
        slot = {"series": job.slot.series, "at": to_micros(job.slot.at)}
        tx.run("add.claim_slot", id=job.id, now=tx.now, **slot)
    return Added(job.id, created=True)


def _holder_of_slot_or_key(tx: WriteTransaction, job: NewJob) -> JobId | None:
    """Return the job that holds the slot, else the key, else the active key; None if all free."""
    holder: JobId | None = None
    if job.slot is not None:
        at = to_micros(job.slot.at)
        holder = tx.value("add.slot_holder", series=job.slot.series, at=at)
    for scope, key, bucket in _keys(job):
        holder = holder or tx.value("add.key_holder", scope=scope, key=key, bucket=bucket)
    if holder is None and job.window is not None and has_valid_window(job):
        holder = key_windows.holder_of(tx, job, job.window)
    return holder


def _keys(job: NewJob) -> Iterable[tuple[str, str, str]]:
    if job.key is not None:
        yield "key", job.key.key, job.key.bucket
    if job.active_key is not None:
        yield "active", job.active_key, ""


def _predecessor(tx: WriteTransaction, job: NewJob) -> tuple[int | None, int | None]:
    if job.retry_of is None:
        return None, None
    seq, root, refusal = tx.run("add.predecessor", id=job.retry_of).fetchone()
    if refusal is not None:
        raise ValueError(refusal)
    return seq, root
