"""The trigger loop: fires due slots, in one process at a time under a leader lock."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from outlast.core.ids import JobId
from outlast.errors import CallerError, OperatorError, StoreClosed
from outlast.scheduler.trigger import Trigger
from outlast.store.contract import Store
from outlast.store.contract.locks import HeldLock
from outlast.telemetry.outage_log import OutageLog

log = logging.getLogger("outlast.scheduler")

LEADER_LOCK: Final = "scheduler"
"""Lock of the process that triggers. It only saves work: each slot is claimed once without it."""

STANDBY_POLL_S: Final = 1.0
"""Seconds between two attempts of a standby process to acquire the lock.

A longer poll interval replaces it, since some stores charge for every request."""

MAX_STANDBY_POLL_S: Final = 5.0
"""Seconds between two attempts at most."""

PREPARE_AHEAD: Final = timedelta(seconds=5)
"""Time before a trigger at which its firings are prepared."""

MIN_PREPARE_TIME_S: Final = 0.5
"""Seconds before a trigger below which nothing is prepared, because it could be late."""

WAKE_MARGIN_S: Final = 0.1
"""Seconds added to the sleep, so that the next step is within PREPARE_AHEAD."""

ERROR_PAUSE_S: Final = 1.0
"""Seconds to wait after an error."""

MAX_SLEEP_POLLS: Final = 20
"""Polls the loop sleeps at most; a new schedule is picked up within that time."""


async def run_trigger_loop(
    store: Store, new_id: Callable[[], JobId], poll: timedelta, *, use_leader_lock: bool = True
) -> None:
    """Fire due slots until cancelled.

    With `use_leader_lock` one process at a time triggers and the others stand by.
    """
    trigger, outage = Trigger(store, new_id), OutageLog(log, "trigger schedules")
    standby_pause = min(max(STANDBY_POLL_S, poll.total_seconds()), MAX_STANDBY_POLL_S)
    lock: HeldLock | None = None
    try:
        while True:
            try:
                lock = lock or (await store.acquire_lock(LEADER_LOCK) if use_leader_lock else None)
                is_leader = lock is not None or not use_leader_lock
                pause = await _step(trigger, poll.total_seconds()) if is_leader else standby_pause
                outage.recovered()
            except OperatorError as error:
                if isinstance(error, StoreClosed):
                    raise
                outage.failed(error)
                pause = ERROR_PAUSE_S
            await asyncio.sleep(pause)
    finally:
        if lock is not None:
            await lock.release()


async def sync_declared(sync: Callable[[], Awaitable[None]]) -> None:
    """Write the declared schedules into the store; retry while the store is unavailable.

    An invalid declaration is logged and does not stop the trigger loop.
    """
    while True:
        try:
            return await sync()
        except OperatorError as error:
            if isinstance(error, StoreClosed):
                raise
            log.warning("cannot write declared schedules, will try again: %s", error)
            await asyncio.sleep(ERROR_PAUSE_S)
        except CallerError as error:
            log.error("declared schedules are invalid: %s", error)  # noqa: TRY400 - complete message
            return None


async def _step(trigger: Trigger, poll: float) -> float:
    """Run one round; return the seconds until the next, bounded because schedules are added."""
    began = asyncio.get_running_loop().time()
    try:
        done = await trigger.run_once()
        if done.next_trigger_at is None:
            return MAX_SLEEP_POLLS * poll
        left = (done.next_trigger_at - done.now).total_seconds()
        if left > PREPARE_AHEAD.total_seconds():
            return min(MAX_SLEEP_POLLS * poll, left - PREPARE_AHEAD.total_seconds() + WAKE_MARGIN_S)
        if left > MIN_PREPARE_TIME_S:
            await trigger.prepare(done.next_trigger_at, PREPARE_AHEAD)
    except OperatorError:
        raise
    except Exception:
        log.exception("trigger round failed; it will be tried again")
        return ERROR_PAUSE_S
    took = asyncio.get_running_loop().time() - began
    return min(MAX_SLEEP_POLLS * poll, max(0.0, left - took))
