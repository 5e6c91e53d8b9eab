"""Handle of a caller on one job."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

from outlast.core.duration import Duration
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run_log import LogLine
from outlast.core.state import State
from outlast.jobs import positions
from outlast.jobs.client import Client
from outlast.jobs.positions import End
from outlast.jobs.run_logs import logs_of

R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """The job that `enqueue` returned: wait for it, read it, move, edit or cancel it.

    `created` is False if the key or the slot was taken: then it is the job that holds it.
    `replaced` is True if that job took the params of the enqueue.
    """

    __slots__ = ("_client", "created", "id", "replaced")

    def __init__(
        self, job_id: JobId, client: Client, created: bool, *, replaced: bool = False
    ) -> None:
        self.id = job_id
        self.created = created
        self.replaced = replaced
        self._client = client

    async def wait(self, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109 - WaitTimeout names the job
        """Wait until the job has ended and return it; for a retry chain, its last job.

        Raises WaitTimeout after `timeout`; the job goes on.
        """
        return await self._client.wait(self.id, timeout=timeout)

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - same
        """Wait for the handler's result; JobNotSucceeded if the job ended otherwise."""
        result: Any = await self._client.result(self.id, timeout=timeout)
        return result  # type: ignore[no-any-return]  # the codec of its type made it

    async def cancel(self, reason: str | None = None) -> State:
        """Cancel the waiting job, or ask the running one to stop; return its state."""
        return await self._client.cancel(self.id, reason=reason)

    async def move(
        self,
        to: End | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        swap: str | None = None,
    ) -> Job:
        """Move the waiting job, as `app.move` does."""
        return await positions.move(
            self._client, self.id, to, before=before, after=after, swap=swap
        )

    async def edit(
        self,
        *,
        params: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> Job:
        """Change the waiting job, as `app.edit` does."""
        return await positions.edit(
            self._client, self.id, params=params, priority=priority, delay=delay, at=at
        )

    async def read(self) -> Job:
        """Return the job as it is stored now; JobNotFound if it was pruned."""
        return await self._client.find(self.id)

    def logs(self, *, run: int | None = None) -> AsyncIterator[LogLine]:
        """Iterate over what the job's runs have logged: `async for line in handle.logs():`.

        `run` is the token of one run; the default is all runs, the first one first.
        """
        return logs_of(self._client, self.id, run=run)

    def __repr__(self) -> str:
        return f"Handle({self.id})"
