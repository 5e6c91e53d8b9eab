"""The filter language: `state:dead_letter type:mail.* since:2h params.user=3`."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

from outlast.core.duration import parse_duration
from outlast.core.job import Job
from outlast.core.metadata import meta_label, tag_label
from outlast.core.state import State
from outlast.core.suggestion import did_you_mean
from outlast.errors import InvalidArgument
from outlast.jobs.payload_limits import MAX_DIGITS
from outlast.store.contract.jobs import Filter

ALIASES: Final = {
    "waiting": {State.BLOCKED, State.SCHEDULED, State.QUEUED, State.RETRY_WAIT},
    "dead": {State.DEAD_LETTER},
    "done": {State.SUCCEEDED},
    "open": {State.BLOCKED, State.SCHEDULED, State.QUEUED, State.RETRY_WAIT, State.RUNNING},
}
SHOWN_STATES: Final = frozenset(State) - {State.NEW}
"""States that a message suggests: no job that a user can enqueue is ever `new`."""

KEYS: Final = (
    "state",
    "type",
    "queue",
    "key",
    "group",
    "id",
    "since",
    "tag",
    "meta.<name>",
    "params.<name>",
    "error",
)
_WORD = re.compile(r"(?P<key>[a-z]+(?:\.[A-Za-z0-9_.-]+)?)[:=](?P<value>.*)", re.DOTALL)
_GLOB = re.compile(r"[*?\[]")


@dataclass(slots=True)
class JobFilter:
    """Conditions on jobs: `store` is applied by the store, the others to each job it returns."""

    store: Filter = field(default_factory=Filter)
    type_like: str | None = None
    queue_like: str | None = None
    id_like: str | None = None
    since: datetime | None = None
    params: dict[str, str] = field(default_factory=dict)
    error: str | None = None

    def matches(self, job: Job) -> bool:
        """Return whether the job matches every condition except `error`, which needs its runs."""
        return (
            _like(job.type, self.type_like)
            and _like(job.queue, self.queue_like)
            and (self.id_like is None or job.id.startswith(self.id_like))
            and (self.since is None or job.created_at >= self.since)
            and all(_argument(job.params, name) == value for name, value in self.params.items())
        )


def is_filter(word: str) -> bool:
    """Return whether the word is a filter and not a job id, which has neither `:` nor `=`."""
    return ":" in word or "=" in word


def parse(words: Iterable[str], *, now: datetime) -> JobFilter:
    """Parse filters such as `state:queued` or `params.user=3`; `now` is the base of `since:`.

    Raises:
        InvalidArgument: A word is not a filter, or its key or value is unknown.
    """
    wanted = JobFilter()
    for word in words:
        found = _WORD.fullmatch(word)
        if found is None:
            raise InvalidArgument(
                f"{word!r:.80} is not a filter; write key:value with one of {', '.join(KEYS)}"
            )
        _add(wanted, found["key"], found["value"], now)
    return wanted


def _add(wanted: JobFilter, key: str, value: str, now: datetime) -> None:
    match key.split(".", 1):
        case ["state"]:
            wanted.store = _with(wanted.store, states=frozenset(_states(value)))
        case ["type"] if _GLOB.search(value):
            wanted.type_like = value
        case ["queue"] if _GLOB.search(value):
            wanted.queue_like = value
        case ["type" | "queue" | "group" | "key"]:
            wanted.store = _with(wanted.store, **{key: value})
        case ["id"]:
            wanted.id_like = value
        case ["since"]:
            wanted.since = now - _duration(value)
            wanted.store = _with(wanted.store, since=wanted.since)
        case ["tag"] | ["meta", _]:
            label = tag_label(value) if key == "tag" else meta_label(key[len("meta.") :], value)
            wanted.store = _with(wanted.store, labels=wanted.store.labels | {label})
        case ["params", name]:
            wanted.params[name] = value
        case ["error"]:
            wanted.error = value.casefold()
        case _:
            raise InvalidArgument(f"{key!r:.80} is not a filter key; {did_you_mean(key, KEYS)}")


def _states(value: str) -> set[State]:
    states: set[State] = set()
    for name in value.split(","):
        if name not in ALIASES and name not in set(State):
            raise InvalidArgument(
                f"state {name!r:.80} is unknown; {did_you_mean(name, {*SHOWN_STATES, *ALIASES})}"
            )
        states |= ALIASES.get(name) or {State(name)}
    return states


def _duration(value: str) -> timedelta:
    try:
        return parse_duration(value, what="since")
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


def _with(before: Filter, **changes: Any) -> Filter:
    fields = {name: getattr(before, name) for name in Filter.__slots__}
    return Filter(**{**fields, **changes})


def _like(text: str, pattern: str | None) -> bool:
    return pattern is None or fnmatchcase(text, pattern)


def _argument(params: str, path: str) -> str | None:
    """Return an argument as text; `a.b` is a key of an object.

    Returns None if there is none, and if the params cannot be parsed.
    """
    try:
        value = json.loads(params, parse_int=_parse_int)
    except (ValueError, RecursionError):
        return None
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value if isinstance(value, str) else json.dumps(value)


def _parse_int(digits: str) -> int | str:
    """Return the number; one that Python refuses to convert stays text."""
    return int(digits) if len(digits) <= MAX_DIGITS else digits
