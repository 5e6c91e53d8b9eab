"""One of a thing for each event loop: what asyncio makes belongs to the loop that used it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Makes one when a loop first asks, and forgets those of loops that were closed."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    def mine(self) -> T:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made = {each: own for each, own in self._made.items() if not each.is_closed()}
            self._made[loop] = self._make()
        return self._made[loop]

    def take_all(self) -> Iterator[tuple[asyncio.AbstractEventLoop, T]]:
        """Every one whose loop is open, with its loop; none is kept."""
        made, self._made = self._made, {}
        return ((loop, own) for loop, own in made.items() if not loop.is_closed())
