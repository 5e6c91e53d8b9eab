"""Runs, progress, artifacts and events."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.limits import MAX_PROGRESS, is_json
from outlast.core.refusals import UNFIT, Refusals, read_refusals
from outlast.core.run import Lease, RunRecord
from outlast.core.state import State
from outlast.store.contract import runs as run_contract
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_concurrently
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange
from outlast.store.keyvalue.operations.base import KeyValueOperations
from outlast.store.keyvalue.operations.jobs import require_kept
from outlast.store.keyvalue.outcomes import require_all
from outlast.store.keyvalue.repositories import event_numbers, runs
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
PAGE: Final = 16
"""Events of a job in one read of its last ones."""


class KeyValueRunOperations(KeyValueOperations):
    """Read runs and events; record progress and artifacts."""

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        """Return the runs of a job, the first one first."""
        context = self._context

        async def work(unit: UnitOfWork) -> list[RunRecord]:
            record = await job_repository.load(unit, job_id)
            if record is None:
                return []
            [job] = await job_repository.whole_jobs(unit, [record])
            return await runs.whole(unit, await runs.all_of(unit, replace(record, job=job)))

        return await context.run_unit(work)

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        """Record the progress of open runs; return for each whether its lease is current."""
        context = self._context
        is_repeated = len({lease.job_id for lease, _ in reports}) < len(reports)
        outcomes = await run_concurrently(
            reports, partial(_report, context), is_alone=lambda _: is_repeated
        )
        return require_all(outcomes)

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        """Append artifacts to a run; return False unless it is the last run of its job."""
        context = self._context

        async def work(unit: UnitOfWork) -> bool:
            record = await job_repository.load(unit, lease.job_id)
            if record is None or record.job.token != lease.token or not lease.token:
                return False
            await require_kept(unit, record)
            await runs.append(unit, lease.job_id, lease.token, artifacts)
            return True

        return await context.run_unit(work)

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        """Return the events of a job; those of no job for None."""
        context = self._context
        if job_id is not None:
            await context.run_unit(
                partial(job_repository.load, job_id=job_id)
            )  # completes a pending intent of the job
        of_it = key_layout.of_job(key_layout.EVENT, job_id or key_layout.NO_JOB)
        told = await context.engine.range(of_it, limit=ALL)
        told = told if job_id is not None else told[-run_contract.MAX_EVENTS_OF_NO_JOB :]
        found = await context.engine.get([key_layout.stream_key(each.value["id"]) for each in told])
        return [runs.event(each.value) for each in found if each and each.damage is None]

    async def refusals(self, job_ids: Sequence[JobId]) -> list[Refusals | None]:
        """Return the refusals of each job in a row, up to its last ended run."""
        run = self._context.run_unit
        return [await run(partial(_refusals, job_id=job_id)) for job_id in job_ids]

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        """Return events after a number, in order.

        An event gets its number in the write that makes it visible, so none is skipped.
        """
        context = self._context
        last = await event_numbers.settle(context.engine)
        end = None if last is None else key_layout.number(last + 1)
        span = KeyRange(key_layout.STREAM, key_layout.number(after + 1), end)
        entries = await context.engine.range(span, limit=limit)
        return [runs.event(entry.value) for entry in entries]


async def _refusals(unit: UnitOfWork, job_id: JobId) -> Refusals | None:
    record = await job_repository.load(unit, job_id)
    if record is None:
        return None
    job = record.job
    last = job.token - (job.state is State.RUNNING)
    if last:
        return await _refusals_of(unit, job_id, EventKind.UNFIT, last)
    before = job.retry_of
    return await _refusals_of(unit, before, EventKind.CHAINED, 0) if before else None


async def _refusals_of(
    unit: UnitOfWork, job_id: JobId, kind: EventKind, token: int
) -> Refusals | None:
    """Return what the last such event of the job counts; those before `token` are not read."""
    span = key_layout.of_job(key_layout.EVENT, job_id)
    while listed := await unit.engine.range(span, limit=PAGE, reverse=True):
        found = await unit.engine.get([key_layout.stream_key(e.value["id"]) for e in listed])
        told = [runs.event(each.value) for each in found if each and each.damage is None]
        for event in told:
            if event.kind is kind and event.reason == UNFIT and event.token >= token:
                return read_refusals(event.detail, event.at)
        if any(event.token < token for event in told):
            return None
        span = replace(span, end=listed[-1].key.sort)
    return None


async def _report(context: StoreContext, told: tuple[Lease, str]) -> bool:
    lease, text = told
    if not is_json(text, MAX_PROGRESS):
        return False

    async def work(unit: UnitOfWork) -> bool:
        record = await job_repository.load(unit, lease.job_id)
        if record is None or not record.is_open or record.job.token != lease.token:
            return False
        job_repository.save(unit, record, replace(record, job=replace(record.job, progress=text)))
        return True

    return await context.run_unit(work)
