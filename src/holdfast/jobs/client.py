"""The store as an app uses it: opened when first needed, with the verbs callers have."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from holdfast.config import Settings
from holdfast.core.decide import decide
from holdfast.core.event import CancelRequested
from holdfast.core.ids import Ids, JobId
from holdfast.core.job import Job
from holdfast.core.limits import MAX_REASON, cut
from holdfast.core.span import Span, to_span
from holdfast.core.state import State
from holdfast.errors import JobNotSucceeded, StoreClosed, TransitionRefused, WaitTimeout
from holdfast.jobs.waiting import Waiting, find, follow
from holdfast.store.base import Store

LoadResult = Callable[[str, str | None], Any]
"""From a job type's name and the JSON text of a result to the result."""

_TRIES: Final = 100


class Client:
    """One store, opened on first use and closed once, and what callers ask of its jobs."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        ids: Ids,
        load_result: LoadResult = lambda _, text: None if text is None else json.loads(text),
    ) -> None:
        self.ids = ids
        self._store = store
        self._settings = settings
        self._load_result = load_result
        self._opening = asyncio.Lock()
        self._is_open = False
        self._waiting: Waiting | None = None
        self._closed = False

    async def store(self) -> Store:
        """The store, opened now if it was not; any number of tasks may ask at once."""
        if not self._is_open:
            async with self._opening:
                await self._open()
        return self._store

    @property
    def poll(self) -> float:
        """Seconds between two looks of whoever waits and hears nothing."""
        return self._settings.poll.total_seconds()

    async def open(self) -> None:
        """Open it now; also after it was closed."""
        self._closed = False
        await self.store()

    async def close(self) -> None:
        """Let go of the store; twice is fine."""
        self._closed = True
        async with self._opening:
            self._is_open = False
            waiting, self._waiting = self._waiting, None
            if waiting is not None:
                await waiting.close()
            await self._store.close()

    async def find(self, job_id: JobId) -> Job:
        """The job as it stands; JobNotFound if there is none."""
        return await find(await self.store(), job_id)

    async def wait(self, job_id: JobId, *, timeout: Span | None = None) -> Job:  # noqa: ASYNC109 - ours names the job
        """The job once it has ended, or the last of its chain."""
        store = await self.store()
        if self._waiting is None:
            self._waiting = Waiting(store, poll=self.poll)
        seconds = None if timeout is None else to_span(timeout, what="timeout").total_seconds()
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._waiting.ended(job_id)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise WaitTimeout(
                f"job {job_id} has not ended within {timeout}; it goes on, so wait again or "
                "cancel it"
            ) from error

    async def result(self, job_id: JobId, *, timeout: Span | None = None) -> Any:  # noqa: ASYNC109 - same
        """What the job's handler returned; JobNotSucceeded if it ended otherwise."""
        job = await self.wait(job_id, timeout=timeout)
        runs = await (await self.store()).runs(job.id)
        last = runs[-1] if runs else None
        if job.state is State.SUCCEEDED:
            return self._load_result(job.type, last.result if last else None)
        error = last.error if last else None
        detail = f": {error.strip().splitlines()[-1][:200]}" if error and error.strip() else ""
        raise JobNotSucceeded(
            f'job {job.id} of type "{job.type}" ended {job.state} ({job.reason}){detail}; '
            "it has no result",
            state=job.state,
            error=error,
        )

    async def cancel(self, job_id: JobId, *, reason: str | None = None) -> State:
        """Ask that the job, or the last of its chain, not run or stop; the state it is in then.

        `cancelled`: it will not run. `running`: its handler was asked to stop.
        """
        store = await self.store()
        why = None if reason is None else cut(reason, MAX_REASON)
        for _ in range(_TRIES):
            job = await follow(store, await find(store, job_id))
            if job.state is State.CANCELLED or (
                job.state is State.RUNNING and job.cancel_requested
            ):
                return job.state
            if job.is_final:
                raise TransitionRefused(f"job {job.id} is {job.state}; nothing is left to cancel")
            change = decide(job, CancelRequested(why), new_id=self.ids.job)
            if (await store.apply([change]))[0]:
                return change.move.to
        raise TransitionRefused(f"job {job_id} moved on {_TRIES} times meanwhile; cancel it again")

    async def _open(self) -> None:
        if self._closed:
            raise StoreClosed("this app was closed; use it inside `async with app:`")
        if not self._is_open:
            await self._store.open()
            self._is_open = True
