"""A loop is a step plus `every`: interval, jitter, error backoff and stopping, written once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from outlast.errors import OperatorError, StoreClosed, StoreMoved, StoreSealed
from outlast.telemetry.outage_log import OutageLog

log = logging.getLogger("outlast.worker")

MAX_PAUSE_S = 2.0


async def run_periodically(
    span: timedelta,
    step: Callable[[], Awaitable[object]],
    *,
    what: str | None = None,
    random: Callable[[], float],
    poke: asyncio.Event | None = None,
    patience: int = 2,
) -> None:
    """Run `step`, wait about `span` (sooner when poked), and again, until cancelled.

    The wait is drawn from 80 to 120 % of the span, so that a fleet does not march in step. A step
    that fails is logged and tried again, each time after a pause `patience` times as long. What an
    operator can put right is a line that says `what` cannot be done, and not at every try.
    """
    name = getattr(step, "__qualname__", "step")
    complaint = OutageLog(log, what or f"do {name}")
    failed = 0
    while True:
        try:
            await step()
            failed = 0
            complaint.recovered()
        except StoreClosed:
            raise
        except (StoreSealed, StoreMoved) as error:  # said by whoever takes jobs
            log.debug("%s waits: %s", name, error)
        except OperatorError as error:
            failed += 1
            complaint.failed(error)
        except Exception:
            failed += 1
            log.exception("%s failed %d times in a row; it will be tried again", name, failed)
        pause = span.total_seconds() * (0.8 + 0.4 * random())
        await _pause(
            min(MAX_PAUSE_S, pause * patience ** min(failed, 10)) if failed else pause, poke
        )


async def _pause(seconds: float, poke: asyncio.Event | None) -> None:
    if poke is None:
        await asyncio.sleep(seconds)
        return
    with suppress(TimeoutError):  # asyncio.wait_for of 3.11 can swallow a cancellation
        async with asyncio.timeout(seconds):
            await poke.wait()
    poke.clear()
