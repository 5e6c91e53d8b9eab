"""Logs: write chunks of lines behind the fence, and read them."""

import json
from collections.abc import Sequence

from outlast.core.ids import JobId
from outlast.core.run import Lease
from outlast.core.run_log import LogChunk, LogWrite
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.base import SqliteOperations
from outlast.store.sqlite.writer import WriteTransaction


class SqliteLogOperations(SqliteOperations):
    """The logs of runs."""

    async def write_logs(self, writes: Sequence[tuple[Lease, LogWrite]]) -> list[bool]:
        """Write chunks to the logs of open runs; False where the run is not open."""
        return await self._writer.submit(write_logs, writes) if writes else []

    async def log_chunks(
        self, job_id: JobId, *, after: tuple[int, int] = (0, 0), limit: int
    ) -> list[tuple[int, LogChunk]]:
        """Return the next chunks of a job's runs, each with the token of its run."""
        token, line = after
        found = await self._reader.rows(
            "logs.chunks", id=job_id, token=token, line=line, limit=limit
        )
        return [(token, LogChunk(*chunk)) for token, *chunk in found]

    async def log_lengths(self, job_id: JobId) -> dict[int, int]:
        """Return by token how many lines each run logged."""
        return dict(await self._reader.rows("logs.lengths", id=job_id))


def write_logs(tx: WriteTransaction, writes: Sequence[tuple[Lease, LogWrite]]) -> list[bool]:
    """Write to the log of each run that is open."""
    write(tx, writes)
    leases = to_json_param([(lease.job_id, lease.token) for lease, _ in writes])
    accepted = set(json.loads(tx.value("logs.accepted", leases=leases)))
    return [n in accepted for n in range(len(writes))]


def write(tx: WriteTransaction, writes: Sequence[tuple[Lease, LogWrite]]) -> None:
    """Write to the log of each run that is open, in the order given."""
    chunks = [
        (lease.job_id, lease.token, *chunk) for lease, each in writes for chunk in each.storable
    ]
    dropped = [(lease.job_id, lease.token, n) for lease, each in writes for n in each.dropped]
    if chunks:
        tx.run("logs.write", chunks=to_json_param(chunks))
    if dropped:
        tx.run("logs.drop", dropped=to_json_param(dropped))
