"""Local times as UTC: times that do not exist, and times that occur twice."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from outlast.core.limits import repr_short
from outlast.core.schedule import Fold, Gap, TimeRule
from outlast.errors import InvalidSchedule

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


class DstNote(StrEnum):
    """The effect of a clock change on an occurrence."""

    SKIPPED = "skipped"  # the local time does not exist and the rule skips it
    MOVED = "moved"  # the local time does not exist; it runs right after the clock change
    FIRST = "first"  # the first of two occurrences
    SECOND = "second"  # the second of two occurrences


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """One local time of a rule; `at` is its UTC time, or the clock change that skips it."""

    at: datetime
    local: datetime
    note: DstNote | None = None


def load_zone(name: str) -> ZoneInfo:
    """Return a time zone by name. Raises InvalidSchedule if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise InvalidSchedule(
            f"timezone is {repr_short(name)}; use a name such as Europe/Berlin, or UTC"
        ) from error


def resolve_local_time(local: datetime, tz: ZoneInfo, rule: TimeRule) -> list[Occurrence]:
    """Return the occurrences of a naive local time by the rule's policies, earliest first."""
    first = local.replace(tzinfo=tz)
    second = first.replace(fold=1)
    before, after = first.utcoffset(), second.utcoffset()
    if before == after:
        return [Occurrence(first.astimezone(UTC), local)]
    assert before is not None
    assert after is not None
    if before < after:
        moved = _jump(second.astimezone(UTC), first.astimezone(UTC), tz)
        note = DstNote.SKIPPED if rule.gap is Gap.SKIP else DstNote.MOVED
        return [Occurrence(moved, local, note)]
    both = [
        Occurrence(first.astimezone(UTC), local, DstNote.FIRST),
        Occurrence(second.astimezone(UTC), local, DstNote.SECOND),
    ]
    match rule.fold:
        case Fold.FIRST:
            return both[:1]
        case Fold.SECOND:
            return both[1:]
        case Fold.BOTH:
            return both


def safe_scan_start(after: datetime, tz: ZoneInfo) -> datetime:
    """Return a naive local time from which a scan misses no occurrence after a UTC time.

    Near a clock change one local time has two UTC times, so the scan starts before it.
    """
    local = after.astimezone(tz)
    offsets = [
        (after + days * DAY).astimezone(tz).utcoffset() or timedelta(0) for days in (-1, 0, 1)
    ]
    return local.replace(tzinfo=None) - (max(offsets) - min(offsets))


def _jump(low: datetime, high: datetime, tz: ZoneInfo) -> datetime:
    """Return the time between two UTC times at which the zone's offset changes."""
    old = low.astimezone(tz).utcoffset()
    while high - low > SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if middle.astimezone(tz).utcoffset() == old:
            low = middle
        else:
            high = middle
    return high
