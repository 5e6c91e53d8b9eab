"""The trigger loop: fires due slots on time, and overdue ones whichever process has the lock."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from outlast.clock import MICROSECOND, Clock
from outlast.core.ids import JobId
from outlast.errors import CallerError, OperatorError, StoreClosed
from outlast.scheduler.declaration_check import DeclarationCheck
from outlast.scheduler.trigger import Trigger
from outlast.store.contract import Store
from outlast.store.contract.locks import HeldLock
from outlast.store.contract.notifications import Notification, Topic
from outlast.telemetry.outage_log import OutageLog

log = logging.getLogger("outlast.scheduler")

LEADER_LOCK: Final = "scheduler"
"""Lock of the process that triggers. It only saves work: each slot is claimed once without it."""

LOCK_ATTEMPT_S: Final = 5.0
"""Seconds between two attempts of a standby process to acquire the lock."""

OVERDUE_S: Final = 0.5
"""Seconds after its time at which a standby process fires a slot, without the lock."""

STANDBY_SPREAD_S: Final = 0.3
"""Seconds over which standby processes spread, so that the first one leaves nothing to the others.

With OVERDUE_S it is less than the shortest `misfire_grace`: such a slot is not missed."""

PREPARE_AHEAD: Final = timedelta(seconds=5)
"""Time before a trigger at which its firings are prepared."""

MIN_PREPARE_TIME_S: Final = 0.5
"""Seconds before a trigger below which nothing is prepared, because it could be late."""

WAKE_MARGIN_S: Final = 0.1
"""Seconds added to a sleep until the time to prepare, so that it ends within PREPARE_AHEAD."""

TIMER_MARGIN_S: Final = 0.001
"""Seconds added to a sleep until a slot, so that a timer that rings early finds it due."""

ERROR_PAUSE_S: Final = 1.0
"""Seconds to wait after an error."""

NO_PROGRESS_PAUSE_S: Final = 0.1
"""Seconds to wait after a round that left a due slot and wrote none."""

MAX_SLEEP_S: Final = 5.0
"""Seconds the loop sleeps at most. A longer poll interval replaces it.

A saved schedule wakes the loop by a notification; this is the fallback if none arrives."""

MAX_SLEEP_POLLS: Final = 20
"""Poll intervals the loop sleeps at most."""

CHECK_INTERVAL_S: Final = 60.0
"""Seconds between two checks for schedules that no worker declares any more."""

Wait = Callable[[asyncio.Event, float], Awaitable[None]]
"""Waits until the event is set, for some seconds at most."""


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, for some seconds at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class TriggerLoop:
    """Fires due slots until cancelled.

    It sleeps until the next slot of every schedule and wakes when a schedule is saved. With
    `use_leader_lock` one process at a time triggers; the others only fire slots that are overdue.
    """

    def __init__(
        self,
        store: Store,
        new_id: Callable[[], JobId],
        poll: timedelta,
        *,
        clock: Clock,
        random: Callable[[], float],
        use_leader_lock: bool = True,
        changed: asyncio.Event | None = None,
        wait: Wait = wait_for_event,
    ) -> None:
        """Prepare the loop; setting `changed` wakes it, as a saved schedule does."""
        self._store = store
        self._trigger = Trigger(store, new_id, clock)
        self._monotonic = clock.monotonic
        self._random = random
        self._use_lock = use_leader_lock
        self._changed = changed or asyncio.Event()
        self._wait = wait
        seconds = poll.total_seconds()
        self._max_sleep = min(MAX_SLEEP_POLLS * seconds, max(MAX_SLEEP_S, seconds))
        self._lock: HeldLock | None = None
        self._last_attempt: int | None = None
        self._declarations = DeclarationCheck(store)
        self._last_check = self._monotonic()
        self._check: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        unsubscribe = self._subscribe()
        outage = OutageLog(log, "trigger schedules")
        try:
            while True:
                self._changed.clear()
                pause = await self._guarded_step(outage)
                await self._wait(self._changed, pause)
        finally:
            unsubscribe()
            if self._check is not None:
                self._check.cancel()
                await asyncio.wait([self._check])
            if self._lock is not None:
                await self._lock.release()

    def _subscribe(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def wake(_: Notification) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._changed.set)

        return self._store.subscribe(wake, topics=[Topic.SCHEDULES])

    async def _guarded_step(self, outage: OutageLog) -> float:
        """Run one step; return the seconds until the next."""
        try:
            pause = await (self._lead() if await self._is_leader() else self._stand_by())
        except StoreClosed:
            raise
        except OperatorError as error:
            outage.failed(error)
            return ERROR_PAUSE_S
        except Exception:
            log.exception("trigger round failed; it will be tried again")
            return ERROR_PAUSE_S
        outage.recovered()
        self._start_check()
        return min(self._max_sleep, max(0.0, pause))

    def _start_check(self) -> None:
        """Check the declarations once a minute, in a task: no slot waits for it."""
        leads = self._lock is not None or not self._use_lock
        is_over = self._check is None or self._check.done()
        if leads and is_over and self._elapsed(self._last_check) >= CHECK_INTERVAL_S:
            self._last_check = self._monotonic()
            self._check = asyncio.create_task(self._check_declarations(), name="outlast-declared")

    async def _check_declarations(self) -> None:
        try:
            await self._declarations.run_once()
        except OperatorError as error:
            log.warning("cannot check the declared schedules, will try again: %s", error)
        except Exception:
            log.exception("check of the declared schedules failed; it will be tried again")

    async def _is_leader(self) -> bool:
        if not self._use_lock:
            return True
        if self._lock is not None and self._lock.is_lost:
            await self._lock.release()
            self._lock = None
        if self._lock is None and self._elapsed(self._last_attempt) >= LOCK_ATTEMPT_S:
            await self._acquire_lock()
        return self._lock is not None

    async def _acquire_lock(self) -> None:
        self._last_attempt = self._monotonic()
        self._lock = await self._store.acquire_lock(LEADER_LOCK, lasting=True)
        if self._lock is not None:
            log.info("scheduler lock acquired: this process triggers the schedules")

    async def _lead(self) -> float:
        """Fire due slots and prepare the next ones; return the seconds until the next step."""
        done = await self._trigger.run_once()
        if done.next_trigger_at is None:
            return self._max_sleep
        left = _seconds(done.next_trigger_at, done.now)
        if left <= 0:
            return 0.0 if done.outcomes else NO_PROGRESS_PAUSE_S
        if left > PREPARE_AHEAD.total_seconds():
            return left - PREPARE_AHEAD.total_seconds() + WAKE_MARGIN_S
        if left > MIN_PREPARE_TIME_S:
            await self._trigger.prepare(done.next_trigger_at, PREPARE_AHEAD)
        return left - self._elapsed(done.read_at) + TIMER_MARGIN_S

    async def _stand_by(self) -> float:
        """Fire overdue slots: the process with the lock is frozen, cut off or slow."""
        read_at = self._monotonic()
        due = await self._store.due_schedules(limit=1)
        first = due.schedules[0].next_trigger_at if due.schedules else due.next_trigger_at
        if first is None:
            return self._max_sleep
        left = OVERDUE_S + _seconds(first, due.now)
        if left > 0:
            return left - self._elapsed(read_at) + STANDBY_SPREAD_S * self._random()
        done = await self._trigger.run_once()
        if done.outcomes:
            log.info("overdue slots fired: the process with the scheduler lock did not fire them")
        await self._acquire_lock()
        return 0.0 if done.outcomes else NO_PROGRESS_PAUSE_S

    def _elapsed(self, since: int | None) -> float:
        return float("inf") if since is None else (self._monotonic() - since) / 1_000_000


async def sync_declared(sync: Callable[[], Awaitable[None]], *, what: str = "schedules") -> None:
    """Write the declared schedules or queues into the store; retry while the store is unavailable.

    An invalid declaration is logged and does not stop the trigger loop.
    """
    while True:
        try:
            return await sync()
        except OperatorError as error:
            if isinstance(error, StoreClosed):
                raise
            log.warning("cannot write declared %s, will try again: %s", what, error)
            await asyncio.sleep(ERROR_PAUSE_S)
        except CallerError as error:
            log.error("declared %s were not written: %s", what, error)  # noqa: TRY400 - complete message
            return None


def _seconds(until: datetime, now: datetime) -> float:
    return (until - now) / MICROSECOND / 1_000_000
