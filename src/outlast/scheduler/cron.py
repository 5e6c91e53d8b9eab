"""Which moments a rule names: cron expressions by the clock on a wall, and plain intervals."""

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
    """A rule whose parts are all right; InvalidSchedule says which one is not.

    What is left out follows from the expression. One for every hour, or every few, runs twice in
    the hour that comes twice and not at all in the one that does not exist. Any other runs once
    on such a day, so that nothing nightly is lost.
    """
    if (cron is None) == (every is None):
        raise InvalidSchedule("say when: by a cron expression or by an interval, and not both")
    expression = None if cron is None else check_expression(cron)
    load_zone(timezone)
    is_steady = expression is not None and _is_sub_daily(expression)
    return TimeRule(
        cron=expression,
        every=None if every is None else _interval(every),
        timezone=timezone,
        gap=Gap(_chosen(gap, Gap, "gap", Gap.SKIP if is_steady else Gap.RUN_AFTER)),
        fold=Fold(_chosen(fold, Fold, "fold", Fold.BOTH if is_steady else Fold.FIRST)),
        start=_aware(start, "start"),
        end=_aware(end, "end"),
    )


def check_expression(text: str) -> str:
    """The expression in five fields; InvalidSchedule if it is none, or names no time at all."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_EXPRESSION_LENGTH:
        raise InvalidSchedule(
            f"a cron expression is {repr_short(text)}; use up to {MAX_EXPRESSION_LENGTH} characters"
        )
    fields = ALIASES.get(text.strip().lower(), text).split()
    if len(fields) != FIELD_COUNT:
        raise InvalidSchedule(
            f"the cron expression {repr_short(text)} has {len(fields)} fields; use five (minute, hour, "
            f"day of month, month, day of week) or one of {', '.join(ALIASES)}"
        )
    try:
        next(CronSim(" ".join(fields), datetime(2000, 1, 1)))  # noqa: DTZ001 - a date on paper
    except StopIteration:
        raise InvalidSchedule(
            f"the cron expression {repr_short(text)} names no time at all"
        ) from None
    except (CronSimError, ValueError, AssertionError) as error:
        why = _why(str(error), fields)
        raise InvalidSchedule(f"the cron expression {repr_short(text)} is wrong: {why}") from error
    return " ".join(fields)


def _why(says: str, fields: list[str]) -> str:
    """Which field is wrong, and what it may be."""
    for (name, may_be), field in zip(FIELD_VALUES.items(), fields, strict=True):
        if says == f"Bad {name}":
            return f"its {name} is {repr_short(field)}; use {may_be}, *, lists, ranges and steps"
    return says or "it cannot be read"


def slots(
    rule: TimeRule, after: datetime, *, until: datetime | None = None, limit: int | None = None
) -> Iterator[datetime]:
    """The rule's slots after that moment, ascending, none twice; up to `until` and `limit`."""
    found: Iterator[datetime] = _moments(rule, after)
    if until is not None:
        found = takewhile(lambda at: at <= until, found)
    return islice(found, limit)


def next_slot(rule: TimeRule, after: datetime) -> datetime | None:
    """The first slot after that moment; None if there is none."""
    return next(slots(rule, after, limit=1), None)


def due_slots(rule: TimeRule, first: datetime, now: datetime) -> list[datetime]:
    """The slots from `first`, which is one, up to now; of more than MOST_DUE, it and the latest.

    What it costs is bounded, however long nobody looked.
    """
    due = [first, *slots(rule, first, until=now, limit=MOST_DUE)]
    if len(due) <= MOST_DUE:
        return due
    return [first, *_latest(rule, first, now)]


def _latest(rule: TimeRule, first: datetime, now: datetime) -> Iterator[datetime]:
    span = (rule.every or timedelta(minutes=1)) * MOST_DUE  # no rule has more slots in that time
    latest: deque[datetime] = deque(maxlen=MOST_DUE - 1)
    while len(latest) < MOST_DUE // 2:
        latest = deque(slots(rule, max(first, now - span), until=now), maxlen=MOST_DUE - 1)
        span *= 2
    return iter(latest)


def occurrences(rule: TimeRule, after: datetime) -> Iterator[Occurrence]:
    """The local times of a rule from there on, also those that are skipped, by their moment."""
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
    """Whether that moment is one of the rule's own."""
    return next_slot(rule, at - MICROSECOND) == at


def effective_start(rule: TimeRule, after: datetime) -> datetime:
    """Where the rule's slots after that moment begin: not before its start."""
    return after if rule.start is None else max(after, rule.start - MICROSECOND)


def _moments(rule: TimeRule, after: datetime) -> Iterator[datetime]:
    last = effective_start(rule, after)
    for each in occurrences(rule, last):
        if rule.end is not None and each.at > rule.end:
            return
        if (
            each.note is not DstNote.SKIPPED and each.at > last
        ):  # a gap brings several to one moment
            last = each.at
            yield each.at


def _local_times(expression: str, start: datetime) -> Iterator[datetime]:
    try:
        for local in CronSim(expression, start):
            if local.year >= LAST_OCCURRENCE.year:
                return
            yield local
    except OverflowError:  # beyond the last year there is
        return


def _steps(rule: TimeRule, after: datetime) -> Iterator[datetime]:
    assert rule.every is not None
    anchor = rule.start or EPOCH
    at = anchor + ((after - anchor) // rule.every + 1) * rule.every
    while at < LAST_OCCURRENCE:
        yield at
        at += rule.every


def _is_sub_daily(expression: str) -> bool:
    hour = expression.split()[1]
    return hour.startswith("*") or "/" in hour


def _interval(every: Duration) -> timedelta:
    try:
        span = parse_duration(every, what="every")
    except ValueError as error:
        raise InvalidSchedule(str(error)) from error
    if span < SHORTEST:
        raise InvalidSchedule(
            f"every is {format_exact(span)}; {format_exact(SHORTEST)} is the shortest"
        )
    return span


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
