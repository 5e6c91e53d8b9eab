"""The trigger loop: sleeps until the next slot, and leaves the work to one process at a time."""

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
"""Held by whoever triggers. It is thrift: without it all would try, and one would win each slot."""

STANDBY_POLL_S: Final = 1.0
"""How often the others look whether the lock is free, in seconds; as rarely as for jobs, if that
is rarer, for there are stores where each look is paid for."""

MAX_STANDBY_POLL_S: Final = 5.0

PREPARE_AHEAD: Final = timedelta(seconds=5)
"""How long before a trigger what it fires is made ready."""

MIN_PREPARE_TIME_S: Final = 0.5
"""So shortly before a trigger, in seconds, nothing more is made ready: it might be late for it."""

WAKE_MARGIN_S: Final = 0.1
"""Seconds by which it is sure to be that near when it looks again."""

ERROR_PAUSE_S: Final = 1.0

MAX_SLEEP_POLLS: Final = 20
"""How many polls long it sleeps at most: as late may it be for a slot of a schedule just saved."""


async def run_trigger_loop(
    store: Store, new_id: Callable[[], JobId], poll: timedelta, *, by_turns: bool = True
) -> None:
    """Trigger what is due, on time, until cancelled.

    `by_turns`: one process at a time does it, and the others stand by.
    """
    trigger, complaint = Trigger(store, new_id), OutageLog(log, "trigger schedules")
    stand_by = min(max(STANDBY_POLL_S, poll.total_seconds()), MAX_STANDBY_POLL_S)
    hold: HeldLock | None = None
    try:
        while True:
            try:
                hold = hold or (await store.acquire_lock(LEADER_LOCK) if by_turns else None)
                is_our_turn = hold is not None or not by_turns
                pause = await _step(trigger, poll.total_seconds()) if is_our_turn else stand_by
                complaint.recovered()
            except OperatorError as error:
                if isinstance(error, StoreClosed):
                    raise
                complaint.failed(error)
                pause = ERROR_PAUSE_S
            await asyncio.sleep(pause)
    finally:
        if hold is not None:
            await hold.release()


async def sync_declared(sync: Callable[[], Awaitable[None]]) -> None:
    """Bring what the code declares into the store, however long that takes to be ready for it.

    What cannot be is said, and keeps nobody from triggering the rest.
    """
    while True:
        try:
            return await sync()
        except OperatorError as error:
            if isinstance(error, StoreClosed):
                raise
            log.warning("cannot write the declared schedules yet, will try again: %s", error)
            await asyncio.sleep(ERROR_PAUSE_S)
        except CallerError as error:
            log.error("the declared schedules are not all right: %s", error)  # noqa: TRY400 - one clear line
            return None


async def _step(trigger: Trigger, poll: float) -> float:
    """One round; how many seconds until the next. Never very long: others add schedules."""
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
        log.exception("a round of triggers failed; it will be tried again")
        return ERROR_PAUSE_S
    took = asyncio.get_running_loop().time() - began
    return min(MAX_SLEEP_POLLS * poll, max(0.0, left - took))
