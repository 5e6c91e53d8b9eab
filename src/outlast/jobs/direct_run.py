"""Direct run: reserve a queue, store the job before all others, wait for its claim."""

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
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.limits import repr_short
from outlast.core.reservation import NewReservation, Reservation, ReservationId, check_request
from outlast.errors import InvalidArgument, InvalidJob, NoWorkerAvailable, OutlastError, QueueBusy
from outlast.jobs.client import Client
from outlast.jobs.completion import find
from outlast.jobs.explanation import explain_job
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.contract.reservations import Reserved

OnBusy = Literal["wait", "reject"]

_ON_BUSY: Final = ("wait", "reject")
_EXTENSIONS_PER_SPAN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectRunOptions:
    """Options of one `run_now`; None means the default of the settings."""

    wait: timedelta | None = None  # for the queue and a worker together
    on_busy: str | None = None
    request: str | None = None
    max_attempts: int | None = None  # a direct job is not retried by default

    @classmethod
    def new(
        cls,
        *,
        wait: Duration | None,
        on_busy: str | None,
        request: str | None,
        max_attempts: int | None,
    ) -> "DirectRunOptions":
        """Return validated options; InvalidArgument names the one that cannot be used."""
        if on_busy is not None and on_busy not in _ON_BUSY:
            raise InvalidArgument(f"on_busy is {repr_short(on_busy)}; use {' or '.join(_ON_BUSY)}")
        try:
            span = None if wait is None else parse_duration(wait, what="wait")
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        named = None if request is None else check_request(request)
        return cls(wait=span, on_busy=on_busy, request=named, max_attempts=max_attempts)

    def require_unused(self) -> None:
        """Raise InvalidJob if an option is set that only `run_now` supports."""
        if (self.wait, self.on_busy, self.request) != (None, None, None):
            raise InvalidJob("wait, on_busy and request are for run_now; leave them out of enqueue")


def require_direct(job: NewJob, tx: Any) -> None:
    """Raise InvalidJob if an option of the job contradicts a direct run."""
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
    """Reserve the queue, store the job before all others, and wait until a worker claims it.

    Raises QueueBusy if the queue is paused or reserved by another call, NoWorkerAvailable if no
    worker claims the job in time. After any error, and after a cancellation of the caller, the
    job is cancelled and the reservation is released.
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
            return await call.run(wait, waits_if_busy=how.on_busy != "reject")
        except BaseException:
            await call.withdraw()
            raise


class _DirectRun:
    """One direct run, from the reservation of its queue to the claim of its job."""

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
        """Subscribe to ends of jobs and claims of direct jobs for a block."""

        def wake(_: Notification) -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing waits on it
                self._loop.call_soon_threadsafe(self._woken.set)

        unsubscribe: Callable[[], None] = self._store.subscribe(wake, topics=[Topic.ENDED])
        try:
            yield
        finally:
            unsubscribe()

    async def run(self, wait: timedelta, *, waits_if_busy: bool) -> JobId:
        """Reserve, store and wait for the claim; return the id of the job."""
        deadline = self._loop.time() + wait.total_seconds()
        while (busy := await self._reserve()) is not None:
            if not waits_if_busy or self._loop.time() >= deadline:
                raise _busy(busy)
            await self._pause(deadline)
        await self._wait_for_claim(deadline, wait)
        return self._job.id

    async def withdraw(self) -> None:
        """Cancel the job and release the queue; shielded from further cancellations."""
        leaving = asyncio.ensure_future(self._withdraw())
        self._client.leaving.add(leaving)
        leaving.add_done_callback(self._client.leaving.discard)
        await asyncio.shield(leaving)

    async def _reserve(self) -> Reservation | None:
        """Return the reservation of another call, or None if this call holds the queue."""
        self._woken.clear()
        await self._refuse_paused()
        # Shielded: a cancelled write may still commit, and must then be withdrawn.
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
        """Wait for the claim of the job; at the deadline cancel it: NoWorkerAvailable."""
        interval = self._new.span.total_seconds() / _EXTENSIONS_PER_SPAN
        extend_at = self._loop.time() + interval
        while True:
            self._woken.clear()
            job = await find(self._store, self._job.id)
            if job.token:
                return
            if job.is_final:
                raise NoWorkerAvailable(
                    f"job {job.id} is {job.state} ({job.reason}) before any worker took it; "
                    "call run_now again"
                )
            now = self._loop.time()
            if now >= deadline:
                stopped_by = await self._blocking_gate(job)
                if await self._give_up(job):
                    raise _no_worker(job, wait, stopped_by)
            if now >= extend_at:
                await self._store.extend_reservation(self._new.id, span=self._new.span)
                extend_at = now + interval
            await self._pause(min(deadline, extend_at))

    async def _blocking_gate(self, job: Job) -> str:
        limit = self._client.settings.max_unfit
        found = await explain_job(self._store, job.id, max_unfit=limit)
        stop = None if found is None else found.stop
        return "it was about to be claimed" if stop is None else stop.text

    async def _give_up(self, job: Job) -> bool:
        """Cancel the waiting job; return False if a worker has claimed it."""
        change = decide(job, CancelRequested("no_worker"), new_id=self._client.ids.job)
        return (await self._store.apply([change]))[0]

    async def _withdraw(self) -> None:
        if self._asking is None:
            return
        with suppress(OutlastError):  # the job has ended, or the reservation expires
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
