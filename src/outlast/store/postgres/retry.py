"""Asking again while the server is away, for as long as the address says."""

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

FIRST: Final = 0.05
LONGEST: Final = 1.0
"""Seconds between two attempts: the first pause and the longest, at random up to that."""


async def retry_while_unavailable(
    ask: Callable[[], Awaitable[T]], address: PostgresUrl, draw: Callable[[], float] = random.random
) -> T:
    """What it answers. Only for what may be done twice: an answer that was lost is asked for again.

    Errors come in our words; StoreUnavailable when `address.wait` seconds were not enough.
    """
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + address.wait, FIRST
    while True:
        try:
            return await ask()
        except (StoreUnavailable, *CONNECTION_ERRORS) as error:
            if not isinstance(error, StoreUnavailable) and not is_connection_error(error):
                raise translate_error(error, address) from error
            if loop.time() + pause >= until:
                raise translate_error(error, address) from error
        except Exception as error:
            better = translate_error(error, address)
            if better is error:
                raise
            raise better from error
        await asyncio.sleep(pause * draw())
        pause = min(pause * 2, LONGEST)
