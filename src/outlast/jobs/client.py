"""Client of a store: opened on first use; finds, awaits and cancels jobs."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from outlast.concurrency import PerLoop
from outlast.config import Settings
from outlast.core.decide import decide
from outlast.core.duration import Duration, parse_duration
from outlast.core.envelope import label, plain, readable
from outlast.core.event import CancelRequested
from outlast.core.failure import split_error
from outlast.core.ids import Ids, JobId
from outlast.core.job import Job
from outlast.core.limits import MAX_REASON, read_json, repr_short, truncate
from outlast.core.state import FINAL, State
from outlast.errors import (
    JobNotSucceeded,
    OutlastError,
    StoreClosed,
    TransitionRefused,
    TypeNotFound,
    WaitTimeout,
)
from outlast.jobs.completion import CompletionWaiter, find, last_of_chain
from outlast.jobs.envelopes import Envelopes, PlainText
from outlast.jobs.explanation import explain_job
from outlast.process_identity import process_name
from outlast.store.contract import Store

LoadResult = Callable[[str, str | None], Any]
"""From a job type's name and the stored text of a result to the result."""

DumpParams = Callable[[str, dict[str, Any]], str]
"""From a job type's name and its params to their payload."""

_MAX_ATTEMPTS: Final = 100

EXPLAIN_TIMEOUT_S: Final = 2.0
"""Seconds that a wait which timed out spends on finding out why."""


def _no_types(type_name: str, _: dict[str, Any]) -> str:
    raise TypeNotFound(
        f"job type {repr_short(type_name)} is not registered; this client knows none"
    )


async def _do_nothing(_: Store) -> None:
    return


def _untyped_result(type_name: str, text: str | None) -> Any:
    what = f'result of "{type_name}"'
    return None if text is None else read_json(plain(text, what), what=what)


class Client:
    """One store, opened on first use and closed once, and the calls on its jobs."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        ids: Ids,
        load_result: LoadResult = _untyped_result,
        dump_params: DumpParams = _no_types,
        opened: Callable[[Store], Awaitable[object]] = _do_nothing,
        on_queue: Callable[[str], None] = lambda _: None,
        envelopes: Envelopes | None = None,
    ) -> None:
        """Create a client; `opened` is awaited once the store is open, before its first use.

        `on_queue` is called with a queue that a caller names in the options of an enqueue.
        """
        self.on_queue = on_queue
        self.envelopes = envelopes or Envelopes()
        self._opened = opened
        self.dump_params = dump_params
        self.settings = settings
        self.leaving: set[asyncio.Future[None]] = set()
        self.load_result = load_result
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
        """Seconds between two polls without a notification."""
        return self.settings.poll.total_seconds()

    @contextmanager
    def using(self, store: Store, ids: Ids) -> Iterator[None]:
        """Use another store for a block; restore the old one afterwards.

        The caller closes both stores.
        """
        kept = dict(vars(self))
        self._use_store(store, ids)
        try:
            yield
        finally:
            self.__dict__ = kept  # restores every attribute

    async def store(self) -> Store:
        """Return the store, opened if necessary; concurrent calls open it once."""
        if not self._is_open:
            async with self._opening.mine():
                await self._open()
        return self._store

    async def open(self) -> None:
        """Open the store now; also after `close`."""
        self._closed = False
        await self.store()

    async def close(self) -> None:
        """Close the store; idempotent."""
        if self.leaving:
            await asyncio.wait(self.leaving)
        self._closed = True
        async with self._opening.mine():
            self._is_open = False
            self._caller = None  # the store releases its lock
            for loop, waiting in self._waiting.take_all():
                await _close(waiting, loop)
            await self._store.close()

    async def caller_lock_name(self) -> str:
        """Return this caller's lock name; the lock lasts until the store or process ends."""
        store = await self.store()
        async with self._opening.mine():
            if self._caller is None:
                name = process_name("caller.", str(uuid.uuid4()))
                await store.acquire_lock(name, lasting=True)
                self._caller = name
            return self._caller

    async def find(self, job_id: JobId) -> Job:
        """Return the job as it is stored now; JobNotFound if there is none."""
        return self.envelopes.reveal(await find(await self.store(), job_id))

    async def wait(self, job_id: JobId, *, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109 - ours names the job
        """Wait until a job has ended; return the last job of its retry chain."""
        await self.store()
        seconds = (
            None if timeout is None else parse_duration(timeout, what="timeout").total_seconds()
        )
        try:
            async with asyncio.timeout(seconds) as limit:
                return self.envelopes.reveal(await self._waiting.mine().ended(job_id))
        except TimeoutError as error:
            if not limit.expired():
                raise
            why = await self._why_waiting(job_id)
            raise WaitTimeout(
                f"job {job_id} has not ended within {timeout}{why and f': {why}'}. It is not "
                "cancelled: wait again, or cancel it"
            ) from error

    async def result(self, job_id: JobId, *, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - same
        """Wait for the result of a job; JobNotSucceeded if it ended otherwise."""
        job = await self.wait(job_id, timeout=timeout)
        runs = await (await self.store()).runs(job.id)
        last = runs[-1] if runs else None
        if job.state is State.SUCCEEDED:
            text = self.envelopes.unwrap_result(None if last is None else last.result, job)
            return self.load_result(job.type, text)
        shown = None if last is None else self.envelopes.reveal(last).error
        stored = None if last is None else last.error
        raise not_succeeded(job.id, job.type, job.state, job.reason, shown, detail_of(stored))

    async def cancel(self, job_id: JobId, *, reason: str | None = None) -> State:
        """Cancel the last job of a retry chain, or ask it to stop; return its state.

        `cancelled`: it will not run. `running`: its handler was asked to stop.
        """
        store = await self.store()
        why = None if reason is None else truncate(reason, MAX_REASON)
        for _ in range(_MAX_ATTEMPTS):
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
        raise TransitionRefused(
            f"job {job_id} was changed {_MAX_ATTEMPTS} times meanwhile; cancel it again"
        )

    async def _why_waiting(self, job_id: JobId) -> str:
        """Return the verdict of `explain` in one line; empty if the store does not answer."""
        with suppress(OutlastError, TimeoutError):
            async with asyncio.timeout(EXPLAIN_TIMEOUT_S):
                store = await self.store()
                last = await last_of_chain(store, await find(store, job_id))
                found = await explain_job(store, last.id, max_unfit=self.settings.max_unfit)
                return "" if found is None else found.verdict
        return ""

    async def _open(self) -> None:
        if self._closed:
            raise StoreClosed("this app was closed; use it inside `async with app:`")
        if not self._is_open:
            await self._store.open()
            await self._opened(self._store)
            self._is_open = True


def not_succeeded(
    job_id: JobId, kind: str, state: State, reason: str | None, error: str | None, detail: str
) -> JobNotSucceeded:
    """Return the error for a job whose result is wanted and that has none.

    Its message never shows what was decoded: `detail` comes from the error as stored.
    """
    why = "encrypted" if isinstance(reason, PlainText) else readable(reason)
    verb = "ended" if state in FINAL else "is"
    return JobNotSucceeded(
        f'job {job_id} of type "{kind}" {verb} {state} ({why}){detail}; it has no result',
        state=state,
        error=error,
    )


def detail_of(error: str | None) -> str:
    """Return the last line of a stored error; of an encoded one its class, never its message."""
    if error is None or not error.strip():
        return ""
    if label(error) is not None:
        return f": {split_error(error).type or 'error'}"
    return f": {error.strip().splitlines()[-1][:200]}"


async def _close(waiting: CompletionWaiter, loop: asyncio.AbstractEventLoop) -> None:
    """Close a waiter on its own loop, where its futures are resolved."""
    if loop is asyncio.get_running_loop():
        await waiting.close()
    elif loop.is_running():
        asyncio.run_coroutine_threadsafe(waiting.close(), loop)
    else:
        waiting.leave()
