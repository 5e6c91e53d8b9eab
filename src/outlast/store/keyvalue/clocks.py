"""Lease expiry by a clock that does not jump, and the check of clock skew."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from outlast.clock import MICROSECOND, Clock, SystemClock, to_micros
from outlast.errors import ClockSkewTooLarge
from outlast.store.keyvalue.engine import Engine

SHARED: Final = "shared"
"""Boot id of a clock that all machines share."""


@dataclass(frozen=True, slots=True)
class LeaseExpiry:
    """End of a lease: a reading of the lease clock, and the boot it belongs to."""

    at: int
    boot: str


class LeaseClock:
    """Computes lease ends. `margin` is the allowed difference between two machines' clocks."""

    def __init__(self, clock: Clock, *, margin: timedelta = timedelta(0)) -> None:
        self._clock = clock
        self._margin = margin // MICROSECOND

    @property
    def boot(self) -> str:
        """Boot id of this clock."""
        return self._clock.boot_id()

    @property
    def past(self) -> int:
        """Every lease end of this boot up to this reading has expired."""
        return self._clock.monotonic() - self._margin

    def end(self, span: timedelta) -> LeaseExpiry:
        """Return the end of a lease of `span` from now."""
        return LeaseExpiry(self._clock.monotonic() + span // MICROSECOND, self._clock.boot_id())

    def is_over(self, end: LeaseExpiry) -> bool:
        """Return True if the lease has expired; one of another boot always has."""
        return end.boot != self.boot or end.at <= self.past


class FleetClock:
    """Wall clock at start, advanced by the monotonic clock; comparable between machines.

    A wall clock that is set later moves no lease.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._ahead = to_micros(self._clock.now()) - self._clock.monotonic()

    def now(self) -> datetime:
        """Return the wall time."""
        return self._clock.now()

    def monotonic(self) -> int:
        """Return microseconds since 1970 that never jump."""
        return self._clock.monotonic() + self._ahead

    def boot_id(self) -> str:
        """Return the same id on all machines."""
        return SHARED


SERVER_TIME_RESOLUTION: Final = timedelta(seconds=1)
"""Servers report their time in whole seconds."""

WARNING_SKEW: Final = timedelta(seconds=2)
"""Clock difference from which health warnings mention it."""


async def require_small_skew(engine: Engine, clock: Clock, allowed: timedelta) -> None:
    """Raise ClockSkewTooLarge if this clock and the server's differ by more than `allowed`.

    Engines that report no time pass.
    """
    apart = await _clock_skew(engine, clock)
    if apart > allowed + SERVER_TIME_RESOLUTION:
        raise ClockSkewTooLarge(
            f"this machine's clock and the store's are {apart.total_seconds():.0f} s apart, "
            f"and {allowed.total_seconds():.0f} s are allowed; set this machine's clock, "
            "or give max_skew"
        )


async def skew_warnings(engine: Engine, clock: Clock, allowed: timedelta) -> list[str]:
    """Return a warning if the clocks differ notably."""
    apart = await _clock_skew(engine, clock)
    if apart <= min(WARNING_SKEW, allowed):
        return []
    much = f"{apart.total_seconds():.0f} s apart"
    most = f"more than {allowed.total_seconds():.0f} s"
    return [f"this machine's clock and the store's are {much}; at {most} no store opens: run NTP"]


async def _clock_skew(engine: Engine, clock: Clock) -> timedelta:
    theirs = await engine.time()
    return timedelta(0) if theirs is None else abs(clock.now() - theirs)
