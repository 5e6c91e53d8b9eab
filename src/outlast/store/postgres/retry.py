"""Retry of idempotent operations while the server is unavailable."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from outlast.errors import StoreUnavailable
from outlast.store.postgres.connection import (
    CONNECTION_ERRORS,
    is_connection_error,
    translate_error,
)
from outlast.store.postgres.url import PostgresUrl

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
"""Seconds between two attempts, at most; the pause is random up to that."""


async def retry_while_unavailable(
    operation: Callable[[], Awaitable[T]],
    address: PostgresUrl,
    draw: Callable[[], float] = random.random,
) -> T:
    """Return the result of an idempotent operation; repeat it while the server is unavailable.

    Errors are translated. Raises StoreUnavailable after `address.wait` seconds.
    """
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + address.wait, FIRST_PAUSE_S
    while True:
        try:
            return await operation()
        except (StoreUnavailable, *CONNECTION_ERRORS) as error:
            if not isinstance(error, StoreUnavailable) and not is_connection_error(error):
                raise translate_error(error, address) from error
            if loop.time() + pause >= until:
                raise translate_error(error, address) from error
        except Exception as error:
            translated = translate_error(error, address)
            if translated is error:
                raise
            raise translated from error
        await asyncio.sleep(pause * draw())
        pause = min(pause * 2, MAX_PAUSE_S)
