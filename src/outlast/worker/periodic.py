"""Periodic loop with jitter and error backoff, for every background step of a worker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from outlast.errors import OperatorError, StoreClosed, StoreMoved, StoreSealed
from outlast.telemetry.outage_log import OutageLog

log = logging.getLogger("outlast.worker")

MAX_PAUSE_S = 2.0
"""Seconds that the error backoff waits at most."""


async def run_periodically(
    interval: timedelta,
    step: Callable[[], Awaitable[object]],
    *,
    what: str | None = None,
    random: Callable[[], float],
    wake: asyncio.Event | None = None,
    error_backoff: int = 2,
) -> None:
    """Run `step` every `interval`, or earlier when `wake` is set, until cancelled.

    The pause is drawn from 80 to 120 % of the interval, so that workers do not run in step. A step
    that fails is logged and retried; each failure in a row multiplies the pause by `error_backoff`.
    An OperatorError is logged as "cannot `what`", not at every attempt. StoreClosed is raised.
    """
    name = getattr(step, "__qualname__", "step")
    outage = OutageLog(log, what or f"do {name}")
    failed = 0
    while True:
        try:
            await step()
            failed = 0
            outage.recovered()
        except StoreClosed:
            raise
        except (StoreSealed, StoreMoved) as error:  # the dispatcher logs it
            log.debug("%s waits: %s", name, error)
        except OperatorError as error:
            failed += 1
            outage.failed(error)
        except Exception:
            failed += 1
            log.exception("%s failed %d times in a row; it will be tried again", name, failed)
        pause = interval.total_seconds() * (0.8 + 0.4 * random())
        if failed:
            pause = min(MAX_PAUSE_S, pause * error_backoff ** min(failed, 10))
        await _pause(pause, wake)


async def _pause(seconds: float, wake: asyncio.Event | None) -> None:
    if wake is None:
        await asyncio.sleep(seconds)
        return
    with suppress(TimeoutError):  # asyncio.wait_for of Python 3.11 can swallow a cancellation
        async with asyncio.timeout(seconds):
            await wake.wait()
    wake.clear()
