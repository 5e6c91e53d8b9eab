"""`move` gives a waiting job exactly the position asked for and moves no other job."""

from random import Random

import pytest

from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, Failed, Moved, Released
from outlast.core.ids import JobId
from outlast.core.ordering import Ordering
from outlast.core.position import Anchor, MoveTo
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes
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
    new_id,
    next_ids,
    put,
    settle,
    take,
)

BESIDE = (Anchor.BEFORE, Anchor.AFTER, Anchor.SWAP)
ENDS = (Anchor.FRONT, Anchor.BACK)


async def move(store: Store, job_id: JobId, where: Anchor, target: JobId | None = None) -> bool:
    """Whether it was moved."""
    return await settle(store, await job_of(store, job_id), Moved(MoveTo(where, target)))


async def line(store: Store, ordering: Ordering, number: int = 5, gap: int = 100) -> list[JobId]:
    """So many jobs in the queue `lane`, in claim order."""
    await store.set_queue(Queue(name="lane", ordering=ordering, gap=gap))
    return [await put(store, queue="lane") for _ in range(number)]


async def positions(store: Store, jobs: list[JobId]) -> list[int]:
    return [(await job_of(store, job_id)).position for job_id in jobs]


@pytest.mark.parametrize("ordering", Ordering)
async def test_move_to_the_front_goes_before_everybody(store: Store, ordering: Ordering) -> None:
    a, b, c, d, e = await line(store, ordering)

    assert await move(store, d, Anchor.FRONT)
    assert await move(store, e, Anchor.FRONT)

    assert await claim_order(store, queue="lane") == [e, d, a, b, c]


@pytest.mark.parametrize("ordering", Ordering)
async def test_move_to_the_back_goes_behind_everybody(store: Store, ordering: Ordering) -> None:
    a, b, c, d, e = await line(store, ordering)

    assert await move(store, b, Anchor.BACK)
    assert await move(store, a, Anchor.BACK)

    assert await claim_order(store, queue="lane") == [c, d, e, b, a]


@pytest.mark.parametrize("ordering", Ordering)
async def test_move_beside_another_comes_right_beside_it(store: Store, ordering: Ordering) -> None:
    a, b, c, d, e = await line(store, ordering)

    assert await move(store, e, Anchor.BEFORE, b)
    assert await move(store, a, Anchor.AFTER, c)

    assert await claim_order(store, queue="lane") == [e, b, c, a, d]


@pytest.mark.parametrize("ordering", Ordering)
async def test_swap_exchanges_two_places(store: Store, ordering: Ordering) -> None:
    a, b, c, d, e = await line(store, ordering)

    assert await move(store, b, Anchor.SWAP, e)
    assert await move(store, c, Anchor.SWAP, b)

    assert await claim_order(store, queue="lane") == [a, e, b, d, c]


async def test_move_between_two_takes_the_middle_and_shifts_nobody(store: Store) -> None:
    jobs = await line(store, Ordering.POSITION, 3)

    await move(store, jobs[2], Anchor.BEFORE, jobs[1])

    assert await positions(store, jobs) == [100, 200, 150]


async def test_swap_changes_two_positions_only(store: Store) -> None:
    jobs = await line(store, Ordering.POSITION, 4)

    await move(store, jobs[0], Anchor.SWAP, jobs[3])

    assert await positions(store, jobs) == [400, 200, 300, 100]


async def test_new_job_goes_behind_those_moved_to_the_front(store: Store) -> None:
    [job] = await line(store, Ordering.POSITION, 1)
    await move(store, job, Anchor.FRONT)

    later = [await put(store, queue="lane"), await put(store, queue="lane", active_key="k")]

    assert await positions(store, [job, *later]) == [-100, 100, 200]


async def test_many_new_jobs_go_behind_those_moved_to_the_front(store: Store) -> None:
    [job] = await line(store, Ordering.POSITION, 1)
    await move(store, job, Anchor.FRONT)
    together = [make_job(queue="lane") for _ in range(3)]

    await store.add(together)

    assert await positions(store, [each.id for each in together]) == [100, 200, 300]


async def test_place_before_the_first_behind_zero_stays_behind_zero(store: Store) -> None:
    a, b, c = await line(store, Ordering.POSITION, 3)
    await move(store, a, Anchor.FRONT)

    await move(store, c, Anchor.BEFORE, b)
    await move(store, b, Anchor.AFTER, a)

    assert await positions(store, [a, b, c]) == [-100, -50, 100]


async def test_new_job_of_a_scheduled_queue_goes_behind_those_that_were_numbered(
    store: Store, clock: FakeClock
) -> None:
    a, b, c = await line(store, Ordering.SCHEDULED, 3)
    await move(store, a, Anchor.AFTER, c)
    clock.advance(SECOND)

    later = await put(store, queue="lane")

    assert await positions(store, [b, c, a, later]) == [-300, -200, -100, 0]
    assert await claim_order(store, queue="lane") == [b, c, a, later]


@pytest.mark.parametrize("ordering", Ordering)
@pytest.mark.parametrize("gap", [1, 100])
async def test_many_moves_to_one_place_keep_the_order(
    store: Store, ordering: Ordering, gap: int
) -> None:
    jobs = await line(store, ordering, 40, gap)
    expected, random = list(jobs), Random(3)
    for _ in range(sizes.SIZES.moves):
        moved = random.choice([job_id for job_id in jobs if job_id != jobs[20]])
        where = random.choice([Anchor.BEFORE, Anchor.AFTER])
        expected.remove(moved)
        expected.insert(expected.index(jobs[20]) + (where is Anchor.AFTER), moved)

        assert await move(store, moved, where, jobs[20])

    assert await claim_order(store, queue="lane") == expected


@pytest.mark.parametrize("where", Anchor)
async def test_move_says_what_it_did(store: Store, where: Anchor) -> None:
    a, b = await line(store, Ordering.POSITION, 2)
    target = b if where in BESIDE else None

    await move(store, a, where, target)

    [event] = await store.events(a)
    told = f"{where} {b}" if target else where
    assert (event.kind, event.reason, event.detail) == (EventKind.MOVED, told, None)
    assert await kinds(store, b) == []


async def test_several_moves_in_one_call_are_made_in_the_order_given(store: Store) -> None:
    a, b, c = await line(store, Ordering.POSITION, 3)
    front = [Moved(MoveTo(Anchor.FRONT)), Moved(MoveTo(Anchor.BEFORE, c))]

    jobs = [await job_of(store, b), await job_of(store, a)]
    pairs = zip(jobs, front, strict=True)
    changes = [decide(job, event, new_id=new_id) for job, event in pairs]
    assert await store.apply([*changes, changes[0]]) == [True, True, True]

    assert await claim_order(store, queue="lane") == [b, a, c]


async def test_job_due_later_is_moved_and_keeps_its_state_and_time(
    store: Store, clock: FakeClock
) -> None:
    a, b = await line(store, Ordering.POSITION, 2)
    later = await put(store, queue="lane", delay=SECOND)
    before = await job_of(store, later)

    await move(store, later, Anchor.BEFORE, b)

    after = await job_of(store, later)
    assert (after.state, after.available_at) == (State.SCHEDULED, before.available_at)
    clock.advance(SECOND)
    assert await claim_order(store, queue="lane") == [a, later, b]


async def test_move_beside_a_job_due_later_counts_it_in(store: Store, clock: FakeClock) -> None:
    a, b = await line(store, Ordering.SCHEDULED, 2)
    later = await put(store, queue="lane", delay=HOUR)

    await move(store, a, Anchor.AFTER, later)

    assert await next_ids(store, "lane") == [b, a]
    clock.advance(HOUR)
    assert await claim_order(store, queue="lane") == [b, later, a]


async def test_blocked_jobs_are_numbered_with_the_others(store: Store) -> None:
    a, b, c, d = await line(store, Ordering.SCHEDULED, 4)
    await block(store, b)

    await move(store, d, Anchor.BEFORE, c)

    assert await positions(store, [a, b, d, c]) == [-400, -300, -200, -100]
    assert await move(store, b, Anchor.FRONT)


async def test_job_handed_back_or_retried_can_be_moved(store: Store, clock: FakeClock) -> None:
    a, b, c = await line(store, Ordering.POSITION, 3)
    first, second = [await take(store, queue="lane") for _ in range(2)]
    await settle(store, first, Released("drain"))
    await settle(store, second, Failed("it broke", delay=SECOND))

    assert await move(store, a, Anchor.AFTER, c)
    assert await move(store, b, Anchor.AFTER, a)

    assert (await job_of(store, b)).state is State.RETRY_WAIT
    clock.advance(SECOND)
    assert await claim_order(store, queue="lane") == [c, a, b]


async def test_two_jobs_at_one_position_can_be_told_apart_and_swapped(store: Store) -> None:
    [a] = await line(store, Ordering.POSITION, 1)
    claim = await take(store, queue="lane")
    b = await put(store, queue="lane")
    await settle(store, claim, Released("drain"))
    assert await positions(store, [a, b]) == [100, 100]

    await move(store, a, Anchor.SWAP, b)

    assert await claim_order(store, queue="lane") == [b, a]


@pytest.mark.parametrize("where", BESIDE)
async def test_move_is_refused_when_its_target_is_not_beside_it(
    store: Store, where: Anchor
) -> None:
    jobs = await line(store, Ordering.POSITION, 2)
    running = await put(store, queue="lane", type="other")
    await take(store, queue="lane", types=["other"])
    finished = await ended(store, SUCCEEDED, queue="elsewhere")
    other_queue, other_priority = await put(store), await put(store, queue="lane", priority=1)

    for target in (running, finished, other_queue, other_priority, jobs[0], new_id()):
        assert not await move(store, jobs[0], where, target)

    assert await positions(store, jobs) == [100, 200]
    assert await store.events(jobs[0]) == []


@pytest.mark.parametrize("where", ENDS)
async def test_move_decided_before_somebody_took_the_job_is_refused(
    store: Store, where: Anchor
) -> None:
    [a] = await line(store, Ordering.POSITION, 1)
    seen = await job_of(store, a)
    await take(store, queue="lane")

    assert not await settle(store, seen, Moved(MoveTo(where)))

    job = await job_of(store, a)
    assert (job.position, job.state) == (100, State.RUNNING)
    assert await store.events(a) == []


async def test_move_stays_among_the_jobs_of_its_priority(store: Store) -> None:
    low = await line(store, Ordering.POSITION, 2)
    high = [await put(store, queue="lane", priority=9) for _ in range(2)]

    await move(store, low[1], Anchor.FRONT)
    await move(store, high[0], Anchor.BACK)

    expected = [high[1], high[0], low[1], low[0]]
    assert await claim_order(store, queue="lane") == expected


async def test_place_survives_the_run_that_was_handed_back(store: Store) -> None:
    a, b, c = await line(store, Ordering.POSITION, 3)
    await move(store, c, Anchor.BEFORE, b)
    await take(store, queue="lane")
    claim = await take(store, queue="lane")
    assert claim.id == c

    await settle(store, claim, Released("drain"))

    assert await claim_order(store, queue="lane") == [c, b]
    assert (await job_of(store, a)).state is State.RUNNING


async def test_successor_of_a_moved_job_goes_behind_the_others(store: Store) -> None:
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION))
    chain = [await put(store, queue="lane", delivery=Delivery.LINKED) for _ in range(2)]
    await move(store, chain[1], Anchor.FRONT)
    claim = await take(store, queue="lane")
    assert claim.id == chain[1]

    await settle(store, claim, Failed("it broke"))

    [_, successor] = await store.chain(chain[1])
    assert successor.position == 200
