"""Conditions on stored jobs: those of the store, and those that are applied to each job."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from outlast.core.envelope import readable
from outlast.core.job import Job
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

GLOB: Final = re.compile(r"[*?\[]")
"""What makes a name a pattern, such as `mail.*`."""


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

    @property
    def is_exact(self) -> bool:
        """Whether the store applies every condition by itself, except the time."""
        mine = self.type_like, self.queue_like, self.id_like, self.error
        return not self.params and all(each is None for each in mine)


def states_of(names: Iterable[str]) -> frozenset[State]:
    """Return the states of these names and aliases; InvalidArgument for an unknown one."""
    states: set[State] = set()
    for name in names:
        if name not in ALIASES and name not in set(State):
            raise InvalidArgument(
                f"state {name!r:.80} is unknown; "
                f"{did_you_mean(str(name), {*SHOWN_STATES, *ALIASES})}"
            )
        states |= ALIASES.get(name) or {State(name)}
    return frozenset(states)


def _like(text: str, pattern: str | None) -> bool:
    return pattern is None or fnmatchcase(text, pattern)


def _argument(params: str, path: str) -> str | None:
    """Return an argument as text; `a.b` is a key of an object.

    Returns None if there is none, and if the params cannot be parsed.
    """
    try:
        value = json.loads(readable(params) or "", parse_int=_parse_int)
    except (ValueError, RecursionError):
        return None
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return argument_text(value)


def argument_text(value: Any) -> str:
    """Return the value of a param as the text that a filter compares."""
    return value if isinstance(value, str) else json.dumps(value)


def _parse_int(digits: str) -> int | str:
    """Return the number; one that Python refuses to convert stays text."""
    return int(digits) if len(digits) <= MAX_DIGITS else digits
