"""When a lease is over, by a clock nobody can set."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from outlast.clock import MICROSECOND, Clock, SystemClock, to_micros
from outlast.errors import ClockSkewTooLarge
from outlast.store.keyvalue.engine import Engine

SHARED: Final = "shared"
"""The boot of a clock that all machines share."""


@dataclass(frozen=True, slots=True)
class LeaseExpiry:
    """When a lease is over: a reading of the lease clock, and the boot that it belongs to."""

    at: int
    boot: str


class LeaseClock:
    """Ends of leases from spans. `margin` is by how much two machines' clocks may differ."""

    def __init__(self, clock: Clock, *, margin: timedelta = timedelta(0)) -> None:
        self._clock = clock
        self._margin = margin // MICROSECOND

    @property
    def boot(self) -> str:
        return self._clock.boot_id()

    @property
    def past(self) -> int:
        """Every end up to this reading, of this boot, is over."""
        return self._clock.monotonic() - self._margin

    def end(self, span: timedelta) -> LeaseExpiry:
        return LeaseExpiry(self._clock.monotonic() + span // MICROSECOND, self._clock.boot_id())

    def is_over(self, end: LeaseExpiry) -> bool:
        return end.boot != self.boot or end.at <= self.past


class FleetClock:
    """A clock that machines share: wall time as it was at the start, carried on by the machine.

    Whoever sets the wall clock later moves no lease: only the start of a process looks at it.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._ahead = to_micros(self._clock.now()) - self._clock.monotonic()

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> int:
        return self._clock.monotonic() + self._ahead

    def boot_id(self) -> str:
        return SHARED


COARSE: Final = timedelta(seconds=1)
"""A server tells its time to the second."""

NOTABLE: Final = timedelta(seconds=2)
"""So far apart is worth a word, long before it is refused."""


async def require_small_skew(engine: Engine, clock: Clock, allowed: timedelta) -> None:
    """Raise ClockSkewTooLarge if the clocks differ by more than `allowed`."""
    apart = await _clock_skew(engine, clock)
    if apart > allowed + COARSE:
        raise ClockSkewTooLarge(
            f"this machine's clock and the store's are {apart.total_seconds():.0f} s apart, "
            f"and {allowed.total_seconds():.0f} s are allowed; set this machine's clock, "
            "or give max_skew"
        )


async def skew_warnings(engine: Engine, clock: Clock, allowed: timedelta) -> list[str]:
    """What an operator should know before it is too much."""
    apart = await _clock_skew(engine, clock)
    if apart <= min(NOTABLE, allowed):
        return []
    much = f"{apart.total_seconds():.0f} s apart"
    most = f"more than {allowed.total_seconds():.0f} s"
    return [
        f"this machine's clock and the store's are {much}; at {most} nothing starts: keep NTP on"
    ]


async def _clock_skew(engine: Engine, clock: Clock) -> timedelta:
    theirs = await engine.time()
    return timedelta(0) if theirs is None else abs(clock.now() - theirs)
