"""When a failed job is tried again."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from outlast.core.duration import Duration, parse_duration
from outlast.core.limits import repr_short

MOST_ATTEMPTS = 1_000_000


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """How often a job is tried, and how long it waits in between.

    `Backoff(max_attempts=5, base="1m")` waits 1, 2, 4 and 8 minutes, each drawn evenly from
    zero up to that (`jitter=False`: exactly that). `max_attempts=None` never gives up.
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
                f"max_attempts is {repr_short(max_attempts)}; it must be a whole number between 1 and "
                f"{MOST_ATTEMPTS:,}, or None for no limit"
            )
        object.__setattr__(self, "max_attempts", max_attempts)
        object.__setattr__(self, "base", parse_duration(base, what="base"))
        object.__setattr__(self, "cap", parse_duration(cap, what="cap"))
        object.__setattr__(self, "jitter", jitter)

    def delay(self, retry: int, random: Callable[[], float]) -> timedelta:
        """How long before retry number `retry` (1, 2, …); `random` draws from [0, 1)."""
        longest = _doubled(self.base, retry - 1, self.cap)
        return longest * random() if self.jitter else longest


def is_count(value: object) -> bool:
    """Whether it can be a number of attempts."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and 1 <= value <= MOST_ATTEMPTS  # type: ignore[operator]


def attempts_exhausted(failures: int, max_attempts: int | None) -> bool:
    """The one inequality: stop when failures > max_retries."""
    return max_attempts is not None and failures > max_attempts - 1


def _doubled(base: timedelta, times: int, cap: timedelta) -> timedelta:
    if base >= cap:
        return cap
    # cap / base bounds the exponent, so that 2 ** times never grows past what can matter.
    if not base or times <= 0:
        return base
    return cap if times > (cap // base).bit_length() else min(cap, base * 2**times)
