"""The database's clock, as tests hand it in."""

from datetime import datetime, timedelta
from typing import Final

from outlast.clock import MICROSECOND
from outlast.testing.clock import FakeClock

RESTART: Final = timedelta(days=365) // MICROSECOND


class DatabaseClock:
    """A fake clock that runs on while machines restart: for so long that every lease is over.

    The database judges leases by its own clock, which no restart sets back.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._boots = [clock.boot_id()]

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> int:
        if self.boot_id() != self._boots[-1]:
            self._boots.append(self.boot_id())
        return self._clock.monotonic() + RESTART * len(self._boots)

    def boot_id(self) -> str:
        return self._clock.boot_id()
