"""The filter language: `state:dead_letter type:mail.* since:2h params.user=3`."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from outlast.core.duration import parse_duration
from outlast.core.metadata import meta_label, tag_label
from outlast.core.suggestion import did_you_mean
from outlast.errors import InvalidArgument
from outlast.jobs.job_filter import GLOB, JobFilter, states_of
from outlast.store.contract.jobs import Filter

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
            wanted.store = _with(wanted.store, states=states_of(value.split(",")))
        case ["type"] if GLOB.search(value):
            wanted.type_like = value
        case ["queue"] if GLOB.search(value):
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


def _duration(value: str) -> timedelta:
    try:
        return parse_duration(value, what="since")
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


def _with(before: Filter, **changes: Any) -> Filter:
    fields = {name: getattr(before, name) for name in Filter.__slots__}
    return Filter(**{**fields, **changes})
