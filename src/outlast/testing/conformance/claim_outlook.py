"""What a claim says beside its jobs: how many wait, and when the next one becomes due."""

from outlast.core.delivery import Delivery
from outlast.core.event import Failed
from outlast.core.run import Claims
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    SECOND,
    TYPE,
    make_holder,
    put,
    settle,
    take,
)


async def look(
    store: Store, *, queue: str = "default", limit: int = 1, prefetch: int = 0, count: int = 0
) -> Claims:
    """Claim as a worker does that plans with the answer."""
    return await store.claim(
        make_holder(),
        queue=queue,
        types=[TYPE],
        limit=limit,
        prefetch=prefetch,
        lease=LEASE,
        count=count,
    )


async def test_claim_of_nothing_says_when_the_next_job_becomes_due(
    store: Store, clock: FakeClock
) -> None:
    await put(store, delay=2 * HOUR)
    await put(store, delay=HOUR)

    first = await look(store)
    clock.advance(HOUR / 2)
    second = await look(store)
    clock.advance(HOUR / 2)
    third = await look(store)

    assert (first, first.due_in) == ([], HOUR)
    assert (second, second.due_in) == ([], HOUR / 2)
    assert len(third) == 1


async def test_claim_of_nothing_says_when_a_retry_becomes_due(store: Store) -> None:
    await put(store, max_attempts=3)
    claim = await take(store)
    assert await settle(store, claim, Failed("it broke", 3 * SECOND))

    assert (await look(store)).due_in == 3 * SECOND


async def test_claim_of_nothing_says_nothing_if_no_job_waits_for_a_time(store: Store) -> None:
    before = await look(store)
    await put(store)
    await take(store)

    assert (before.due_in, (await look(store)).due_in) == (None, None)


async def test_due_jobs_of_other_queues_shorten_the_wait_at_most(store: Store) -> None:
    for seconds in range(1, 4):
        await put(store, queue="other", delay=seconds * SECOND)
    await put(store, delay=HOUR)

    assert (await look(store)).due_in == HOUR


async def test_no_job_becomes_due_before_a_claim_says_so_however_many_wait(store: Store) -> None:
    for seconds in range(1, 131):
        await put(store, queue="other", delay=seconds * SECOND)
    await put(store, delay=HOUR)

    due_in = (await look(store)).due_in

    assert due_in is not None
    assert SECOND <= due_in <= HOUR


async def test_claim_counts_the_jobs_that_are_left(store: Store) -> None:
    for _ in range(6):
        await put(store)
    await put(store, type="other")
    await put(store, queue="other")
    await put(store, delay=HOUR)

    answers = [await look(store, count=100), await look(store, limit=1, prefetch=2, count=100)]

    assert [(len(claims), claims.waiting) for claims in answers] == [(1, 5), (3, 2)]


async def test_claim_counts_up_to_what_it_is_asked_for(store: Store) -> None:
    for _ in range(6):
        await put(store)

    assert [(await look(store, count=n)).waiting for n in (0, 3)] == [None, 3]


async def test_jobs_that_cannot_be_prefetched_are_counted(store: Store) -> None:
    for _ in range(3):
        await put(store, delivery=Delivery.LINKED)

    claims = await look(store, limit=1, prefetch=5, count=10)

    assert (len(claims), claims.waiting) == (1, 2)
