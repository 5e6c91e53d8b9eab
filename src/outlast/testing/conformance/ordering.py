"""The order in which jobs are claimed."""

from random import Random

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Failed, Released, Snoozed
from outlast.core.ordering import Ordering, sort_key
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LOST,
    MANY,
    SECOND,
    TICK,
    claim_order,
    job_of,
    make_job,
    put,
    settle,
    started,
    take,
)

LANE = Queue(name="lane", ordering=Ordering.POSITION)


async def test_higher_priority_goes_first(store: Store) -> None:
    low, high, middle = [await put(store, priority=number) for number in (-5, 32_767, 0)]

    assert await claim_order(store) == [high, middle, low]


async def test_earlier_due_goes_first_within_a_priority(store: Store, clock: FakeClock) -> None:
    now = clock.now()
    second, first, third = [await put(store, at=now - n * SECOND) for n in (2, 3, 1)]

    assert await claim_order(store) == [first, second, third]


async def test_earlier_created_goes_first_when_due_together(store: Store, clock: FakeClock) -> None:
    due = clock.now() - HOUR
    later = await put(store, at=due)
    clock.set_back(SECOND)
    earlier = await put(store, at=due)

    assert await claim_order(store) == [earlier, later]


async def test_jobs_alike_in_all_else_go_in_the_order_given(store: Store) -> None:
    jobs = [make_job() for _ in range(20)]
    Random(7).shuffle(jobs)

    await store.add(jobs)

    assert await claim_order(store) == [job.id for job in jobs]


async def test_order_is_the_same_however_the_jobs_came(store: Store, clock: FakeClock) -> None:
    random = Random(11)
    for _ in range(60):
        at = clock.now() - random.randrange(3) * SECOND
        await put(store, priority=random.choice((-1, 0, 3)), at=at)
        clock.advance(random.choice((TICK, SECOND)) * random.randrange(2))

    waiting = await store.peek("default", limit=MANY)

    assert waiting == sorted(waiting, key=sort_key)
    assert await claim_order(store) == [job.id for job in waiting]


async def test_claims_of_a_few_take_what_one_claim_would(store: Store) -> None:
    jobs = [await put(store, priority=number % 3) for number in range(12)]
    expected = [job.id for job in await store.peek("default", limit=MANY)]

    taken = [job_id for _ in range(4) for job_id in await claim_order(store, limit=3)]

    assert taken == expected
    assert sorted(taken) == sorted(jobs)


async def test_scheduled_queue_has_no_positions(store: Store) -> None:
    job = await job_of(store, await put(store))

    assert await store.queue("default") == Queue(name="default", ordering=Ordering.SCHEDULED)
    assert job.position == 0


async def test_queue_is_as_it_was_last_set(store: Store) -> None:
    await store.set_queue(LANE)
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION, gap=7))

    assert await store.queue("lane") == Queue(name="lane", ordering=Ordering.POSITION, gap=7)


async def test_position_queue_places_each_job_after_the_last(store: Store) -> None:
    await store.set_queue(LANE)
    jobs = [make_job(queue="lane") for _ in range(3)]

    await store.add(jobs)

    found = [await job_of(store, job.id) for job in jobs]
    assert [job.position for job in found] == [100, 200, 300]


async def test_position_goes_before_due_time(store: Store, clock: FakeClock) -> None:
    await store.set_queue(LANE)
    first = await put(store, queue="lane")
    second = await put(store, queue="lane", at=clock.now() - HOUR)

    assert await claim_order(store, queue="lane") == [first, second]


async def test_each_priority_is_numbered_by_itself(store: Store) -> None:
    await store.set_queue(LANE)
    await put(store, queue="lane", priority=1)

    job = await job_of(store, await put(store, queue="lane", priority=2))

    assert job.position == 100


async def test_scheduled_jobs_count_among_the_waiting(store: Store) -> None:
    await store.set_queue(LANE)
    await put(store, queue="lane", delay=HOUR)

    job = await job_of(store, await put(store, queue="lane"))

    assert job.position == 200


async def test_place_is_free_again_once_nobody_waits(store: Store) -> None:
    await store.set_queue(LANE)
    await started(store, queue="lane")

    job = await job_of(store, await put(store, queue="lane"))

    assert job.position == 100


async def test_queue_s_own_gap_is_used(store: Store) -> None:
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION, gap=10))

    jobs = [await job_of(store, await put(store, queue="lane")) for _ in range(2)]

    assert [job.position for job in jobs] == [10, 20]


async def test_changing_a_queue_moves_nobody(store: Store) -> None:
    waiting = [await put(store, queue="lane") for _ in range(2)]

    await store.set_queue(LANE)

    later = await put(store, queue="lane")
    positions = [(await job_of(store, job_id)).position for job_id in (*waiting, later)]
    assert positions == [0, 0, 100]
    assert await claim_order(store, queue="lane") == [*waiting, later]


async def test_promoted_job_keeps_its_place(store: Store, clock: FakeClock) -> None:
    await store.set_queue(LANE)
    early = await put(store, queue="lane", delay=SECOND)
    late = await put(store, queue="lane")

    clock.advance(SECOND)

    assert await claim_order(store, queue="lane") == [early, late]


@pytest.mark.parametrize("ordering", Ordering)
@pytest.mark.parametrize("event", [Released("drain"), LOST], ids=["released", "lost"])
async def test_job_put_back_keeps_its_place(
    store: Store, clock: FakeClock, ordering: Ordering, event: Released
) -> None:
    await store.set_queue(Queue(name="lane", ordering=ordering))
    first = await put(store, queue="lane")
    clock.advance(SECOND)
    second = await put(store, queue="lane")
    claim = await take(store, queue="lane")
    clock.advance(SECOND)

    await settle(store, claim, event)

    assert await claim_order(store, queue="lane") == [first, second]


async def test_retried_job_of_a_scheduled_queue_goes_by_its_new_due_time(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store)
    other = await put(store)

    await settle(store, claim, Failed("it broke", delay=SECOND))
    clock.advance(SECOND)

    assert await claim_order(store) == [other, claim.id]


async def test_snoozed_job_of_a_position_queue_keeps_its_place(
    store: Store, clock: FakeClock
) -> None:
    await store.set_queue(LANE)
    first, second = [await put(store, queue="lane") for _ in range(2)]
    claim = await take(store, queue="lane")

    await settle(store, claim, Snoozed(SECOND))
    clock.advance(SECOND)

    assert await claim_order(store, queue="lane") == [first, second]


async def test_successor_goes_behind_the_waiting_jobs_of_its_priority(store: Store) -> None:
    await store.set_queue(LANE)
    claim = await started(store, queue="lane", delivery=Delivery.LINKED)
    waiting = [await put(store, queue="lane") for _ in range(2)]

    await settle(store, claim, LOST)

    [_, successor] = await store.chain(claim.id)
    assert await claim_order(store, queue="lane") == [*waiting, successor.id]


async def test_peek_shows_the_next_ones_and_changes_nothing(store: Store) -> None:
    jobs = [await put(store) for _ in range(3)]
    await put(store, delay=HOUR)
    await put(store, queue="other")

    peeked = await store.peek("default", limit=2)

    assert [job.id for job in peeked] == jobs[:2]
    assert [job.token for job in peeked] == [0, 0]
    assert await claim_order(store) == jobs
