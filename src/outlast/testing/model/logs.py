"""Logs of the model store."""

from collections.abc import Sequence

from outlast.core.ids import JobId
from outlast.core.run import Lease
from outlast.core.run_log import LogChunk, LogWrite
from outlast.testing.model.base import ModelOperations


class ModelLogOperations(ModelOperations):
    """The logs of runs."""

    async def write_logs(self, writes: Sequence[tuple[Lease, LogWrite]]) -> list[bool]:
        """Write to the logs of open runs; return for each whether its lease is current."""
        return [self._tables.write_log(lease, write) for lease, write in writes]

    async def log_chunks(
        self, job_id: JobId, *, after: tuple[int, int] = (0, 0), limit: int
    ) -> list[tuple[int, LogChunk]]:
        """Return the next chunks of a job's runs, each with the token of its run."""
        stored = sorted(self._tables.logs.get(job_id, {}).items())
        found = [(token, chunk) for (token, _), chunk in stored]
        return [each for each in found if (each[0], each[1].last) > after][:limit]

    async def log_lengths(self, job_id: JobId) -> dict[int, int]:
        """Return by token how many lines each run logged."""
        chunks = sorted(self._tables.logs.get(job_id, {}).items())
        return {token: chunk.last for (token, _), chunk in chunks}
