"""Retry policy: how often a failed job is retried, and after which delay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import EllipsisType

from outlast.core.duration import Duration, parse_duration
from outlast.core.limits import repr_short

MAX_ATTEMPTS = 1_000_000
DEFAULT_ATTEMPTS = 5


Delays = Sequence[Duration] | Callable[[int], Duration]
"""The waits themselves, or a function from the number of the retry (1, 2, …) to its wait."""


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """Exponential backoff: `Backoff(max_attempts=5, base="1m")` waits up to 1, 2, 4 and 8 minutes.

    Args:
        max_attempts: Attempts of a job (5, or one more than the listed delays); None retries for
            ever.
        base: Wait before the first retry; it doubles with every further one.
        cap: Longest wait.
        jitter: Draw each wait evenly between zero and its value; False waits exactly. The default
            is True, and False with `delays`.
        delays: The waits instead of `base` and `cap`: a list such as `["10s", "1m", "10m"]`, whose
            last one repeats, or a function of the retry's number.

    Raises:
        ValueError: A value is out of range.
    """

    max_attempts: int | None
    base: timedelta
    cap: timedelta
    jitter: bool
    delays: tuple[timedelta, ...] | Callable[[int], Duration] | None

    def __init__(
        self,
        max_attempts: int | EllipsisType | None = ...,
        *,
        base: Duration = "1s",
        cap: Duration = "1h",
        jitter: bool | None = None,
        delays: Delays | None = None,
    ) -> None:
        waits = delays if delays is None or callable(delays) else _listed(delays)
        if max_attempts is ...:
            max_attempts = len(waits) + 1 if isinstance(waits, tuple) else DEFAULT_ATTEMPTS
        if max_attempts is not None and not is_count(max_attempts):
            raise ValueError(
                f"max_attempts is {repr_short(max_attempts)}; use a whole number between 1 and "
                f"{MAX_ATTEMPTS:,}, or None for no limit"
            )
        object.__setattr__(self, "max_attempts", max_attempts)
        object.__setattr__(self, "base", parse_duration(base, what="base"))
        object.__setattr__(self, "cap", parse_duration(cap, what="cap"))
        object.__setattr__(self, "jitter", waits is None if jitter is None else jitter)
        object.__setattr__(self, "delays", waits)

    def delay(self, retry: int, random: Callable[[], float]) -> timedelta:
        """Return the wait before retry number `retry` (1, 2, …); `random` draws from [0, 1)."""
        longest = self._longest(retry)
        return longest * random() if self.jitter else longest

    def _longest(self, retry: int) -> timedelta:
        if self.delays is None:
            return _doubled(self.base, retry - 1, self.cap)
        if callable(self.delays):
            return parse_duration(self.delays(retry), what="the wait that the function returned")
        return self.delays[min(retry, len(self.delays)) - 1]


def as_backoff(retry: Backoff | Delays | None) -> Backoff:
    """Return the policy that `retry=` means: a Backoff, a list of waits, a function, or None.

    Raises ValueError if it is something else.
    """
    if isinstance(retry, Backoff):
        return retry
    if not (retry is None or callable(retry) or isinstance(retry, list | tuple)):
        raise ValueError(
            f"retry is {repr_short(retry)}; use Backoff(max_attempts=5), a list of waits such as "
            '["10s", "1m"], or a function of the retry\'s number'
        )
    return Backoff(delays=retry)


def _listed(delays: Sequence[Duration]) -> tuple[timedelta, ...]:
    if not isinstance(delays, list | tuple) or not delays:
        raise ValueError(
            f'the list of waits is {repr_short(delays)}; use one such as ["10s", "1m"]'
        )
    return tuple(parse_duration(each, what=f"wait {n}") for n, each in enumerate(delays, 1))


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
