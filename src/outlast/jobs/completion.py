"""Completion waiter: one poll for all callers that wait for jobs."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final

from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.state import State
from outlast.errors import JobNotFound, StoreClosed
from outlast.store.contract import Store
from outlast.store.contract.audit import Quarantining
from outlast.store.contract.notifications import Notification, Topic

_JOBS_PER_READ: Final = 500
_MAX_ID_LENGTH: Final = 64
_FEW_WAITERS: Final = 50
_IDLE_PER_BUSY: Final = 4
"""With many waiters, a pause lasts this many times as long as the poll before it."""


class CompletionWaiter:
    """Resolves each waiter's future when its job has ended.

    A notification triggers a poll at once; the poll interval covers lost notifications. One
    poll reads the jobs of all waiters, so a thousand waiters cost one read, not a thousand.
    """

    def __init__(self, store: Store, *, poll: float) -> None:
        self._store = store
        self._poll = poll
        self._waiters: dict[asyncio.Future[Job], JobId] = {}
        self._polling: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    async def ended(self, job_id: JobId) -> Job:
        """Wait for a job and return the last of its retry chain; JobNotFound if there is none."""
        tip = await self._end_of(job_id)
        while (next_one := await last_of_chain(self._store, tip)) is not tip:
            tip = next_one if next_one.is_final else await self._end_of(next_one.id)
        return tip

    async def close(self) -> None:
        """Stop polling; pending waiters get StoreClosed."""
        self._fail_all(StoreClosed("the app was closed while this job was being waited for"))
        self.leave()
        if self._polling is not None and not self._polling.done():
            self._polling.cancel()
            await asyncio.wait([self._polling])

    def leave(self) -> None:
        """Unsubscribe from notifications."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    async def _end_of(self, job_id: JobId) -> Job:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = job_id  # before the read, so that an end in between is seen
        try:
            job = await find(self._store, job_id)
            if not job.is_final:
                self._start()
                job = await waiter
        finally:
            self._waiters.pop(waiter, None)
        return job

    def _start(self) -> None:
        if self._polling is not None and not self._polling.done():
            return
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        if self._unsubscribe is None:
            self._unsubscribe = self._store.subscribe(self._on_notification, topics=[Topic.ENDED])
        self._polling = self._loop.create_task(self._poll_while_needed())

    def _on_notification(self, _: Notification) -> None:
        """Wake the poll: a job has ended. Called on any thread."""
        loop = self._loop
        if loop is not None and self._waiters:
            with suppress(RuntimeError):  # the loop is closed: nothing waits on it
                loop.call_soon_threadsafe(self._woken.set)

    async def _poll_while_needed(self) -> None:
        try:
            while self._waiters:
                took = await self._poll_once()
                await self._pause(took)
        except Exception as error:  # noqa: BLE001 - every waiter gets it
            self._fail_all(error)

    async def _poll_once(self) -> float:
        """Read all awaited jobs and resolve those that have ended; return the seconds it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        wanted = iter(list(self._waiters.items()))
        while some := list(islice(wanted, _JOBS_PER_READ)):
            jobs = await self._store.get([job_id for _, job_id in some])
            for (waiter, job_id), job in zip(some, jobs, strict=True):
                if job is None:
                    _fail(waiter, missing(job_id))
                elif job.is_final and not waiter.done():
                    waiter.set_result(job)
        return loop.time() - began

    async def _pause(self, took: float) -> None:
        if len(self._waiters) > _FEW_WAITERS:  # many waiters: leave the store time for claims
            await asyncio.sleep(min(took * _IDLE_PER_BUSY, self._poll))
        await _until_woken(self._woken, self._poll)

    def _fail_all(self, error: Exception) -> None:
        for waiter in list(self._waiters):
            _fail(waiter, error)


async def until_over(store: Store, group_id: str, *, poll: float) -> bool:
    """Wait until every member of a group has ended; return False if there is no such group."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: Notification) -> None:
        if not woken.is_set():
            with suppress(RuntimeError):  # the loop is closed: nothing waits on it
                loop.call_soon_threadsafe(woken.set)

    unsubscribe = store.subscribe(wake, topics=[Topic.ENDED])
    try:
        while True:
            began = loop.time()
            [is_over] = await store.groups_finished([group_id])
            if is_over is not False:
                return is_over is True
            # Members may end by the thousand: leave the store time for claims.
            await asyncio.sleep(min((loop.time() - began) * _IDLE_PER_BUSY, poll))
            await _until_woken(woken, poll)
    finally:
        unsubscribe()


async def _until_woken(woken: asyncio.Event, poll: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(poll):
            await woken.wait()
    woken.clear()


def job_id_of(text: str) -> JobId:
    """Return `text` if it can be a job's id; JobNotFound otherwise."""
    if not isinstance(text, str) or not text.isascii() or not 0 < len(text) <= _MAX_ID_LENGTH:
        raise missing(text)
    return JobId(text)


async def find(store: Store, job_id: JobId) -> Job:
    """Return the job as it is stored now; JobNotFound if there is none."""
    job = (await store.get([job_id]))[0]
    if job is not None:
        return job
    why = await store.why_quarantined(job_id) if isinstance(store, Quarantining) else None
    raise missing(job_id) if why is None else JobNotFound(f"job {job_id} is quarantined: {why}")


async def last_of_chain(store: Store, job: Job) -> Job:
    """Return the last job of a retry chain; the job itself if it has no successor."""
    if not job.is_final or job.state is State.SUCCEEDED:
        return job
    chain = await store.chain(job.id)
    return chain[-1] if chain and chain[-1].id != job.id else job


def missing(job_id: object) -> JobNotFound:
    """Return the error for a job that is not stored."""
    shown = ascii(job_id[:80] if isinstance(job_id, str) else job_id)
    return JobNotFound(
        f"no job {shown[:80]} is in this store; it was never stored, or pruned since"
    )


def _fail(waiter: "asyncio.Future[Job]", error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
