"""Setting, pausing and reading queues, with everything checked before it reaches a store."""

from typing import Literal

from outlast.core.duration import Duration, parse_duration
from outlast.core.limits import check_name, repr_short
from outlast.core.ordering import Ordering
from outlast.core.queue import check_concurrency, check_gap, check_reason
from outlast.errors import InvalidArgument
from outlast.jobs.client import Client
from outlast.store.contract.queues import Queue

OrderingName = Literal["scheduled", "position"]


async def set_queue(
    client: Client, name: str, ordering: str, concurrency: int | None, gap: int
) -> Queue:
    """Set it, and answer how it stands then."""
    queue = Queue(
        name=check_name(name, what="queue"),
        ordering=_ordering(ordering),
        gap=check_gap(gap),
        concurrency=check_concurrency(concurrency),
    )
    store = await client.store()
    await store.set_queue(queue)
    return await store.queue(name)


async def pause(client: Client, name: str, reason: str | None, duration: Duration | None) -> Queue:
    """Pause it, and answer how it stands then."""
    check_name(name, what="queue")
    check_reason(reason, what="reason")
    try:
        span = None if duration is None else parse_duration(duration, what="duration")
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    store = await client.store()
    await store.pause(name, reason=reason, span=span)
    return await store.queue(name)


async def resume(client: Client, name: str) -> bool:
    """Let it go on; whether it was paused."""
    return await (await client.store()).resume(check_name(name, what="queue"))


async def get(client: Client, name: str) -> Queue:
    """How it stands."""
    return await (await client.store()).queue(check_name(name, what="queue"))


def _ordering(value: str) -> Ordering:
    try:
        return Ordering(value)
    except ValueError:
        known = " or ".join(Ordering)
        raise InvalidArgument(f"ordering is {repr_short(value)}; use {known}") from None
