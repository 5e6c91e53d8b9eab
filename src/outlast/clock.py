"""The only place that asks the machine what time it is."""

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """What a store asks: wall time for moments, a monotonic clock for leases."""

    def now(self) -> datetime:
        """The wall time, aware UTC. An operator may set it, forward or back."""
        ...

    def monotonic(self) -> int:
        """Microseconds of a clock that all processes of this machine share and nobody can set."""
        ...

    def boot_id(self) -> str:
        """Names the machine's present boot: monotonic readings compare only within one."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1000

    def boot_id(self) -> str:
        return _boot_id()


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly: the form in which stores keep moments."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; every moment here is aware")
    return (moment - EPOCH) // MICROSECOND


def from_micros(microseconds: int) -> datetime:
    """The aware UTC moment of `micros`."""
    return EPOCH + timedelta(microseconds=microseconds)


@cache
def _boot_id() -> str:
    linux = Path("/proc/sys/kernel/random/boot_id")
    if linux.exists():
        return linux.read_text(encoding="ascii").strip()
    if sys.platform == "darwin":
        sysctl = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        done = subprocess.run(sysctl, check=True, capture_output=True, text=True)  # noqa: S603 - fixed words
        return done.stdout.strip()
    # Elsewhere a restart is noticed only because the monotonic clock starts again from zero.
    return "unknown"
