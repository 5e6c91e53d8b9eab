"""Occurrences of a time rule: cron expressions in local time, and plain intervals."""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import islice, takewhile
from typing import Final

from cronsim import CronSim, CronSimError

from outlast.clock import EPOCH
from outlast.core.duration import MICROSECOND, Duration, format_exact, parse_duration
from outlast.core.limits import repr_short
from outlast.core.schedule import MOST_DUE, SHORTEST, Fold, Gap, TimeRule
from outlast.errors import InvalidSchedule
from outlast.scheduler.timezones import (
    DstNote,
    Occurrence,
    load_zone,
    resolve_local_time,
    safe_scan_start,
)

MAX_EXPRESSION_LENGTH: Final = 256
FIELD_COUNT: Final = 5
LONGEST_SEARCH: Final = timedelta(days=366 * 8)
"""How far back a previous slot is searched: 29 February may be missing for eight years."""

HOURS_PER_DAY: Final = 24
FEWEST_EVEN_HOURS: Final = 3
"""Hours of a rule that runs every few hours; a rule with fewer has fixed times."""

LAST_OCCURRENCE: Final = datetime(9000, 1, 1, tzinfo=UTC)
FIELD_VALUES: Final = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31 (a day its month has), L for the last",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT, MON#1 for the first, 5L for the last Friday",
}
ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def make_rule(
    cron: str | None = None,
    *,
    every: Duration | None = None,
    timezone: str = "UTC",
    gap: str | None = None,
    fold: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> TimeRule:
    """Return a validated time rule. Raises InvalidSchedule naming the part that is invalid.

    The defaults of `gap` and `fold` depend on the expression. A rule that runs every hour or every
    few hours skips the hour that does not exist and runs twice in the hour that occurs twice. Any
    other rule runs once on such a day, so that no nightly job is lost.
    """
    if (cron is None) == (every is None):
        raise InvalidSchedule("give either a cron expression or an interval (every), not both")
    expression = None if cron is None else check_expression(cron)
    load_zone(timezone)
    is_sub_daily = expression is not None and _is_sub_daily(expression)
    return TimeRule(
        cron=expression,
        every=None if every is None else _interval(every),
        timezone=timezone,
        gap=Gap(_chosen(gap, Gap, "gap", Gap.SKIP if is_sub_daily else Gap.RUN_AFTER)),
        fold=Fold(_chosen(fold, Fold, "fold", Fold.BOTH if is_sub_daily else Fold.FIRST)),
        start=_aware(start, "start"),
        end=_aware(end, "end"),
    )


def check_expression(text: str) -> str:
    """Return the expression as five fields.

    Raises InvalidSchedule if it is malformed or never occurs.
    """
    if not isinstance(text, str) or not 0 < len(text) <= MAX_EXPRESSION_LENGTH:
        raise InvalidSchedule(
            f"a cron expression is {repr_short(text)}; use up to {MAX_EXPRESSION_LENGTH} characters"
        )
    fields = ALIASES.get(text.strip().lower(), text).split()
    if len(fields) != FIELD_COUNT:
        raise InvalidSchedule(
            f"the cron expression {repr_short(text)} has {len(fields)} fields; use five (minute, "
            f"hour, day of month, month, day of week) or one of {', '.join(ALIASES)}"
        )
    try:
        next(CronSim(" ".join(fields), datetime(2000, 1, 1)))  # noqa: DTZ001 - a local time without a zone
    except StopIteration:
        raise InvalidSchedule(
            f"the cron expression {repr_short(text)} never occurs; use a day that its month has"
        ) from None
    except (CronSimError, ValueError, AssertionError) as error:
        why = _why(str(error), fields)
        raise InvalidSchedule(f"the cron expression {repr_short(text)} is wrong: {why}") from error
    return " ".join(fields)


def _why(message: str, fields: list[str]) -> str:
    """Return which field is invalid and which values it allows."""
    for (name, values), field in zip(FIELD_VALUES.items(), fields, strict=True):
        if message == f"Bad {name}":
            return f"its {name} is {repr_short(field)}; use {values}, *, lists, ranges and steps"
    return message or "it cannot be parsed"


def slots(
    rule: TimeRule, after: datetime, *, until: datetime | None = None, limit: int | None = None
) -> Iterator[datetime]:
    """Yield the distinct slots of a rule after a time, ascending, up to `until` and `limit`."""
    found: Iterator[datetime] = _slot_times(rule, after)
    if until is not None:
        found = takewhile(lambda at: at <= until, found)
    return islice(found, limit)


def next_slot(rule: TimeRule, after: datetime) -> datetime | None:
    """Return the first slot after a time; None if there is none."""
    return next(slots(rule, after, limit=1), None)


def due_slots(rule: TimeRule, first: datetime, now: datetime) -> list[datetime]:
    """Return the slots from `first`, itself a slot, up to now.

    Of more than MOST_DUE slots only the first and the latest are returned, so the cost is bounded
    however long no trigger ran.
    """
    due = [first, *slots(rule, first, until=now, limit=MOST_DUE)]
    if len(due) <= MOST_DUE:
        return due
    return [first, *_latest(rule, first, now)]


def _latest(rule: TimeRule, first: datetime, now: datetime) -> Iterator[datetime]:
    window = (
        rule.every or timedelta(minutes=1)
    ) * MOST_DUE  # no rule has more slots than that in this window
    latest: deque[datetime] = deque(maxlen=MOST_DUE - 1)
    while len(latest) < MOST_DUE // 2:
        latest = deque(slots(rule, max(first, now - window), until=now), maxlen=MOST_DUE - 1)
        window *= 2
    return iter(latest)


def occurrences(rule: TimeRule, after: datetime) -> Iterator[Occurrence]:
    """Yield the occurrences of a rule after a time, in order, including skipped ones."""
    if rule.cron is None:
        yield from (Occurrence(at, at.replace(tzinfo=None)) for at in _steps(rule, after))
        return
    tz = load_zone(rule.timezone)
    waiting: list[Occurrence] = []
    for local in _local_times(rule.cron, safe_scan_start(after, tz)):
        found = resolve_local_time(local, tz, rule)
        while waiting and waiting[0].at < found[0].at:
            yield heappop(waiting)
        for each in found:
            if after < each.at:
                heappush(waiting, each)
    while waiting:
        yield heappop(waiting)


def is_slot(rule: TimeRule, at: datetime) -> bool:
    """Whether a time is a slot of the rule."""
    return next_slot(rule, at - MICROSECOND) == at


def previous_slot(rule: TimeRule, before: datetime) -> datetime | None:
    """Return the last slot before a time; None if there is none in the years before."""
    before = before if rule.end is None else min(before, rule.end + MICROSECOND)
    window = rule.every or timedelta(hours=1)
    earliest = max(before - LONGEST_SEARCH, rule.start or EPOCH)
    start = before
    while start > earliest:
        start = max(earliest, before - window)
        found = deque(slots(rule, start - MICROSECOND, until=before - MICROSECOND), maxlen=1)
        if found:
            return found[0]
        window *= 4
    return None


def effective_start(rule: TimeRule, after: datetime) -> datetime:
    """Return the later of a time and the rule's start, exclusive."""
    return after if rule.start is None else max(after, rule.start - MICROSECOND)


def _slot_times(rule: TimeRule, after: datetime) -> Iterator[datetime]:
    last = effective_start(rule, after)
    for each in occurrences(rule, last):
        if rule.end is not None and each.at > rule.end:
            return
        # Several occurrences within a gap move to the same time: they are one slot.
        if each.note is not DstNote.SKIPPED and each.at > last:
            last = each.at
            yield each.at


def _local_times(expression: str, start: datetime) -> Iterator[datetime]:
    try:
        for local in CronSim(expression, start):
            if local.year >= LAST_OCCURRENCE.year:
                return
            yield local
    except OverflowError:  # beyond the last year of datetime
        return
    except (CronSimError, ValueError, AssertionError) as error:  # not written by Outlast
        raise InvalidSchedule(
            f"the stored cron expression {repr_short(expression)} is wrong; replace it with "
            "`outlast schedule edit NAME --cron …`"
        ) from error


def _steps(rule: TimeRule, after: datetime) -> Iterator[datetime]:
    assert rule.every is not None
    anchor = rule.start or EPOCH
    at = anchor + ((after - anchor) // rule.every + 1) * rule.every
    while at < LAST_OCCURRENCE:
        yield at
        at += rule.every


def _is_sub_daily(expression: str) -> bool:
    """Whether the hours are spread evenly over the day: every hour, or every few hours.

    The hours decide, not their spelling: `0-23` is `*`, and `2/24` is one hour.
    """
    hours = sorted(CronSim(expression, datetime(2000, 1, 1)).hours)  # noqa: DTZ001 - a local time without a zone
    if len(hours) < FEWEST_EVEN_HOURS:
        return False
    step = hours[1] - hours[0]
    return hours == list(range(hours[0] % step, HOURS_PER_DAY, step))


def _interval(every: Duration) -> timedelta:
    try:
        interval = parse_duration(every, what="every")
    except ValueError as error:
        raise InvalidSchedule(str(error)) from error
    if interval < SHORTEST:
        raise InvalidSchedule(
            f"every is {format_exact(interval)}; {format_exact(SHORTEST)} is the minimum"
        )
    return interval


def _chosen(value: str | None, kind: type[Gap | Fold], what: str, default: str) -> str:
    if value is None:
        return default
    if value not in list(kind):
        raise InvalidSchedule(f"{what} is {repr_short(value)}; use one of {', '.join(kind)}")
    return value


def _aware(at: datetime | None, what: str) -> datetime | None:
    if at is None:
        return None
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidSchedule(f"{what} is {repr_short(at)}; give a datetime with a time zone")
    return at.astimezone(UTC)
