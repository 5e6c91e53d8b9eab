"""What a handler may return instead of a result. Raising, on the other hand, means failure."""

from dataclasses import dataclass
from datetime import timedelta

from outlast.core.duration import Duration, parse_duration


class HandlerOutcome:
    """The base of the values below: returned by a handler, never stored as its result."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, init=False)
class Snooze(HandlerOutcome):
    """Not yet: run me again after `delay`. It spends no attempt."""

    delay: timedelta
    reason: str | None

    def __init__(self, delay: Duration, reason: str | None = None) -> None:
        object.__setattr__(self, "delay", parse_duration(delay, what="snooze"))
        object.__setattr__(self, "reason", reason)


@dataclass(frozen=True, slots=True, init=False)
class RetryAfter(HandlerOutcome):
    """It failed: try again after `delay` instead of the type's backoff. It spends an attempt."""

    delay: timedelta
    reason: str | None

    def __init__(self, delay: Duration, reason: str | None = None) -> None:
        object.__setattr__(self, "delay", parse_duration(delay, what="retry"))
        object.__setattr__(self, "reason", reason)


@dataclass(frozen=True, slots=True)
class Skip(HandlerOutcome):
    """There was nothing to do."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel(HandlerOutcome):
    """Close me as cancelled: the work is no longer wanted."""

    reason: str | None = None
