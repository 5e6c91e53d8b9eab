"""Steps of a starting worker: repeated while the store is away, ended by a signal."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from outlast.errors import StoreBusy, StoreFull, StoreSealed, StoreUnavailable
from outlast.telemetry.outage_log import OutageLog

log = logging.getLogger("outlast.worker")

T = TypeVar("T")

TRANSIENT_ERRORS: Final = (StoreBusy, StoreFull, StoreSealed, StoreUnavailable)
"""Errors of the store that a starting worker waits out."""


async def retry_transient(step: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a step of the start; repeat it while it raises a transient error."""
    outage = OutageLog(log, "start")
    while True:
        try:
            result = await step()
        except TRANSIENT_ERRORS as error:
            outage.failed(error)
            await asyncio.sleep(0.5)
        else:
            outage.recovered()
            return result


async def first(step: Awaitable[T], event: asyncio.Event) -> T | None:
    """Return the result of `step`; None if the event is set first, which cancels the step."""
    task = asyncio.ensure_future(step)
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        return task.result()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return None
