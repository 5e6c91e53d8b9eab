"""A caller's hold on one job."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

from outlast.core.duration import Duration
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.state import State
from outlast.jobs import positions
from outlast.jobs.client import Client
from outlast.jobs.positions import End

R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """What `enqueue` gives back: the job's id, and ways to wait for it, read it or stop it.

    `created` is False when an existing job came back, because it holds the key or the slot.
    """

    __slots__ = ("_client", "created", "id")

    def __init__(self, job_id: JobId, client: Client, created: bool) -> None:
        self.id = job_id
        self.created = created
        self._client = client

    async def wait(self, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109 - WaitTimeout names the job
        """The job once it has ended; for a chain, the last of its jobs. WaitTimeout after that."""
        return await self._client.wait(self.id, timeout=timeout)

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - same
        """What the handler returned; JobNotSucceeded if the job ended otherwise."""
        result: Any = await self._client.result(self.id, timeout=timeout)
        return result  # type: ignore[no-any-return]  # the codec of its type made it

    async def cancel(self, reason: str | None = None) -> State:
        """Ask that it not run, or stop: `cancelled` if it will not run, `running` if told."""
        return await self._client.cancel(self.id, reason=reason)

    async def move(
        self,
        to: End | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        swap: str | None = None,
    ) -> Job:
        """Give it another place while it waits, as `app.move` does."""
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
        """Change it while it waits, as `app.edit` does."""
        return await positions.edit(
            self._client, self.id, params=params, priority=priority, delay=delay, at=at
        )

    async def read(self) -> Job:
        """Return the job as it is stored now; JobNotFound if it was pruned."""
        return await self._client.find(self.id)

    def __repr__(self) -> str:
        return f"Handle({self.id})"
