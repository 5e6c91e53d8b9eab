"""The event stream has one order; a reader that pages from the last event misses none."""

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, EventKind, EventRecord, Failed
from outlast.core.ids import JobId
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    MANY,
    SECOND,
    SUCCEEDED,
    ended,
    job_of,
    kinds,
    make_job,
    put,
    settle,
    started,
    take,
)

DEAD = Failed("no", permanent=True)


async def _pages(store: Store, size: int) -> list[EventRecord]:
    """Everything, a page at a time."""
    seen: list[EventRecord] = []
    while page := await store.stream(after=seen[-1].id if seen else 0, limit=size):
        assert len(page) <= size
        seen += page
    return seen


async def _some_history(store: Store) -> list[JobId]:
    """A few jobs and what was recorded of them; their ids."""
    first = await started(store)
    second = await put(store)
    await settle(store, first, Failed("broke", delay=HOUR))
    await settle(store, await job_of(store, second), CancelRequested("no"))
    third = await ended(store, DEAD)
    return [first.id, second, third]


async def test_stream_is_what_was_recorded_of_everybody_in_order(store: Store) -> None:
    ids = await _some_history(store)

    told = await store.stream(limit=MANY)

    assert [(event.job_id, event.kind) for event in told] == [
        (ids[0], EventKind.RETRY),
        (ids[1], EventKind.CANCELLED),
        (ids[2], EventKind.DEAD_LETTER),
    ]
    assert [event.id for event in told] == sorted({event.id for event in told})
    assert told == [event for job_id in ids for event in await store.events(job_id)]


async def test_pages_of_any_size_tell_the_same(store: Store) -> None:
    for _ in range(3):
        await _some_history(store)
    whole = await store.stream(limit=MANY)

    assert len(whole) == 9
    assert [await _pages(store, size) for size in (1, 2, 4, 9)] == [whole] * 4
    assert await store.stream(after=whole[-1].id, limit=MANY) == []
    assert await store.stream(limit=0) == []


async def test_what_comes_later_comes_after_what_was_seen(store: Store) -> None:
    await _some_history(store)
    seen = await store.stream(limit=MANY)

    await _some_history(store)

    later = await store.stream(after=seen[-1].id, limit=MANY)
    assert len(later) == 3
    assert await store.stream(limit=MANY) == [*seen, *later]


async def test_what_was_pruned_leaves_the_stream_and_no_id_comes_back(
    store: Store, clock: FakeClock
) -> None:
    await _some_history(store)
    before = await store.stream(limit=MANY)
    clock.advance(SECOND)
    await store.prune(older_than=SECOND / 2, limit=MANY)  # the cancelled one

    left = await store.stream(limit=MANY)
    await ended(store, DEAD)
    later = (await store.stream(limit=MANY))[len(left) :]

    assert left == [event for event in before if event.kind is not EventKind.CANCELLED]
    assert [event.id > before[-1].id for event in later] == [True]


async def test_retry_by_hand_is_told_of_the_job_before(store: Store, clock: FakeClock) -> None:
    dead = await ended(store, DEAD)
    clock.advance(SECOND)
    retry = make_job(retry_of=dead)

    await store.add([retry, retry, make_job(retry_of=dead)])

    event = (await store.events(dead))[-1]
    assert await kinds(store, dead) == [EventKind.DEAD_LETTER, EventKind.RETRIED], (
        "once, by the one stored"
    )
    assert (event.detail, event.token, event.at) == (retry.id, 1, clock.now())
    assert (event.run_id, event.reason) == (None, None)
    assert await kinds(store, retry.id) == []
    assert (await store.stream(limit=MANY))[-1] == event


async def test_retry_that_was_refused_is_told_nowhere(store: Store) -> None:
    dead = await ended(store, DEAD)
    running = await started(store)

    await store.add([make_job(retry_of=running.id), make_job(retry_of=dead, priority=40_000)])

    assert await kinds(store, running.id) == []
    assert await kinds(store, dead) == [EventKind.DEAD_LETTER]


async def test_successor_of_a_chain_is_no_retry_by_hand(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED)
    await settle(store, claim, FAILED)
    await settle(store, await take(store), SUCCEEDED)

    assert await kinds(store, claim.id) == [EventKind.CHAINED]
