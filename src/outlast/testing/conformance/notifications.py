"""Notifications only save time; everything works if none arrives."""

import asyncio

from outlast.core.event import CancelRequested
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification, Topic
from outlast.testing.clock import START
from outlast.testing.conformance.factories import (
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    put,
    put_schedule,
    settle,
    started,
)


def _ignore(_: Notification) -> None:
    """Hears and does nothing."""


async def test_work_is_there_whether_or_not_anybody_listens(store: Store) -> None:
    unheard = await put(store)
    store.subscribe(_ignore)
    heard = await put(store)

    assert await claim_order(store) == [unheard, heard]


async def test_listener_changes_no_answer(store: Store) -> None:
    heard: list[Notification] = []
    store.subscribe(heard.append)

    claim = await started(store)
    applied = await settle(store, claim, SUCCEEDED)

    assert applied
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED


async def test_several_may_listen_and_leave(store: Store) -> None:
    first, second = store.subscribe(_ignore), store.subscribe(_ignore)

    first()
    job_id = await ended(store)
    second()

    assert (await job_of(store, job_id)).state is State.SUCCEEDED


async def test_leaving_twice_is_fine(store: Store) -> None:
    leave = store.subscribe(_ignore)

    leave()
    leave()

    assert await ended(store)


async def test_hint_is_about_what_was_asked_for_if_it_comes(store: Store) -> None:
    heard: dict[Topic, list[Notification]] = {topic: [] for topic in Topic}
    for topic in Topic:
        store.subscribe(heard[topic].append, topics=[topic])

    claim = await started(store)
    await settle(store, claim, CancelRequested())
    await settle(store, claim, SUCCEEDED)

    assert all(topic in hint.topics for topic, hints in heard.items() for hint in hints)


async def test_saved_schedule_notifies(store: Store) -> None:
    loop, heard = asyncio.get_running_loop(), asyncio.Event()

    def wake(hint: Notification) -> None:
        if hint.schedules:
            loop.call_soon_threadsafe(heard.set)

    leave = store.subscribe(wake, topics=[Topic.SCHEDULES])
    await put_schedule(store, START)

    async with asyncio.timeout(120):
        await heard.wait()
    leave()


async def test_leaving_twice_silences_nobody_else(store: Store) -> None:
    heard: list[Notification] = []
    first, second = store.subscribe(heard.append), store.subscribe(heard.append)

    first()
    first()
    await put(store)
    told_one = len(heard)
    second()
    await put(store)

    assert len(heard) == told_one, "no subscriber is left"


async def test_hint_is_well_formed_if_it_comes(store: Store) -> None:
    heard: list[Notification] = []
    store.subscribe(heard.append)

    await ended(store, queue="lane")

    assert all(hint.queues <= {"lane"} for hint in heard)
