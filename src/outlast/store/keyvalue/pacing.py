"""Pace of the requests to a server: repeats refused ones, and slows all down while it throttles."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from outlast.errors import OperatorError, StoreBusy, StoreUnavailable

Answer = TypeVar("Answer")

MAX_TRIES: Final = 6
"""Times that one request is sent while the server throttles it."""

FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 0.5
"""Seconds between two tries of a request: doubled after each one, up to the maximum."""

FIRST_DELAY_S: Final = 0.05
MAX_DELAY_S: Final = 1.0
"""Mean seconds by which every request waits: doubled while the server throttles."""

HALF_LIFE_S: Final = 2.0
"""Seconds in which that delay halves when the server throttles no more."""

BUSY: Final = (StoreBusy,)
BUSY_OR_UNAVAILABLE: Final = (StoreBusy, StoreUnavailable)


class RequestPace:
    """One per engine, shared by all its requests; time and randomness are given by tests.

    All pauses are random up to their length (full jitter), so that requests spread.
    """

    def __init__(
        self,
        *,
        draw: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        block: Callable[[float], object] = time.sleep,
    ) -> None:
        self._draw = draw
        self._monotonic = monotonic
        self._sleep = sleep
        self._block = block
        self._delay = 0.0
        self._raised_at = 0.0

    @property
    def delay(self) -> float:
        """Mean seconds by which a request waits now before it is sent."""
        faded = self._delay * 0.5 ** ((self._monotonic() - self._raised_at) / HALF_LIFE_S)
        return faded if faded >= FIRST_DELAY_S / 10 else 0.0

    def throttled(self) -> None:
        """Slow down, once for all requests that were refused at about the same time."""
        delay, since = self.delay, self._monotonic() - self._raised_at
        if not delay or since >= delay:
            self._delay = min(MAX_DELAY_S, max(FIRST_DELAY_S, 2 * delay))
            self._raised_at = self._monotonic()

    async def repeat(
        self,
        ask: Callable[[], Awaitable[Answer]],
        *,
        on: tuple[type[OperatorError], ...] = BUSY,
    ) -> Answer:
        """Return the answer of a request; send it up to MAX_TRIES times while it raises `on`."""
        for number in range(MAX_TRIES):
            if self.delay:
                await self._sleep(2 * self.delay * self._draw())
            try:
                return await ask()
            except on as error:
                self._note(error, number)
            await self.pause(number)
        raise AssertionError  # the last error was raised

    def repeat_blocking(
        self, ask: Callable[[], Answer], *, on: tuple[type[OperatorError], ...] = BUSY
    ) -> Answer:
        """Do as `repeat` does, for a caller without an event loop."""
        for number in range(MAX_TRIES):
            try:
                return ask()
            except on as error:
                self._note(error, number)
            self._block(self._pause_after(number))
        raise AssertionError  # the last error was raised

    async def pause(self, number: int) -> None:
        """Wait before the next try of a request that was sent `number` + 1 times."""
        await self._sleep(self._pause_after(number))

    def _note(self, error: OperatorError, number: int) -> None:
        """Slow down if the server throttles; raise the error of the last try."""
        if isinstance(error, StoreBusy):
            self.throttled()
        if number == MAX_TRIES - 1:
            raise error

    def _pause_after(self, number: int) -> float:
        return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(number, 10)) * self._draw()
