"""`edit` changes the params, priority or due time of a waiting job."""

from datetime import timedelta

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Edited, EventKind, Failed, Released, Unblocked
from outlast.core.ids import JobId
from outlast.core.limits import MAX_PAYLOAD
from outlast.core.ordering import Ordering
from outlast.core.position import JobEdit
from outlast.core.state import State
from outlast.errors import TransitionRefused
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    SUCCEEDED,
    block,
    claim_order,
    ended,
    job_of,
    kinds,
    make_job,
    next_ids,
    put,
    settle,
    started,
    take,
    take_many,
)

LANE = Queue(name="lane", ordering=Ordering.POSITION)


async def edit(store: Store, job_id: JobId, **what: object) -> bool:
    """Whether it was edited."""
    return await settle(store, await job_of(store, job_id), Edited(JobEdit(**what)))  # type: ignore[arg-type]


async def test_edited_params_are_what_the_worker_gets(store: Store) -> None:
    job_id = await put(store, params='{"n":1}')

    assert await edit(store, job_id, params='{"n":2}')

    claim = await take(store)
    assert claim.params == '{"n":2}'
    [run] = await store.runs(job_id)
    assert run.params_snapshot == '{"n":2}'


async def test_edit_leaves_what_it_does_not_give(store: Store) -> None:
    job_id = await put(store, params='{"n":1}', priority=3, delay=HOUR)
    before = await job_of(store, job_id)

    await edit(store, job_id, params="[]")

    after = await job_of(store, job_id)
    assert after.params == "[]"
    kept = ("priority", "position", "available_at", "state", "token", "queue", "created_at")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]


async def test_edit_says_which_fields_and_never_the_params(store: Store) -> None:
    job_id = await put(store)

    await edit(store, job_id, params='{"secret":"s3cr3t"}', priority=1, delay=HOUR)

    [event] = await store.events(job_id)
    told = (event.kind, event.reason, event.detail)
    assert told == (EventKind.EDITED, "params, priority, delay", None)


@pytest.mark.parametrize("event", [Released("drain"), Failed("it broke")])
async def test_params_are_frozen_once_the_job_was_claimed(
    store: Store, event: Released | Failed
) -> None:
    job_id = await put(store)
    seen = await job_of(store, job_id)
    await settle(store, await take(store), event)

    with pytest.raises(TransitionRefused, match="frozen at its first claim"):
        await edit(store, job_id, params="[]")

    assert not await settle(store, seen, Edited(JobEdit(params="[]")))
    assert (await job_of(store, job_id)).params == "{}"


@pytest.mark.parametrize(
    "params", ["{", "", "[1,]", "\0", '"\ud800"', '"' + MAX_PAYLOAD * "x" + '"']
)
async def test_params_that_no_store_can_keep_are_refused(store: Store, params: str) -> None:
    first, job_id = [await put(store) for _ in range(2)]
    jobs = [await job_of(store, each) for each in (first, job_id)]
    good, bad = Edited(JobEdit(priority=2)), Edited(JobEdit(params=params, priority=3))

    assert [await settle(store, jobs[1], bad), await settle(store, jobs[0], good)] == [False, True]

    assert await job_of(store, job_id) == jobs[1]
    assert await kinds(store, job_id) == []


@pytest.mark.parametrize("what", [{"priority": 32_768}, {"delay": timedelta.max}])
async def test_edit_out_of_bounds_is_refused(store: Store, what: dict[str, object]) -> None:
    job_id = await put(store)

    assert not await edit(store, job_id, params="[]", **what)

    job = await job_of(store, job_id)
    assert (job.params, job.priority, job.state) == ("{}", 0, State.QUEUED)


async def test_higher_priority_takes_a_job_past_the_others(store: Store) -> None:
    a, b = [await put(store) for _ in range(2)]

    assert await edit(store, b, priority=1)

    assert await next_ids(store) == [b, a]
    assert await claim_order(store) == [b, a]


async def test_job_of_another_priority_goes_to_the_end_of_it(store: Store) -> None:
    await store.set_queue(LANE)
    low = [await put(store, queue="lane") for _ in range(2)]
    high = [await put(store, queue="lane", priority=5) for _ in range(2)]

    await edit(store, low[0], priority=5)

    job = await job_of(store, low[0])
    assert (job.priority, job.position) == (5, 300)
    assert await claim_order(store, queue="lane") == [*high, low[0], low[1]]


async def test_same_priority_again_keeps_the_place(store: Store) -> None:
    await store.set_queue(LANE)
    jobs = [await put(store, queue="lane") for _ in range(2)]

    await edit(store, jobs[0], priority=0)

    assert (await job_of(store, jobs[0])).position == 100


async def test_in_a_scheduled_queue_another_priority_means_no_position(store: Store) -> None:
    await store.set_queue(LANE)
    job_id = await put(store, queue="lane")
    await store.set_queue(Queue(name="lane"))

    await edit(store, job_id, priority=2)

    job = await job_of(store, job_id)
    assert (job.priority, job.position) == (2, 0)


async def test_job_put_off_is_taken_when_it_is_due(store: Store, clock: FakeClock) -> None:
    job_id = await put(store)

    assert await edit(store, job_id, delay=SECOND)

    job = await job_of(store, job_id)
    assert (job.state, job.available_at) == (State.SCHEDULED, clock.now() + SECOND)
    assert await take_many(store) == []
    clock.advance(SECOND)
    assert await claim_order(store) == [job_id]


async def test_job_due_later_can_be_due_now(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, delay=HOUR)

    assert await edit(store, job_id, at=clock.now())

    assert await next_ids(store) == [job_id]
    assert await claim_order(store) == [job_id]


async def test_job_that_waits_for_its_retry_keeps_that_state(
    store: Store, clock: FakeClock
) -> None:
    job_id = await ended(store, Failed("it broke", delay=HOUR))

    assert await edit(store, job_id, delay=SECOND, priority=4)

    job = await job_of(store, job_id)
    assert (job.state, job.priority, job.failures) == (State.RETRY_WAIT, 4, 1)
    clock.advance(SECOND)
    assert await claim_order(store) == [job_id]


async def test_job_handed_back_can_be_put_off(store: Store, clock: FakeClock) -> None:
    job_id = await ended(store, Released("drain"))

    assert await edit(store, job_id, delay=SECOND)

    assert await take_many(store) == []
    clock.advance(SECOND)
    assert (await take(store)).token == 2


async def test_blocked_job_is_edited_and_stays_blocked(store: Store, clock: FakeClock) -> None:
    job_id = await put(store)
    await block(store, job_id)

    assert await edit(store, job_id, params="[]", delay=SECOND)

    job = await job_of(store, job_id)
    assert (job.state, job.available_at) == (State.BLOCKED, clock.now() + SECOND)
    assert await settle(store, job, Unblocked())
    assert await take_many(store) == []
    clock.advance(SECOND)
    assert await claim_order(store) == [job_id]


async def test_edit_decided_before_the_job_was_taken_is_refused(store: Store) -> None:
    job_id = await put(store)
    seen = await job_of(store, job_id)
    claim = await take(store)

    assert not await settle(store, seen, Edited(JobEdit(params="[]", priority=5)))

    job = await job_of(store, job_id)
    assert (job.params, job.priority) == (claim.params, 0)
    assert await kinds(store, job_id) == []


@pytest.mark.parametrize("what", [{"params": "[]"}, {"priority": 1}, {"delay": SECOND}])
async def test_running_and_finished_jobs_are_never_edited(
    store: Store, what: dict[str, object]
) -> None:
    finished = await ended(store, SUCCEEDED)
    running = (await started(store)).id

    for job_id in (finished, running):
        before = await job_of(store, job_id)
        with pytest.raises(TransitionRefused, match=before.state):
            await edit(store, job_id, **what)
        assert await job_of(store, job_id) == before


async def test_start_deadline_stays_where_it_was(store: Store, clock: FakeClock) -> None:
    once = make_job(delivery=Delivery.ONCE, start_within=HOUR)
    await store.add([once])
    deadline = (await job_of(store, once.id)).start_deadline

    assert await edit(store, once.id, delay=2 * HOUR)

    assert (await job_of(store, once.id)).start_deadline == deadline
    clock.advance(2 * HOUR)
    assert await take_many(store) == []
