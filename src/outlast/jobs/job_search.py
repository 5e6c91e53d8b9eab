"""Search of stored jobs by state, queue, type and key."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from outlast.core.job import Job
from outlast.core.limits import check_name
from outlast.core.metadata import labels_to_match
from outlast.core.state import State
from outlast.errors import InvalidArgument
from outlast.jobs.client import Client
from outlast.store.contract.jobs import Filter

MAX_JOBS: Final = 10_000
"""Jobs that one call returns at most."""

_PAGE: Final = 1000


async def find_jobs(
    client: Client,
    *,
    states: Iterable[str] | None,
    queue: str | None,
    type: str | None,  # noqa: A002 - a job's own word
    key: str | None,
    tags: Iterable[str] | None,
    meta: Mapping[str, Any] | None,
    limit: int,
    before: Job | None,
) -> list[Job]:
    """Return up to `limit` jobs, the newest first; InvalidArgument if an argument is wrong."""
    what = Filter(
        states=None if states is None else _states(states),
        queue=None if queue is None else check_name(queue, what="queue"),
        type=None if type is None else check_name(type, what="type"),
        key=key,
        labels=labels_to_match(tags=tags, meta=meta),
    )
    _check_limit(limit)
    store = await client.store()
    found: list[Job] = []
    last = None if before is None else before.seq
    while len(found) < limit:
        page = await store.find(what, limit=min(_PAGE, limit - len(found)), before=last)
        if not page:
            break
        found += page
        last = page[-1].seq
    return found


def _states(states: Iterable[str]) -> frozenset[State]:
    asked = set() if isinstance(states, str) else set(states)
    if not asked or not asked <= set(State):
        known = ", ".join(State)
        raise InvalidArgument(f"states is {states!r:.80}; give some of {known}, as a list")
    return frozenset(State(each) for each in asked)


def _check_limit(limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_JOBS:
        raise InvalidArgument(f"limit is {limit!r:.80}; use a whole number from 1 to {MAX_JOBS:,}")
