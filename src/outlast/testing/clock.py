"""Fake clock for tests."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock

from outlast.clock import MICROSECOND
from outlast.core.duration import Duration, parse_duration

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
JUST_BOOTED = 1_000_000


@dataclass(frozen=True, slots=True)
class _Reading:
    wall: datetime
    monotonic: int
    boot: int


class FakeClock:
    """Wall and monotonic clock that stand still: `clock.advance("15s")` moves both.

    Thread-safe for readers: a reading is one value that is replaced as a whole.
    """

    def __init__(self, start: datetime = START) -> None:
        self._moving = Lock()
        self._reading = _Reading(start, JUST_BOOTED, 1)

    def now(self) -> datetime:
        """Return the wall clock, aware UTC."""
        return self._reading.wall

    def monotonic(self) -> int:
        """Return the monotonic clock."""
        return self._reading.monotonic

    def boot_id(self) -> str:
        """Return the id of the current boot."""
        return f"boot-{self._reading.boot}"

    def advance(self, span: Duration) -> None:
        """Move both clocks forward."""
        passed = parse_duration(span, what="span")
        with self._moving:
            was = self._reading
            monotonic = was.monotonic + passed // MICROSECOND
            self._reading = replace(was, wall=was.wall + passed, monotonic=monotonic)

    def set_wall(self, moment: datetime) -> None:
        """Set the wall clock, forward or back; the monotonic clock is not changed."""
        with self._moving:
            self._reading = replace(self._reading, wall=moment.astimezone(UTC))

    def set_back(self, span: timedelta) -> None:
        """Set the wall clock back by `span`."""
        self.set_wall(self.now() - span)

    def reboot(self) -> None:
        """Simulate a reboot: a new boot id, and a monotonic clock near zero."""
        with self._moving:
            was = self._reading
            self._reading = replace(was, monotonic=JUST_BOOTED, boot=was.boot + 1)
