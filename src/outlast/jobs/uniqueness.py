"""How long a job holds its key, and what happens to an enqueue that finds the key taken."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, get_args

from outlast.core.duration import Duration, parse_duration
from outlast.core.job import DedupeKey, KeyWindow
from outlast.core.key_window import LONGEST_WINDOW
from outlast.core.limits import check_key
from outlast.errors import InvalidArgument, InvalidJob

OnConflict = Literal["existing", "skip", "reject", "replace"]
"""What an enqueue does if its key or slot is taken."""

KeyUntil = Literal["forever", "end"]
"""How long a key without a window is held."""

_ON_CONFLICT: Final = get_args(OnConflict)
_KEY_UNTIL: Final = get_args(KeyUntil)


class UniqueOptions(TypedDict, total=False):
    """What a key of a job does, as in `JobType.options`; without a key, nothing."""

    on_conflict: "OnConflict | None"
    key_until: "KeyUntil | None"
    unique_for: Duration | None
    debounce: Duration | None
    at_most: Duration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniqueness:
    """What a key does: the default of a type, or what one enqueue says. It is valid."""

    on_conflict: OnConflict = "existing"
    key_until: KeyUntil = "forever"
    unique_for: timedelta | None = None
    debounce: timedelta | None = None
    at_most: timedelta | None = None

    @property
    def replaces(self) -> bool:
        """Whether a job that holds the key and was never claimed takes the new request."""
        return self.debounce is not None or self.on_conflict == "replace"

    def over(
        self,
        *,
        on_conflict: str | None = None,
        key_until: str | None = None,
        unique_for: Duration | None = None,
        debounce: Duration | None = None,
        at_most: Duration | None = None,
    ) -> "Uniqueness":
        """Return this with the given options; how long the key is held is replaced as a whole.

        InvalidArgument names the option that cannot be used.
        """
        held = self
        if (key_until, unique_for, debounce) != (None, None, None):
            held = Uniqueness(on_conflict=self.on_conflict)
        changes: dict[str, Any] = {
            "on_conflict": _word(on_conflict, _ON_CONFLICT, "on_conflict"),
            "key_until": _word(key_until, _KEY_UNTIL, "key_until"),
            "unique_for": _span(unique_for, "unique_for"),
            "debounce": _span(debounce, "debounce"),
            "at_most": _span(at_most, "at_most"),
        }
        chosen = replace(held, **{n: value for n, value in changes.items() if value is not None})
        _require_one_end(key_until, chosen)
        _check_debounce(on_conflict, chosen)
        return chosen

    def fields(self, key: str, bucket: str | None) -> dict[str, Any]:
        """Return the fields of a new job with that key."""
        check_key(key, what="key")
        check_key(bucket or "", what="bucket", empty=True)
        if self.unique_for is None and self.debounce is None:
            return {"replaces": self.replaces, **self._without_window(key, bucket)}
        window = KeyWindow(key=key, bucket=bucket or "", span=self.unique_for, at_most=self.at_most)
        return {"window": window, "replaces": self.replaces}

    def _without_window(self, key: str, bucket: str | None) -> dict[str, Any]:
        if self.key_until == "forever":
            return {"key": DedupeKey(key=key, bucket=bucket or "")}
        if bucket is not None:
            raise InvalidJob(
                'bucket was given, and key_until is "end"; such a key has no bucket, so make the '
                f"bucket a part of the key: key={f'{key}:{bucket}'!r:.80}"
            )
        return {"active_key": key}


FOREVER: Final = Uniqueness()
"""One job per key, ever; the job that has it is returned."""


def _word(value: str | None, known: tuple[str, ...], what: str) -> str | None:
    if value is not None and value not in known:
        raise InvalidArgument(f"{what} is {value!r:.80}; use {', '.join(known)}")
    return value


def _span(value: Duration | None, what: str) -> timedelta | None:
    if value is None:
        return None
    span = parse_duration(value, what=what)
    if not timedelta(0) < span <= LONGEST_WINDOW:
        raise InvalidArgument(
            f'{what} is {value!r:.80}; give a span such as "1h", above zero and at most '
            f"{LONGEST_WINDOW.days} days"
        )
    return span


def _require_one_end(key_until: str | None, chosen: Uniqueness) -> None:
    ends = {
        "key_until": key_until,
        "unique_for": chosen.unique_for,
        "debounce": chosen.debounce,
    }
    given = [name for name, value in ends.items() if value is not None]
    if len(given) > 1:
        raise InvalidArgument(
            f"{given[0]} and {given[1]} were both given; each says how long the key is held, so "
            "give one of them"
        )


def _check_debounce(on_conflict: str | None, chosen: Uniqueness) -> None:
    if chosen.at_most is not None:
        if chosen.debounce is None:
            raise InvalidArgument(
                "at_most was given without debounce; it limits how long a debounced job is put "
                'off: debounce="30s", at_most="5m"'
            )
        if chosen.at_most < chosen.debounce:
            raise InvalidArgument(
                f"at_most is {chosen.at_most}, and debounce is {chosen.debounce}; at_most counts "
                "from the first enqueue, so make it at least as long as debounce"
            )
    if chosen.debounce is not None and on_conflict not in (None, "replace"):
        raise InvalidArgument(
            f"debounce was given with on_conflict={on_conflict!r:.80}; a debounced job always "
            "takes the params of the last enqueue, so leave on_conflict out"
        )
