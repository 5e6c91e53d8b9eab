"""One of a thing for each event loop: what asyncio makes belongs to the loop that used it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Makes one when a loop first asks; `drop` gets those of loops that were closed since.

    Loops in any number of threads may ask.
    """

    def __init__(self, make: Callable[[], T], drop: Callable[[T], object] = lambda _: None) -> None:
        self._make = make
        self._drop = drop
        self._made: dict[asyncio.AbstractEventLoop, T] = {}
        self._lock = threading.Lock()

    def mine(self) -> T:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._made:
                self._drop_closed()
                self._made[loop] = self._make()
            return self._made[loop]

    def take_all(self) -> list[tuple[asyncio.AbstractEventLoop, T]]:
        """Every one whose loop is open, with its loop; none is kept."""
        with self._lock:
            self._drop_closed()
            made, self._made = self._made, {}
        return list(made.items())

    def _drop_closed(self) -> None:
        for loop in [each for each in self._made if each.is_closed()]:
            self._drop(self._made.pop(loop))
