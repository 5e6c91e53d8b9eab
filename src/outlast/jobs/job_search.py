"""Search of stored jobs, the newest first, by the conditions that callers name."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypedDict, cast

from outlast.core.duration import Duration, parse_duration
from outlast.core.job import Job
from outlast.core.limits import check_key, check_name, repr_short
from outlast.core.metadata import labels_to_match
from outlast.core.suggestion import did_you_mean
from outlast.errors import InvalidArgument
from outlast.jobs.client import Client
from outlast.jobs.envelopes import Envelopes
from outlast.jobs.job_filter import GLOB, JobFilter, argument_text, states_of
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter

MAX_PAGE: Final = 10_000
"""Jobs of one page at most."""

PAGE: Final = 500
"""How many jobs a search reads at a time."""


class JobQuery(TypedDict, total=False):
    """Conditions on jobs; None and what is left out match every job."""

    state: str | Iterable[str] | None
    type: str | None
    queue: str | None
    key: str | None
    group: str | None
    since: datetime | Duration | None
    tag: str | Iterable[str] | None
    meta: Mapping[str, Any] | None
    params: Mapping[str, Any] | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """A page of jobs, the newest first; `after` continues behind it, None at the end."""

    jobs: list[Job]
    after: str | None


async def find_jobs(client: Client, query: Mapping[str, Any]) -> AsyncIterator[Job]:
    """Yield every job that matches, the newest first; reads a page at a time."""
    store = await client.store()
    async for job in search(store, await to_filter(store, query), client.envelopes):
        yield client.envelopes.reveal(job)


async def find_page(
    client: Client, query: Mapping[str, Any], *, limit: int, after: str | None
) -> JobPage:
    """Return up to `limit` jobs that match, behind the page that had `after`."""
    check_limit(limit, MAX_PAGE)
    before = None if after is None else _seq(after)
    store = await client.store()
    wanted = await to_filter(store, query)
    found: list[Job] = []
    async for stored in search(store, wanted, client.envelopes, before=before, page=limit + 1):
        found.append(client.envelopes.reveal(stored))
        if len(found) > limit:
            return JobPage(jobs=found[:limit], after=str(found[limit - 1].seq))
    return JobPage(jobs=found, after=None)


async def search(
    store: Store,
    wanted: JobFilter,
    envelopes: Envelopes,
    *,
    before: int | None = None,
    page: int = PAGE,
    is_enough: Callable[[int], bool] = lambda _: False,
) -> AsyncGenerator[Job]:
    """Yield the jobs that match, as stored; `envelopes` decode them for the comparison.

    Ends early when `is_enough` of the jobs read so far is true.
    """
    scanned = 0
    size = min(page, PAGE) if wanted.is_exact else PAGE
    while found := await store.find(wanted.store, limit=size, before=before):
        for job in found:
            if wanted.since is not None and job.created_at < wanted.since:
                return  # jobs come newest first, so the rest is older
            if wanted.matches(envelopes.reveal(job)) and (
                wanted.error is None or await _has_error(store, job, wanted.error, envelopes)
            ):
                yield job
        scanned += len(found)
        before = found[-1].seq
        if is_enough(scanned):
            return


async def to_filter(store: Store, query: Mapping[str, Any]) -> JobFilter:
    """Return the filter of a query; InvalidArgument names a condition that makes no sense."""
    for name in query.keys() - JobQuery.__annotations__.keys():
        known = did_you_mean(name, JobQuery.__annotations__)
        raise InvalidArgument(f"{name!r:.80} is no condition on jobs; {known}")
    given = {name: value for name, value in query.items() if value is not None}
    _require_conditions(given)
    wanted = JobFilter(
        type_like=_pattern(given, "type"),
        queue_like=_pattern(given, "queue"),
        params=_params(given.get("params", {})),
        error=_error(given.get("error")),
    )
    wanted.store = Filter(
        states=_states(given["state"]) if "state" in given else None,
        queue=_name(given, "queue") if wanted.queue_like is None else None,
        type=_name(given, "type") if wanted.type_like is None else None,
        key=check_key(given["key"], what="key") if "key" in given else None,
        group=check_key(given["group"], what="group") if "group" in given else None,
        labels=labels_to_match(tags=_tags(given.get("tag")), meta=given.get("meta")),
    )
    if "since" in given:
        wanted.since = _moment(given["since"], await store.now())
        wanted.store = replace(wanted.store, since=wanted.since)
    return wanted


def narrowed(wanted: JobFilter, among: frozenset[Any], default: frozenset[Any]) -> JobFilter:
    """Return the filter for jobs in some of the states `among`; in `default` if it names none."""
    return replace(
        wanted, store=replace(wanted.store, states=among & (wanted.store.states or default))
    )


def check_limit(limit: int, most: int) -> None:
    """Raise InvalidArgument unless `limit` is a number of jobs up to `most`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidArgument(f"limit is {limit!r:.80}; use a whole number from 1 to {most:,}")


async def _has_error(store: Store, job: Job, text: str, envelopes: Envelopes) -> bool:
    if not job.failures:
        return False
    runs = map(envelopes.reveal, await store.runs(job.id))
    return any(text in (run.error or "").casefold() for run in runs)


def _require_conditions(given: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for an empty condition: it would match every job."""
    for name in ("tag", "meta", "params", "error"):
        if name in given and isinstance(given[name], str | Sized) and not len(given[name]):
            raise InvalidArgument(
                f"{name} is {given[name]!r}, which would match every job; leave {name} out if that "
                "is meant"
            )


def _states(value: object) -> frozenset[Any]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Iterable) or not (asked := list(names)):
        raise InvalidArgument(
            f'state is {repr_short(value)}; give one, or a list: ["failed", "dead_letter"]'
        )
    return states_of(asked)


def _pattern(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    return value if isinstance(value, str) and GLOB.search(value) else None


def _name(given: Mapping[str, Any], name: str) -> str | None:
    return check_name(given[name], what=name) if name in given else None


def _params(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f'params is {repr_short(value)}; give a mapping: {{"user_id": 3}}')
    return {str(name): argument_text(each) for name, each in value.items()}


def _tags(value: object) -> Iterable[str] | None:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable):
        return cast("Iterable[str] | None", value)
    tags = list(value)
    _require_conditions({"tag": tags})  # also for an iterator that gives nothing
    return tags


def _error(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"error is {repr_short(value)}; give a part of the error text")
    return None if value is None else value.casefold()


def _moment(value: datetime | Duration, now: datetime) -> datetime:
    if not isinstance(value, datetime):
        try:
            return now - parse_duration(value, what="since")
        except (ValueError, OverflowError) as error:
            raise InvalidArgument(str(error)) from error
    if value.tzinfo is None:
        raise InvalidArgument(f"since is {value!r:.80}; use a datetime with a time zone")
    return value.astimezone(UTC)


def _seq(after: object) -> int:
    if not isinstance(after, str) or not re.fullmatch(r"[0-9]{1,19}", after, re.ASCII):
        raise InvalidArgument(f"after is {repr_short(after)}; give the `after` of a page")
    return int(after)
