"""The gate of a queue: pause, concurrency limit and reservation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from outlast.core.limits import MAX_REASON, is_storable, repr_short
from outlast.core.ordering import Ordering
from outlast.errors import InvalidArgument

MOST_CONCURRENCY: Final = 1_000_000
MOST_GAP: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause of a queue: no claims until `until`, or until it is resumed if that is None."""

    at: datetime
    reason: str | None = None
    until: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        """Return whether the pause has ended by itself."""
        return self.until is not None and self.until <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGate:
    """The conditions a claim meets at a queue, at one moment."""

    is_paused: bool = False
    concurrency: int | None = None
    open_runs: int = 0
    is_reserved: bool = False

    def capacity(self, limit: int, prefetch: int) -> tuple[int, int]:
        """Return how many jobs the claim may open and how many it may prefetch.

        A queue with a concurrency limit allows no prefetch: a prefetched job counts as an open run
        and would keep another worker from using the capacity.
        """
        if self.is_paused:
            return 0, 0
        if self.is_reserved:
            limit, prefetch = min(limit, 1), 0
        if self.concurrency is None:
            return limit, prefetch
        return max(0, min(limit, self.concurrency - self.open_runs)), 0

    @property
    def keeps_reservation(self) -> bool:
        """Whether a reservation outlasts the claim of its job: only with a concurrency of 1."""
        return self.concurrency == 1


def check_concurrency(value: int | None) -> int | None:
    """Return `value` if it can limit a queue; InvalidArgument otherwise."""
    return None if value is None else _whole(value, "concurrency", MOST_CONCURRENCY)


def check_gap(value: int) -> int:
    """Return `value` if it can be the distance between positions; InvalidArgument otherwise."""
    return _whole(value, "gap", MOST_GAP)


def check_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, which are not `...`.

    InvalidArgument names one that cannot be used.
    """
    checks: dict[str, Callable[[Any], object]] = {
        "ordering": _ordering,
        "concurrency": check_concurrency,
        "gap": check_gap,
    }
    return {name: checks[name](value) for name, value in options.items() if value is not ...}


def check_reason(value: str | None, *, what: str) -> str | None:
    """Return `value` if it is text that every store can hold; InvalidArgument otherwise."""
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_REASON or not is_storable(value):
        raise InvalidArgument(
            f"{what} is {repr_short(value)}; use text of 1 to {MAX_REASON:,} characters without NUL"
        )
    return value


def _ordering(value: str) -> Ordering:
    try:
        return Ordering(value)
    except ValueError:
        known = " or ".join(Ordering)
        raise InvalidArgument(f"ordering is {repr_short(value)}; use {known}") from None


def _whole(value: int, what: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidArgument(
            f"{what} is {repr_short(value)}; use a whole number from 1 to {most:,}"
        )
    return value
