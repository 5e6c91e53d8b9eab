"""Waiting for jobs to end: one look for all who wait."""

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
from outlast.store.contract.notifications import Notification, Topic

_AT_ONCE: Final = 500
_LONGEST_ID: Final = 64
_FEW: Final = 50
_IDLE_SHARE: Final = 4


class CompletionWaiter:
    """Hands each waiter its job when it has ended.

    A hint from the store makes it look at once, and the poll beneath makes it true. Everyone's
    jobs are read together, so that a thousand waiters cost a look, not a thousand.
    """

    def __init__(self, store: Store, *, poll: float) -> None:
        self._store = store
        self._poll = poll
        self._waiters: dict[asyncio.Future[Job], JobId] = {}
        self._looking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._unlisten: Callable[[], None] | None = None

    async def ended(self, job_id: JobId) -> Job:
        """The last job of that one's chain, once it has ended; JobNotFound if there is none."""
        tip = await self._end_of(job_id)
        while (next_one := await last_of_chain(self._store, tip)) is not tip:
            tip = next_one if next_one.is_final else await self._end_of(next_one.id)
        return tip

    async def close(self) -> None:
        """Let go; whoever still waits gets StoreClosed."""
        self._fail_all(StoreClosed("the app was closed while this job was being waited for"))
        self.leave()
        if self._looking is not None and not self._looking.done():
            self._looking.cancel()
            await asyncio.wait([self._looking])

    def leave(self) -> None:
        """Ask for no more hints."""
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None

    async def _end_of(self, job_id: JobId) -> Job:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = job_id  # before reading, so that it cannot end unseen in between
        try:
            job = await find(self._store, job_id)
            if not job.is_final:
                self._start()
                job = await waiter
        finally:
            self._waiters.pop(waiter, None)
        return job

    def _start(self) -> None:
        if self._looking is not None and not self._looking.done():
            return
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        if self._unlisten is None:
            self._unlisten = self._store.subscribe(self._hinted, topics=[Topic.ENDED])
        self._looking = self._loop.create_task(self._look_while_needed())

    def _hinted(self, _: Notification) -> None:
        """The store's thread, or any other, says that a job has ended."""
        loop = self._loop
        if loop is not None and self._waiters:
            with suppress(RuntimeError):  # that loop is closed, so nobody waits on it
                loop.call_soon_threadsafe(self._woken.set)

    async def _look_while_needed(self) -> None:
        try:
            while self._waiters:
                took = await self._look()
                await self._pause(took)
        except Exception as error:  # noqa: BLE001 - every waiter gets it
            self._fail_all(error)

    async def _look(self) -> float:
        """Read every job that is waited for and wake whose has ended; how long that took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        wanted = iter(list(self._waiters.items()))
        while some := list(islice(wanted, _AT_ONCE)):
            jobs = await self._store.get([job_id for _, job_id in some])
            for (waiter, job_id), job in zip(some, jobs, strict=True):
                if job is None:
                    _fail(waiter, missing(job_id))
                elif job.is_final and not waiter.done():
                    waiter.set_result(job)
        return loop.time() - began

    async def _pause(self, took: float) -> None:
        if len(self._waiters) > _FEW:  # looking must not crowd out those who do the work
            await asyncio.sleep(min(took * _IDLE_SHARE, self._poll))
        await _until_woken(self._woken, self._poll)

    def _fail_all(self, error: Exception) -> None:
        for waiter in list(self._waiters):
            _fail(waiter, error)


async def until_over(store: Store, group_id: str, *, poll: float) -> bool:
    """Wait until nothing of that group waits or runs; False if there is no such group."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def heard(_: Notification) -> None:
        if not woken.is_set():
            with suppress(RuntimeError):  # that loop is closed, so nobody waits on it
                loop.call_soon_threadsafe(woken.set)

    unlisten = store.subscribe(heard, topics=[Topic.ENDED])
    try:
        while True:
            began = loop.time()
            [is_over] = await store.groups_finished([group_id])
            if is_over is not False:
                return is_over is True
            # Members end by the thousand: looking must not crowd out those who do the work.
            await asyncio.sleep(min((loop.time() - began) * _IDLE_SHARE, poll))
            await _until_woken(woken, poll)
    finally:
        unlisten()


async def _until_woken(woken: asyncio.Event, poll: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(poll):
            await woken.wait()
    woken.clear()


def job_id_of(text: str) -> JobId:
    """`text`, if it could be a job's id; JobNotFound if no store can have one like it."""
    if not isinstance(text, str) or not text.isascii() or not 0 < len(text) <= _LONGEST_ID:
        raise missing(text)
    return JobId(text)


async def find(store: Store, job_id: JobId) -> Job:
    """The job as it stands; JobNotFound if there is none."""
    job = (await store.get([job_id]))[0]
    if job is None:
        raise missing(job_id)
    return job


async def last_of_chain(store: Store, job: Job) -> Job:
    """The last job of its chain; itself, when nothing follows it."""
    if not job.is_final or job.state is State.SUCCEEDED:
        return job
    chain = await store.chain(job.id)
    return chain[-1] if chain and chain[-1].id != job.id else job


def missing(job_id: object) -> JobNotFound:
    shown = ascii(job_id[:80] if isinstance(job_id, str) else job_id)
    return JobNotFound(
        f"no job {shown[:80]} is in this store; it was never stored, or pruned since"
    )


def _fail(waiter: "asyncio.Future[Job]", error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
