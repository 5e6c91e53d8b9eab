"""Logs: write chunks of lines behind the fence, and read them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from outlast.core.ids import JobId
from outlast.core.run import Lease
from outlast.core.run_log import LogChunk, LogWrite
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.operations.runs import distinct_leases
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import Row
from outlast.store.postgres.uuids import is_uuid


class PostgresLogOperations(PostgresOperations):
    """The logs of runs."""

    async def write_logs(self, writes: Sequence[tuple[Lease, LogWrite]]) -> list[bool]:
        """Write chunks to the logs of open runs; False where the run is not open."""
        answers: list[bool] = []
        for together in _rounds(writes):
            held = {(job, token) for job, token in await self._write(write_values(together))}
            answers += [(lease.job_id, lease.token) in held for lease, _ in together]
        return answers

    async def log_chunks(
        self, job_id: JobId, *, after: tuple[int, int] = (0, 0), limit: int
    ) -> list[tuple[int, LogChunk]]:
        """Return the next chunks of a job's runs, each with the token of its run."""
        if not is_uuid(job_id):
            return []
        token, line = after
        values = {"id": job_id, "token": token, "line": line, "limit": limit}
        found = await self._pool.rows("logs.chunks", **values)
        return [(token, LogChunk(*chunk)) for token, *chunk in found]

    async def log_lengths(self, job_id: JobId) -> dict[int, int]:
        """Return by token how many lines each run logged."""
        if not is_uuid(job_id):
            return {}
        found = await self._pool.rows("logs.lengths", id=job_id)
        return {token: last for token, last in found}  # noqa: C416 - a row is no pair

    async def _write(self, values: dict[str, Any]) -> list[Row]:
        """Run the idempotent statement, not on the connection of renewals, which it would delay."""

        async def fetch() -> list[Row]:
            async with self._pool.connection("apply").acquire() as runner:
                return await runner.fetch("logs.write", values)

        if not values["jobs"]:
            return []
        repeated = partial(self._pool.repeat_on_conflict, fetch)
        return await retry_while_unavailable(repeated, self.address)


def _rounds(
    writes: Sequence[tuple[Lease, LogWrite]],
) -> list[list[tuple[Lease, LogWrite]]]:
    """Split writes so that no round holds a job twice."""
    rounds: list[list[tuple[Lease, LogWrite]]] = [[]]
    for write in writes:
        if any(lease.job_id == write[0].job_id for lease, _ in rounds[-1]):
            rounds.append([])
        rounds[-1].append(write)
    return rounds


def write_values(writes: Sequence[tuple[Lease, LogWrite]]) -> dict[str, Any]:
    """Return the values of `logs.write`, in lock order."""
    values: dict[str, Any] = distinct_leases([lease for lease, _ in writes])
    known = sorted((lease.job_id, write) for lease, write in writes if is_uuid(lease.job_id))
    return values | log_values(known, "log_jobs", "drop_jobs")


def log_values(writes: Sequence[tuple[Any, LogWrite]], of_log: str, of_drop: str) -> dict[str, Any]:
    """Return chunks and dropped chunks as one list per column, each with what it belongs to."""
    chunks = [(owner, chunk) for owner, write in writes for chunk in write.storable]
    dropped = [(owner, first) for owner, write in writes for first in write.dropped]
    return {
        of_log: [owner for owner, _ in chunks],
        "firsts": [chunk.first for _, chunk in chunks],
        "lines": [chunk.lines for _, chunk in chunks],
        "texts": [chunk.text for _, chunk in chunks],
        of_drop: [owner for owner, _ in dropped],
        "drops": [first for _, first in dropped],
    }
