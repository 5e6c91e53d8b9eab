"""Direct runs: a job takes the next place of its queue while its caller waits for a worker."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.duration import Duration, parse_duration
from outlast.core.event import CancelRequested
from outlast.core.explain import explain
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.limits import repr_short
from outlast.core.reservation import NewReservation, Reservation, ReservationId, check_request
from outlast.errors import InvalidArgument, InvalidJob, NoWorkerAvailable, OutlastError, QueueBusy
from outlast.jobs.client import Client
from outlast.jobs.completion import find
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.contract.reservations import Reserved

OnBusy = Literal["wait", "reject"]

_ON_BUSY: Final = ("wait", "reject")
_KEEPS_PER_SPAN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectRunOptions:
    """What one `run_now` wants; None leaves it to the settings."""

    wait: timedelta | None = None  # how long for the queue and for a worker, together
    on_busy: str | None = None
    request: str | None = None
    max_attempts: int | None = None  # a direct job is not retried unless that is asked

    @classmethod
    def new(
        cls,
        *,
        wait: Duration | None,
        on_busy: str | None,
        request: str | None,
        max_attempts: int | None,
    ) -> "DirectRunOptions":
        """All of it checked; InvalidArgument says which cannot be."""
        if on_busy is not None and on_busy not in _ON_BUSY:
            raise InvalidArgument(f"on_busy is {repr_short(on_busy)}; use {' or '.join(_ON_BUSY)}")
        try:
            span = None if wait is None else parse_duration(wait, what="wait")
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        named = None if request is None else check_request(request)
        return cls(wait=span, on_busy=on_busy, request=named, max_attempts=max_attempts)

    def require_unused(self) -> None:
        """InvalidJob if anything was asked that only `run_now` can do."""
        if (self.wait, self.on_busy, self.request) != (None, None, None):
            raise InvalidJob("wait, on_busy and request are for run_now; leave them out of enqueue")


def require_direct(job: NewJob, tx: Any) -> None:
    """InvalidJob if the job cannot be run at once as it was asked for."""
    if job.delivery is Delivery.ONCE:
        raise InvalidJob(
            f'"{job.type}" is delivered once per slot, and a direct run takes none; enqueue it '
            "with .options(slot=…)"
        )
    asked = {
        "tx": tx,
        "key": job.key,
        "active_key": job.active_key,
        "slot": job.slot,
        "delay": job.delay,
        "at": job.at,
        "start_within": job.start_within,
    }
    if given := [name for name, value in asked.items() if value is not None]:
        raise InvalidJob(f"{given[0]} makes no sense with run_now, which starts a job now or not "
                         "at all; leave it out, or enqueue the job")  # fmt: skip


async def run_now(client: Client, job: NewJob, how: DirectRunOptions) -> JobId:
    """Hold the queue, store the job before all others, and wait until a worker has taken it.

    QueueBusy if somebody else holds the queue, or it is paused; NoWorkerAvailable if nobody takes the job.
    Whatever else ends the wait, nothing is left of it: the job is cancelled, the queue free.
    """
    store, caller = await client.store(), await client.caller_lock_name()
    new = NewReservation(
        id=ReservationId(client.ids.job()),
        caller=caller,
        request=how.request or job.id,
        span=client.settings.reservation,
    )
    call = _DirectRun(client, store, new, job)
    wait = client.settings.direct_wait if how.wait is None else how.wait
    with call.listening():
        try:
            return await call.run(wait, patient=how.on_busy != "reject")
        except BaseException:
            await call.withdraw()
            raise


class _DirectRun:
    """One direct run, from the question for its queue to the answer that a worker has it."""

    def __init__(self, client: Client, store: Store, new: NewReservation, job: NewJob) -> None:
        self._client = client
        self._store = store
        self._new = new
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._asking: asyncio.Future[Reserved] | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Look again as soon as a job has ended or a direct one was taken."""

        def wake(_: Notification) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._woken.set)

        deaf: Callable[[], None] = self._store.subscribe(wake, topics=[Topic.ENDED])
        try:
            yield
        finally:
            deaf()

    async def run(self, wait: timedelta, *, patient: bool) -> JobId:
        deadline = self._loop.time() + wait.total_seconds()
        while (busy := await self._reserve()) is not None:
            if not patient or self._loop.time() >= deadline:
                raise _busy(busy)
            await self._pause(deadline)
        await self._wait_for_claim(deadline, wait)
        return self._job.id

    async def withdraw(self) -> None:
        """Leave nothing behind, though the one who called may be cancelled again meanwhile."""
        leaving = asyncio.ensure_future(self._withdraw())
        self._client.leaving.add(leaving)
        leaving.add_done_callback(self._client.leaving.discard)
        await asyncio.shield(leaving)

    async def _reserve(self) -> Reservation | None:
        """Who else holds the queue; None if this call does."""
        self._woken.clear()
        await self._refuse_paused()
        # Not to be cancelled half-way: what was asked may be written, and must be taken back then.
        self._asking = asyncio.ensure_future(self._store.reserve(self._new, self._job))
        reserved = await asyncio.shield(self._asking)
        if reserved.refused is not None:
            raise InvalidJob(f'a job of type "{self._job.type}" was refused: {reserved.refused}')
        held = reserved.reservation
        return held if held is not None and held.id != self._new.id else None

    async def _refuse_paused(self) -> None:
        queue = await self._store.queue(self._job.queue)
        if queue.pause is not None:
            until = queue.pause.until
            raise QueueBusy(
                f'queue "{queue.name}" is paused ({queue.pause.reason or "no reason given"}) '
                f"until {'it is resumed' if until is None else until.isoformat()}; resume it, or "
                "enqueue the job",
                queue=queue.name,
                until=until,
            )

    async def _wait_for_claim(self, deadline: float, wait: timedelta) -> None:
        """Wait until a worker has the job; NoWorkerAvailable when the wait is over, and the job with it."""
        pace = self._new.span.total_seconds() / _KEEPS_PER_SPAN
        keep_at = self._loop.time() + pace
        while True:
            self._woken.clear()
            job = await find(self._store, self._job.id)
            if job.token:
                return
            if job.is_final:
                raise NoWorkerAvailable(f"job {job.id} is {job.state} ({job.reason}) before any worker "
                               "took it; call run_now again")  # fmt: skip
            now = self._loop.time()
            if now >= deadline:
                stopped_by = await self._what_stops(job)
                if await self._give_up(job):
                    raise _no_worker(job, wait, stopped_by)
            if now >= keep_at:
                await self._store.extend_reservation(self._new.id, span=self._new.span)
                keep_at = now + pace
            await self._pause(min(deadline, keep_at))

    async def _what_stops(self, job: Job) -> str:
        situation = await self._store.wait_facts(job.id)
        stop = None if situation is None else explain(situation).stop
        return "it was about to be taken" if stop is None else stop.text

    async def _give_up(self, job: Job) -> bool:
        """Cancel it while it waits; False if a worker was quicker."""
        change = decide(job, CancelRequested("no_worker"), new_id=self._client.ids.job)
        return (await self._store.apply([change]))[0]

    async def _withdraw(self) -> None:
        if self._asking is None:
            return
        with suppress(OutlastError):  # it has ended, or it expires by itself
            if (await self._asking).created:
                await self._client.cancel(self._job.id, reason="withdrawn")

    async def _pause(self, until: float) -> None:
        seconds = min(self._client.settings.poll.total_seconds(), until - self._loop.time())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()


def _busy(held: Reservation) -> QueueBusy:
    return QueueBusy(
        f'resource busy: queue "{held.queue}" is held by {held.reserved_by} until '
        f"{held.expires_at.isoformat()} or longer; wait longer with .options(wait=…), or enqueue "
        "the job",
        queue=held.queue,
        until=held.expires_at,
    )


def _no_worker(job: Job, wait: timedelta, stopped_by: str) -> NoWorkerAvailable:
    return NoWorkerAvailable(
        f'no worker took job {job.id} of type "{job.type}" from queue "{job.queue}" within {wait}: '
        f"{stopped_by}. It is cancelled; see to that, wait longer, or enqueue it"
    )
