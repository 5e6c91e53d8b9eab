"""A clock that moves only when it is told to."""

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
    """Both clocks of a machine, held still: `clock.advance("15s")` lets fifteen seconds pass.

    A reading is one value, replaced whole, so that other threads may look at any moment.
    """

    def __init__(self, start: datetime = START) -> None:
        self._moving = Lock()
        self._reading = _Reading(start, JUST_BOOTED, 1)

    def now(self) -> datetime:
        return self._reading.wall

    def monotonic(self) -> int:
        return self._reading.monotonic

    def boot_id(self) -> str:
        return f"boot-{self._reading.boot}"

    def advance(self, span: Duration) -> None:
        """Let time pass, on both clocks."""
        passed = parse_duration(span, what="span")
        with self._moving:
            was = self._reading
            monotonic = was.monotonic + passed // MICROSECOND
            self._reading = replace(was, wall=was.wall + passed, monotonic=monotonic)

    def set_wall(self, moment: datetime) -> None:
        """Set the wall clock as an operator would, forward or back; the other one runs on."""
        with self._moving:
            self._reading = replace(self._reading, wall=moment.astimezone(UTC))

    def set_back(self, span: timedelta) -> None:
        """Set the wall clock back by `span`."""
        self.set_wall(self.now() - span)

    def reboot(self) -> None:
        """Start the machine again: a new boot id, and a monotonic clock from near zero."""
        with self._moving:
            was = self._reading
            self._reading = replace(was, monotonic=JUST_BOOTED, boot=was.boot + 1)
