"""Changes of waiting jobs: position, params, priority and due time."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from outlast.core.decide import decide
from outlast.core.duration import Duration
from outlast.core.event import Edited, Event, Moved
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.limits import check_name, repr_short
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.core.state import WAITING, State
from outlast.errors import InvalidArgument, InvalidParams, TransitionRefused
from outlast.jobs.client import Client
from outlast.jobs.completion import find, job_id_of
from outlast.jobs.options import check_due, check_whole_priority

End = Literal["front", "back"]

MAX_SHOWN: Final = 10_000
_MAX_ATTEMPTS: Final = 100


async def move(
    client: Client,
    job_id: JobId,
    to: End | None = None,
    *,
    before: str | None = None,
    after: str | None = None,
    swap: str | None = None,
) -> Job:
    """Move a waiting job within its queue and priority; return the job."""
    place = _place(to, {Anchor.BEFORE: before, Anchor.AFTER: after, Anchor.SWAP: swap})

    async def event(job: Job) -> Event:
        if place.target is not None:
            await _require_beside(client, job, place.target)
        return Moved(place)

    return await _decide_and_apply(client, job_id, event)


async def edit(
    client: Client,
    job_id: JobId,
    *,
    params: Mapping[str, Any] | None = None,
    priority: int | None = None,
    delay: Duration | None = None,
    at: datetime | None = None,
) -> Job:
    """Change the given fields of a waiting job; return the job."""
    due, moment = check_due(delay, at)
    rest: dict[str, Any] = {"delay": due, "at": moment}
    rest["priority"] = None if priority is None else check_whole_priority(priority)

    async def event(job: Job) -> Event:
        text = None if params is None else client.dump_params(job.type, _named(params))
        return Edited(JobEdit(params=text, **rest))

    return await _decide_and_apply(client, job_id, event)


async def next_jobs(client: Client, queue: str, limit: int) -> list[Job]:
    """Return the next `limit` due jobs of a queue in claim order."""
    check_name(queue, what="queue")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_SHOWN:
        raise InvalidArgument(
            f"limit is {repr_short(limit)}; use a whole number from 1 to {MAX_SHOWN:,}"
        )
    found = await (await client.store()).peek(queue, limit=limit)
    return [client.envelopes.reveal(job) for job in found]


async def renumber(client: Client, queue: str) -> int:
    """Number the positions of a queue afresh; return how many changed."""
    check_name(queue, what="queue")
    return await (await client.store()).renumber(queue)


async def _decide_and_apply(
    client: Client, job_id: JobId, event: Callable[[Job], Awaitable[Event]]
) -> Job:
    """Decide and apply; retry if the job or the other job changed in between."""
    store = await client.store()
    for _ in range(_MAX_ATTEMPTS):
        job = await find(store, job_id)
        _require_waiting(job)
        change = decide(job, await event(job), new_id=client.ids.job)
        if (await store.apply([change]))[0]:
            return client.envelopes.reveal(await find(store, job_id))
    raise TransitionRefused(f"job {job_id} was changed {_MAX_ATTEMPTS} times meanwhile; try again")


def _require_waiting(job: Job) -> None:
    if job.state not in WAITING:
        raise TransitionRefused(
            f"job {job.id} is {job.state}; only a job that waits can be moved or edited; "
            f"{'cancel it' if job.state is State.RUNNING else 'retry it'}, or enqueue another"
        )


async def _require_beside(client: Client, job: Job, target: JobId) -> None:
    if target == job.id:
        raise InvalidArgument(f"job {job.id} cannot be moved next to itself; name another job")
    other = await find(await client.store(), target)
    if other.state not in WAITING:
        raise TransitionRefused(
            f"job {other.id} is {other.state}; a job can be moved only next to a waiting job"
        )
    if other.queue != job.queue:
        raise InvalidArgument(
            f'job {job.id} is in queue "{job.queue}" and job {other.id} in queue "{other.queue}"; '
            "a job is moved only within its queue"
        )
    if other.priority != job.priority:
        raise InvalidArgument(
            f"job {job.id} has priority {job.priority} and job {other.id} has {other.priority}; "
            "edit the priority first, for a job is moved only among its own"
        )


def _place(to: str | None, beside: Mapping[Anchor, str | None]) -> MoveTo:
    asked = {where: target for where, target in beside.items() if target is not None}
    if (to is not None) + len(asked) != 1:
        raise InvalidArgument(
            'say one place to move it to: "front", "back", before=, after= or swap='
        )
    if to is None:
        [(where, target)] = asked.items()
        return MoveTo(where, job_id_of(target))
    if to not in (Anchor.FRONT, Anchor.BACK):
        raise InvalidArgument(
            f'place is {repr_short(to)}; use "front", "back", before=, after= or swap='
        )
    return MoveTo(Anchor(to))


def _named(params: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(params, Mapping) or not all(isinstance(name, str) for name in params):
        raise InvalidParams("params is not a mapping of names; give all params by name")
    return dict(params)
