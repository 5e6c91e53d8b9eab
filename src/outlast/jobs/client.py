"""The store as an app uses it: opened when first needed, with the verbs callers have."""

import asyncio
import json
import os
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from outlast.concurrency import PerLoop
from outlast.config import Settings
from outlast.core.decide import decide
from outlast.core.duration import Duration, parse_duration
from outlast.core.event import CancelRequested
from outlast.core.ids import Ids, JobId
from outlast.core.job import Job
from outlast.core.limits import MAX_REASON, repr_short, truncate
from outlast.core.state import State
from outlast.errors import (
    JobNotSucceeded,
    StoreClosed,
    TransitionRefused,
    TypeNotFound,
    WaitTimeout,
)
from outlast.jobs.completion import CompletionWaiter, find, last_of_chain
from outlast.store.contract import Store

LoadResult = Callable[[str, str | None], Any]
"""From a job type's name and the JSON text of a result to the result."""

DumpParams = Callable[[str, dict[str, Any]], str]
"""From a job type's name and a call's arguments to their JSON text."""

_TRIES: Final = 100


def _knows_none(type_name: str, _: dict[str, Any]) -> str:
    raise TypeNotFound(
        f"job type {repr_short(type_name)} is not registered; this client knows none"
    )


async def _nothing_more(_: Store) -> None:
    return


class Client:
    """One store, opened on first use and closed once, and what callers ask of its jobs."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        ids: Ids,
        load_result: LoadResult = lambda _, text: None if text is None else json.loads(text),
        dump_params: DumpParams = _knows_none,
        opened: Callable[[Store], Awaitable[object]] = _nothing_more,
    ) -> None:
        """`opened` is awaited once the store is open, before anything is asked of it."""
        self._opened = opened
        self.dump_params = dump_params
        self.settings = settings
        self.leaving: set[asyncio.Future[None]] = set()
        self._load_result = load_result
        self._use_store(store, ids)

    def _use_store(self, store: Store, ids: Ids) -> None:
        self.ids = ids
        self._store = store
        self._opening = PerLoop(asyncio.Lock)
        self._is_open = False
        self._caller: str | None = None
        self._waiting = PerLoop(
            lambda: CompletionWaiter(store, poll=self.poll), drop=CompletionWaiter.leave
        )
        self._closed = False

    @property
    def poll(self) -> float:
        """Seconds between two looks when no hint comes."""
        return self.settings.poll.total_seconds()

    @contextmanager
    def using(self, store: Store, ids: Ids) -> Iterator[None]:
        """Another store for a block, as if it had always been this one; then the old one again.

        Closing either of them is the caller's.
        """
        kept = dict(vars(self))
        self._use_store(store, ids)
        try:
            yield
        finally:
            self.__dict__ = kept  # whole, so that nothing of the block stays

    async def store(self) -> Store:
        """The store, opened now if it was not; any number of tasks may ask at once."""
        if not self._is_open:
            async with self._opening.mine():
                await self._open()
        return self._store

    async def open(self) -> None:
        """Open it now; also after it was closed."""
        self._closed = False
        await self.store()

    async def close(self) -> None:
        """Let go of the store; twice is fine."""
        if self.leaving:
            await asyncio.wait(self.leaving)
        self._closed = True
        async with self._opening.mine():
            self._is_open = False
            self._caller = None  # the store lets go of its lock
            for loop, waiting in self._waiting.take_all():
                await _close(waiting, loop)
            await self._store.close()

    async def caller_lock_name(self) -> str:
        """Who calls: a name whose lock is held until the store is closed or this process dies."""
        store = await self.store()
        async with self._opening.mine():
            if self._caller is None:
                name = f"caller.{os.getpid()}.{uuid.uuid4()}"
                await store.acquire_lock(name)
                self._caller = name
            return self._caller

    async def find(self, job_id: JobId) -> Job:
        """The job as it stands; JobNotFound if there is none."""
        return await find(await self.store(), job_id)

    async def wait(self, job_id: JobId, *, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109 - ours names the job
        """The job once it has ended, or the last of its chain."""
        await self.store()
        seconds = (
            None if timeout is None else parse_duration(timeout, what="timeout").total_seconds()
        )
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._waiting.mine().ended(job_id)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise WaitTimeout(
                f"job {job_id} has not ended within {timeout}; it goes on, so wait again or "
                "cancel it"
            ) from error

    async def result(self, job_id: JobId, *, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - same
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
        why = None if reason is None else truncate(reason, MAX_REASON)
        for _ in range(_TRIES):
            job = await last_of_chain(store, await find(store, job_id))
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
            await self._opened(self._store)
            self._is_open = True


async def _close(waiting: CompletionWaiter, loop: asyncio.AbstractEventLoop) -> None:
    """On the loop it belongs to: there its waiters learn that nobody looks any more."""
    if loop is asyncio.get_running_loop():
        await waiting.close()
    elif loop.is_running():
        asyncio.run_coroutine_threadsafe(waiting.close(), loop)
    else:
        waiting.leave()
