"""`renumber` spaces positions evenly and keeps the order."""

from random import Random

import pytest

from outlast.core.event import EventKind, Failed
from outlast.core.ordering import Ordering
from outlast.core.position import Anchor
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    block,
    claim_order,
    job_of,
    make_job,
    next_ids,
    put,
    settle,
    take,
)
from outlast.testing.conformance.move import line, move, positions


async def test_renumbered_positions_are_even_and_in_the_same_order(store: Store) -> None:
    a, b, c = await line(store, Ordering.POSITION, 3)
    await move(store, c, Anchor.BEFORE, b)
    await move(store, b, Anchor.BEFORE, c)
    await move(store, c, Anchor.AFTER, b)
    order = await next_ids(store, "lane")

    assert await store.renumber("lane") == 2

    assert await positions(store, order) == [100, 200, 300]
    assert await claim_order(store, queue="lane") == order == [a, b, c]


async def test_renumbering_is_told_of_the_queue(store: Store, clock: FakeClock) -> None:
    jobs = await line(store, Ordering.POSITION, 3)
    await move(store, jobs[2], Anchor.FRONT)

    changed = await store.renumber("lane")

    [event] = await store.events(None)
    told = (event.kind, event.queue, event.job_id, event.detail, event.at)
    assert changed == 3
    assert told == (EventKind.RENUMBERED, "lane", None, "3", clock.now())


@pytest.mark.parametrize("ordering", Ordering)
async def test_renumbering_what_is_even_changes_and_tells_nothing(
    store: Store, ordering: Ordering
) -> None:
    jobs = await line(store, ordering, 3)

    assert await store.renumber("lane") == 0
    assert await store.renumber("nobody-set-it") == 0

    assert await next_ids(store, "lane") == jobs
    assert await store.events(None) == []


async def test_each_priority_is_renumbered_by_itself_and_no_other_queue(store: Store) -> None:
    low = await line(store, Ordering.POSITION, 2)
    high = [await put(store, queue="lane", priority=1) for _ in range(2)]
    other = await put(store)
    for job_id in (low[1], high[1], other):
        await move(store, job_id, Anchor.FRONT)

    await store.renumber("lane")

    assert await positions(store, [low[1], low[0]]) == [100, 200]
    assert await positions(store, [high[1], high[0]]) == [100, 200]
    assert await positions(store, [other]) == [-100]


async def test_renumbering_a_scheduled_queue_leaves_the_unplaced_alone(store: Store) -> None:
    a, b, c, d, e = await line(store, Ordering.SCHEDULED)
    for job_id, where in ((d, Anchor.FRONT), (e, Anchor.FRONT), (b, Anchor.BACK)):
        await move(store, job_id, where)
    await move(store, d, Anchor.BEFORE, e)

    assert await store.renumber("lane") == 2

    assert await positions(store, [d, e, a, c, b]) == [-200, -100, 0, 0, 100]
    assert await claim_order(store, queue="lane") == [d, e, a, c, b]


async def test_every_waiting_state_is_renumbered_and_no_running_job(
    store: Store, clock: FakeClock
) -> None:
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION))
    retrying, running, blocked, later = [
        await put(store, queue="lane", delay=HOUR if n == 3 else None) for n in range(4)
    ]
    claim = await take(store, queue="lane")
    await take(store, queue="lane")
    await settle(store, claim, Failed("it broke", delay=HOUR))
    await block(store, blocked)
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION, gap=7))

    assert await store.renumber("lane") == 3

    assert await positions(store, [retrying, blocked, later]) == [7, 14, 21]
    assert await positions(store, [running]) == [200]
    clock.advance(HOUR)
    assert await claim_order(store, queue="lane") == [retrying, later]


async def test_renumbering_after_many_moves_keeps_the_order(store: Store) -> None:
    random, jobs = Random(9), await line(store, Ordering.POSITION, 20, gap=2)
    for _ in range(sizes.SIZES.moves):
        one, other = random.sample(jobs, 2)
        where = random.choice(list(Anchor))
        await move(store, one, where, None if where in (Anchor.FRONT, Anchor.BACK) else other)
    order = await next_ids(store, "lane")

    await store.renumber("lane")

    assert await positions(store, order) == [2 * n for n in range(1, 21)]
    assert await claim_order(store, queue="lane") == order


async def test_order_survives_a_change_of_ordering(store: Store) -> None:
    jobs = await line(store, Ordering.SCHEDULED, 4)
    await move(store, jobs[3], Anchor.BEFORE, jobs[1])
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION))
    new = await put(store, queue="lane")
    order = await next_ids(store, "lane")
    assert order == [jobs[0], jobs[3], jobs[1], jobs[2], new]

    await store.renumber("lane")

    assert await positions(store, order) == [100, 200, 300, 400, 500]
    assert await claim_order(store, queue="lane") == order


async def test_peek_shows_what_is_due_before_anybody_has_promoted_it(
    store: Store, clock: FakeClock
) -> None:
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION))
    first = await put(store, queue="lane", delay=SECOND)
    second = await put(store, queue="lane")
    third = await put(store, queue="lane", delay=SECOND, type="other")
    urgent = await put(store, queue="lane", delay=SECOND, priority=1)
    await put(store, queue="lane", delay=HOUR, priority=2)
    await put(store, delay=SECOND, priority=3)
    assert await next_ids(store, "lane") == [second]

    clock.advance(SECOND)

    expected = [urgent, first, second, third]
    assert await next_ids(store, "lane") == expected
    assert [job.id for job in await store.peek("lane", limit=2)] == expected[:2]
    types = ("other", (await job_of(store, first)).type)
    assert await claim_order(store, queue="lane", types=types) == expected


async def test_peek_and_claim_agree_when_due_times_fall_together(
    store: Store, clock: FakeClock
) -> None:
    random = Random(2)
    for _ in range(40):
        spans = (None, SECOND, 2 * SECOND, HOUR)
        await store.add([make_job(delay=random.choice(spans), priority=random.randrange(2))])
        clock.advance(SECOND / 4)

    order = await next_ids(store)

    assert len(order) > 20
    assert await claim_order(store) == order
