"""Event stream of all jobs, with follow mode."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from outlast.core.event import EventRecord
from outlast.errors import InvalidArgument
from outlast.jobs.client import Client
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification

_PAGE: Final = 500
_LAST: Final = 2**63 - 1


def event_stream(client: Client, *, after: int, follow: bool) -> AsyncIterator[EventRecord]:
    """Iterate over the events after an id; with `follow`, wait for new ones without end."""
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= _LAST:
        raise InvalidArgument(f"after is {after!r:.80}; use the id of the last event seen, or 0")
    return _follow(client, after) if follow else _recorded(client, after)


async def _recorded(client: Client, after: int) -> AsyncIterator[EventRecord]:
    store = await client.store()
    while page := await store.stream(after=after, limit=_PAGE):
        for event in page:
            yield client.envelopes.reveal(event)
        after = page[-1].id


async def _follow(client: Client, after: int) -> AsyncIterator[EventRecord]:
    store = await client.store()
    woken = asyncio.Event()
    unlisten = _listen(store, woken)
    try:
        while True:
            woken.clear()  # before the read, so that no notification is lost in between
            async for event in _recorded(client, after):
                yield event
                after = event.id
            with suppress(TimeoutError):
                async with asyncio.timeout(client.poll):
                    await woken.wait()
    finally:
        unlisten()


def _listen(store: Store, woken: asyncio.Event) -> Callable[[], None]:
    loop = asyncio.get_running_loop()

    def wake(_: Notification) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing waits on it
            loop.call_soon_threadsafe(woken.set)

    return store.subscribe(wake)
