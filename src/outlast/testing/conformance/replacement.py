"""A job that holds a key and was never claimed takes the request of a further enqueue."""

from datetime import timedelta
from typing import Any

import pytest

from outlast.core.event import EventKind, Released
from outlast.core.job import DedupeKey, KeyWindow, NewJob, Slot
from outlast.core.ordering import Ordering
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added, Filter
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SECOND,
    SUCCEEDED,
    claim_order,
    job_of,
    kinds,
    make_job,
    new_id,
    next_ids,
    put,
    settle,
    started,
    take,
)

WINDOW = KeyWindow(key="k", span=HOUR)
KEYS: list[dict[str, Any]] = [
    {"key": DedupeKey(key="k")},
    {"active_key": "k"},
    {"window": WINDOW},
]
NAMES = ["key", "active_key", "window"]


def replacing(params: str = '"new"', **over: Any) -> NewJob:
    """A job that replaces the request of the holder of its key."""
    return make_job(params=params, replaces=True, **over)


async def _add(store: Store, job: NewJob) -> Added:
    [added] = await store.add([job])
    return added


@pytest.mark.parametrize("held", KEYS, ids=NAMES)
async def test_unclaimed_holder_takes_the_new_request(
    store: Store, held: Any, clock: FakeClock
) -> None:
    holder = await put(store, params='"old"', **held)

    added = await _add(store, replacing(priority=7, delay=HOUR, **held))

    job = await job_of(store, holder)
    assert added == Added(holder, created=False, replaced=True)
    assert (job.params, job.priority, job.state) == ('"new"', 7, State.SCHEDULED)
    assert job.available_at == clock.now() + HOUR
    assert len(await store.find(Filter(), limit=MANY)) == 1


@pytest.mark.parametrize("held", KEYS, ids=NAMES)
async def test_claimed_holder_is_left_alone_and_answered_with(store: Store, held: Any) -> None:
    claim = await started(store, params='"old"', **held)

    while_running = await _add(store, replacing(**held))
    await settle(store, claim, Released("drain"))
    put_back = await _add(store, replacing(**held))

    assert while_running == put_back == Added(claim.id, created=False)
    assert (await job_of(store, claim.id)).params == '"old"'
    assert EventKind.EDITED not in await kinds(store, claim.id)


async def test_replaced_job_keeps_its_turn_unless_a_due_time_is_given(store: Store) -> None:
    first = await put(store, key=DedupeKey(key="k"))
    second = await put(store)

    await _add(store, replacing(key=DedupeKey(key="k")))

    assert await claim_order(store) == [first, second]


async def test_replacement_of_another_priority_goes_behind_the_jobs_of_that_priority(
    store: Store,
) -> None:
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    keyed, urgent = await put(store, key=DedupeKey(key="k")), await put(store, priority=5)

    later = make_job(priority=5)
    await store.add([replacing(key=DedupeKey(key="k"), priority=5), later])

    assert await next_ids(store) == [urgent, keyed, later.id]


async def test_replacement_is_recorded_with_the_id_of_the_enqueue(store: Store) -> None:
    holder, job = await put(store, active_key="k"), replacing(active_key="k")

    await store.add([job])

    [event] = await store.events(holder)
    assert (event.kind, event.reason, event.detail) == (EventKind.EDITED, "params", job.id)


async def test_holder_of_another_type_is_left_alone(store: Store) -> None:
    holder = await put(store, key=DedupeKey(key="k"))

    added = await _add(store, replacing(key=DedupeKey(key="k"), type="other.type"))

    assert added == Added(holder, created=False)
    assert (await job_of(store, holder)).params == "{}"


@pytest.mark.parametrize(
    "bad",
    [
        {"params": "{"},
        {"params": '"\ud800"'},
        {"name": "two words"},
        {"priority": 40_000},
        {"delay": timedelta.max},
        {"retry_of": new_id()},
        {"slot": Slot(series="s", at=FakeClock().now())},
        {"member": True, "group_id": new_id()},
    ],
    ids=["params", "surrogate", "name", "priority", "due", "retry_of", "slot", "member"],
)
async def test_request_that_cannot_be_kept_replaces_nothing(store: Store, bad: Any) -> None:
    holder = await put(store, params='"old"', key=DedupeKey(key="k"))
    neighbours = [make_job(), make_job()]

    added = await store.add(
        [neighbours[0], replacing(**{"key": DedupeKey(key="k"), **bad}), neighbours[1]]
    )

    assert [answer.created for answer in added] == [True, False, True]
    assert added[1].refused
    assert not added[1].replaced
    assert (await job_of(store, holder)).params == '"old"'


@pytest.mark.parametrize("held", [*KEYS, {"window": KeyWindow(key="k")}], ids=[*NAMES, "debounce"])
async def test_repeated_replacement_whose_reply_was_lost_finds_what_it_wrote(
    store: Store, held: Any, clock: FakeClock
) -> None:
    is_debounced = held.get("window") == KeyWindow(key="k")
    due: dict[str, Any] = {"delay": SECOND} if is_debounced else {}
    holder = await put(store, replaces=is_debounced, **due, **held)
    again = replacing(**due, **held)
    await store.add([again])
    clock.advance(SECOND)
    claim = await take(store)
    await settle(store, claim, SUCCEEDED)

    added = await _add(store, again)

    if "active_key" in held:  # it is free, and a job that runs twice is what at-least-once allows
        assert added.created
    else:
        assert added == Added(holder, created=False, replaced=True)
    assert claim.params == '"new"'
