"""Values a handler may return instead of a result. Raising an error means failure."""

from dataclasses import dataclass
from datetime import timedelta

from outlast.core.duration import Duration, parse_duration


class HandlerOutcome:
    """Base of the outcomes below; never stored as a result."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, init=False)
class Snooze(HandlerOutcome):
    """Run the job again after `delay`. No attempt is spent."""

    delay: timedelta
    reason: str | None

    def __init__(self, delay: Duration, reason: str | None = None) -> None:
        object.__setattr__(self, "delay", parse_duration(delay, what="snooze"))
        object.__setattr__(self, "reason", reason)


@dataclass(frozen=True, slots=True, init=False)
class RetryAfter(HandlerOutcome):
    """The run failed; retry after `delay` instead of the type's backoff. An attempt is spent."""

    delay: timedelta
    reason: str | None

    def __init__(self, delay: Duration, reason: str | None = None) -> None:
        object.__setattr__(self, "delay", parse_duration(delay, what="retry"))
        object.__setattr__(self, "reason", reason)


@dataclass(frozen=True, slots=True)
class Skip(HandlerOutcome):
    """There was nothing to do; the job ends `skipped`."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel(HandlerOutcome):
    """The work is no longer wanted; the job ends `cancelled`."""

    reason: str | None = None
