"""Retry policy: how often a failed job is retried, and after which delay."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from outlast.core.duration import Duration, parse_duration
from outlast.core.limits import repr_short

MAX_ATTEMPTS = 1_000_000


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """Exponential backoff: `Backoff(max_attempts=5, base="1m")` waits up to 1, 2, 4 and 8 minutes.

    Args:
        max_attempts: Attempts of a job; None retries for ever.
        base: Wait before the first retry; it doubles with every further one.
        cap: Longest wait.
        jitter: Draw each wait evenly between zero and its value; False waits exactly.

    Raises:
        ValueError: A value is out of range.
    """

    max_attempts: int | None
    base: timedelta
    cap: timedelta
    jitter: bool

    def __init__(
        self,
        max_attempts: int | None = 5,
        *,
        base: Duration = "1s",
        cap: Duration = "1h",
        jitter: bool = True,
    ) -> None:
        if max_attempts is not None and not is_count(max_attempts):
            raise ValueError(
                f"max_attempts is {repr_short(max_attempts)}; use a whole number between 1 and "
                f"{MAX_ATTEMPTS:,}, or None for no limit"
            )
        object.__setattr__(self, "max_attempts", max_attempts)
        object.__setattr__(self, "base", parse_duration(base, what="base"))
        object.__setattr__(self, "cap", parse_duration(cap, what="cap"))
        object.__setattr__(self, "jitter", jitter)

    def delay(self, retry: int, random: Callable[[], float]) -> timedelta:
        """Return the wait before retry number `retry` (1, 2, …); `random` draws from [0, 1)."""
        longest = _doubled(self.base, retry - 1, self.cap)
        return longest * random() if self.jitter else longest


def is_count(value: object) -> bool:
    """Return whether the value can be a number of attempts."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and 1 <= value <= MAX_ATTEMPTS  # type: ignore[operator]


def attempts_exhausted(failures: int, max_attempts: int | None) -> bool:
    """Return whether no attempt is left: failures > max_attempts - 1."""
    return max_attempts is not None and failures > max_attempts - 1


def _doubled(base: timedelta, times: int, cap: timedelta) -> timedelta:
    if base >= cap:
        return cap
    # cap / base bounds the exponent, so that 2 ** times stays small.
    if not base or times <= 0:
        return base
    return cap if times > (cap // base).bit_length() else min(cap, base * 2**times)
