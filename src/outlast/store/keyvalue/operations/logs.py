"""Logs: write chunks of lines behind the fence, and read them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from outlast.core.ids import JobId
from outlast.core.run import Lease
from outlast.core.run_log import LogChunk, LogWrite
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_concurrently
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange
from outlast.store.keyvalue.operations.base import KeyValueOperations
from outlast.store.keyvalue.outcomes import require_all
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import logs
from outlast.store.keyvalue.unit_of_work import UnitOfWork

PAGE: Final = 50
"""Chunks in one read."""


class KeyValueLogOperations(KeyValueOperations):
    """The logs of runs."""

    async def write_logs(self, writes: Sequence[tuple[Lease, LogWrite]]) -> list[bool]:
        """Write to the logs of open runs; return for each whether its lease is current."""
        is_repeated = len({lease.job_id for lease, _ in writes}) < len(writes)
        outcomes = await run_concurrently(
            writes, partial(_write, self._context), is_alone=lambda _: is_repeated
        )
        return require_all(outcomes)

    async def log_chunks(
        self, job_id: JobId, *, after: tuple[int, int] = (0, 0), limit: int
    ) -> list[tuple[int, LogChunk]]:
        """Return the next chunks of a job's runs, each with the token of its run."""
        if not await self._is_logged(job_id):
            return []
        start = key_layout.log_sort(job_id, after[0], 0)
        found: list[tuple[int, LogChunk]] = []
        while len(found) < limit:
            span = KeyRange(key_layout.LOG, start, f"{job_id}$")  # "$" follows "#" in ASCII
            page = await self._context.engine.range(span, limit=PAGE)
            chunks = logs.from_records(page)
            found += [(token, chunk) for token, chunk in chunks if (token, chunk.last) > after]
            if len(page) < PAGE:
                break
            start = page[-1].key.sort + "\0"
        return found[:limit]

    async def log_lengths(self, job_id: JobId) -> dict[int, int]:
        """Return by token how many lines each run logged."""
        if not await self._is_logged(job_id):
            return {}
        of_it = key_layout.of_job(key_layout.LOG, job_id)
        found = logs.from_records(await self._context.engine.range(of_it, limit=1_000_000))
        return {token: chunk.last for token, chunk in found}

    async def _is_logged(self, job_id: JobId) -> bool:
        """Return True if a run of the job has lines; completes a pending intent of the job."""
        record = await self._context.run_unit(partial(job_repository.load, job_id=job_id))
        return record is not None and record.is_logged


async def _write(context: StoreContext, told: tuple[Lease, LogWrite]) -> bool:
    lease, write = told

    async def work(unit: UnitOfWork) -> bool:
        record = await job_repository.load(unit, lease.job_id)
        if record is None or not record.is_open or record.job.token != lease.token:
            return False
        unit.require(key_layout.job_key(record.job))
        has_lines = logs.save(unit, lease.job_id, lease.token, write)
        if has_lines and not record.is_logged:
            job_repository.save(unit, record, replace(record, is_logged=True))
        return True

    return await context.run_unit(work)
