"""Wall clock and monotonic clock; no other module reads the time of the machine."""

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
    """The clocks of a store: wall time for timestamps, monotonic time for leases."""

    def now(self) -> datetime:
        """Return the wall time, aware UTC. An operator may set it forward or back."""
        ...

    def monotonic(self) -> int:
        """Return microseconds of a clock shared by all processes of the machine, never set."""
        ...

    def boot_id(self) -> str:
        """Return the id of the machine's present boot; monotonic times compare only within one."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """Return the wall time, aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> int:
        """Return microseconds of the system's monotonic clock."""
        return time.monotonic_ns() // 1000

    def boot_id(self) -> str:
        """Return the kernel's boot id; "unknown" where there is none."""
        return _boot_id()


def to_micros(moment: datetime) -> int:
    """Return microseconds since 1970, the form in which stores keep times; ValueError if naive."""
    if moment.tzinfo is None:
        raise ValueError(
            f"{moment!r} has no time zone; use an aware datetime, such as datetime.now(UTC)"
        )
    return (moment - EPOCH) // MICROSECOND


def from_micros(microseconds: int) -> datetime:
    """Return the aware UTC time of `microseconds` since 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


@cache
def _boot_id() -> str:
    linux = Path("/proc/sys/kernel/random/boot_id")
    if linux.exists():
        return linux.read_text(encoding="ascii").strip()
    if sys.platform == "darwin":
        sysctl = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        done = subprocess.run(sysctl, check=True, capture_output=True, text=True)  # noqa: S603 - fixed arguments
        return done.stdout.strip()
    # Other systems reveal a restart only by the monotonic clock, which starts again from zero.
    return "unknown"
