"""Lease expiry by a clock that does not jump, corrected by the server's time."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from outlast.clock import MICROSECOND, Clock, SystemClock, to_micros
from outlast.errors import ClockSkewTooLarge
from outlast.store.keyvalue.engine import Engine, ServerTime

log = logging.getLogger("outlast.store")

SHARED: Final = "shared"
"""Boot id of a clock that all machines share."""

SERVER_TIME_RESOLUTION: Final = timedelta(seconds=1)
"""Servers report their time in whole seconds."""


@dataclass(frozen=True, slots=True)
class LeaseExpiry:
    """End of a lease: a reading of the lease clock, and the boot it belongs to."""

    at: int
    boot: str


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far a server's clock is ahead of this machine's, in microseconds: between these two."""

    least: int
    most: int

    @property
    def apart(self) -> timedelta:
        """The difference that is certain, in either direction."""
        return max(0, self.least, -self.most) * MICROSECOND

    def shifted(self, by: int) -> "ClockOffset":
        """Return the offset from a clock that is `by` ahead of this machine's."""
        return ClockOffset(self.least - by, self.most - by)


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

    def offset(self, seen: ServerTime) -> ClockOffset:
        """Return the offset of the server's clock from `monotonic`.

        The server read its clock between the request and the answer.
        """
        at = to_micros(seen.at)
        return ClockOffset(
            at - seen.received - self._ahead,
            at + SERVER_TIME_RESOLUTION // MICROSECOND - seen.sent - self._ahead,
        )

    def wall_offset(self, seen: ServerTime) -> ClockOffset:
        """Return the offset of the server's clock from the wall clock."""
        return self.offset(seen).shifted(to_micros(self.now()) - self.monotonic())


class LeaseClock:
    """Computes lease ends.

    `margin` is how far the lease clocks of two machines may differ. Each keeps within a quarter of
    it from the server's time, which it learns from the answers to all requests: `latest` returns
    the last one. So leases are safe however far the machines' own clocks are apart, and half the
    margin is left for servers whose clocks differ.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        margin: timedelta = timedelta(0),
        latest: Callable[[], ServerTime | None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._margin = margin // MICROSECOND
        self._latest = latest
        self._seen: ServerTime | None = None
        self._correction = 0
        self._is_trusted = True

    @property
    def boot(self) -> str:
        """Boot id of this clock."""
        return self._clock.boot_id()

    @property
    def past(self) -> int:
        """Every lease end of this boot up to this reading has expired."""
        return min(self._readings()) - self._margin

    def end(self, span: timedelta) -> LeaseExpiry:
        """Return the end of a lease of `span` from now."""
        return LeaseExpiry(max(self._readings()) + span // MICROSECOND, self._clock.boot_id())

    def is_over(self, end: LeaseExpiry) -> bool:
        """Return True if the lease has expired; one of another boot always has."""
        return end.boot != self.boot or end.at <= self.past

    def _readings(self) -> tuple[int, int]:
        """Return the corrected clock; where either clock may be wrong, also the other one.

        A lease has expired only by both, and a new one ends by neither before its span.
        """
        self._correct()
        now = self._clock.monotonic()
        corrected = now + self._correction
        return corrected, corrected if self._is_trusted else now

    def _correct(self) -> None:
        """Move the correction as little as keeps this clock within a quarter of the margin."""
        seen = self._latest()
        if seen is None or seen is self._seen or not isinstance(self._clock, FleetClock):
            return
        self._seen = seen
        offset = self._clock.offset(seen)
        allowed = self._margin // 4
        if offset.most - offset.least > 2 * allowed:
            return  # the answer took too long to tell
        was_trusted = self._is_trusted
        closest = min(max(self._correction, offset.most - allowed), offset.least + allowed)
        self._correction = closest
        # Large after a suspended machine wakes up, too: then the wall clock agrees with the server.
        apart = min(abs(closest) * MICROSECOND, self._clock.wall_offset(seen).apart)
        self._is_trusted = apart // MICROSECOND <= self._margin
        if was_trusted and not self._is_trusted:
            log.warning(
                "clock differs apart=%.0fs: this machine's clock and the store's disagree, so this "
                "process takes over only what has expired by both; set the clock that is wrong",
                apart.total_seconds(),
            )


WARNING_SKEW: Final = timedelta(seconds=2)
"""Clock difference from which health warnings mention it."""


async def require_small_skew(engine: Engine, clock: FleetClock, allowed: timedelta) -> None:
    """Raise ClockSkewTooLarge if this clock and the server's differ by more than `allowed`.

    Engines that report no time pass.
    """
    apart = await _clock_skew(engine, clock)
    if apart > allowed:
        raise ClockSkewTooLarge(
            f"this machine's clock and the store's are {apart.total_seconds():.0f} s apart, "
            f"and {allowed.total_seconds():.0f} s are allowed; set this machine's clock, "
            "or give max_skew"
        )


async def skew_warnings(engine: Engine, clock: FleetClock, allowed: timedelta) -> list[str]:
    """Return a warning if the clocks differ notably."""
    apart = await _clock_skew(engine, clock)
    if apart <= min(WARNING_SKEW, allowed):
        return []
    much = f"{apart.total_seconds():.0f} s apart"
    most = f"more than {allowed.total_seconds():.0f} s"
    return [f"this machine's clock and the store's are {much}; at {most} no store opens: run NTP"]


async def _clock_skew(engine: Engine, clock: FleetClock) -> timedelta:
    seen = await engine.time()
    return timedelta(0) if seen is None else clock.wall_offset(seen).apart
