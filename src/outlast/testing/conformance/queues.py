"""Queue settings: the concurrency limit, and a pause that stops claims."""

import asyncio
from collections.abc import Callable
from typing import Any

from outlast.core.event import EventKind, EventRecord, Released
from outlast.core.ordering import Ordering
from outlast.core.queue import Pause, QueueGate
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LOST,
    MANY,
    SECOND,
    SUCCEEDED,
    TICK,
    claim_order,
    job_of,
    make_job,
    put,
    settle,
    started,
    take,
    take_many,
)

ONE = Queue(name="default", concurrency=1)


async def test_queue_that_nobody_set_has_no_limit_and_no_pause(store: Store) -> None:
    assert await store.queue("nobody") == Queue(name="nobody", concurrency=None, pause=None)
    assert await store.queues() == []


async def test_queue_is_read_as_it_was_set(store: Store) -> None:
    lane = Queue(name="lane", ordering=Ordering.POSITION, gap=10, concurrency=3)

    await store.set_queue(lane)
    await store.set_queue(ONE)

    assert await store.queue("lane") == lane
    assert await store.queues() == [ONE, lane]


async def test_limit_can_be_changed_and_taken_away(store: Store) -> None:
    await store.set_queue(ONE)
    await store.set_queue(Queue(name="default", concurrency=1_000_000))
    assert (await store.queue("default")).concurrency == 1_000_000

    await store.set_queue(Queue(name="default"))

    assert (await store.queue("default")).concurrency is None


async def test_limited_queue_never_has_more_open_runs(store: Store) -> None:
    await store.set_queue(Queue(name="default", concurrency=2))
    first, second, third = [await put(store) for _ in range(3)]

    assert await claim_order(store) == [first, second]
    assert await take_many(store, holder="worker-2") == []
    assert (await job_of(store, third)).state is State.QUEUED


async def test_every_end_of_a_run_makes_room(store: Store) -> None:
    await store.set_queue(ONE)
    for event in (SUCCEEDED, FAILED, LOST, Released("drain")):
        claim = await started(store, max_attempts=1)
        await put(store)
        assert await take_many(store) == []

        await settle(store, claim, event)

        claims = await take_many(store)
        assert len(claims) == 1, event
        while claims:  # whatever is left, before the next event
            await settle(store, claims[0], SUCCEEDED)
            claims = await take_many(store)


async def test_open_run_counts_though_its_lease_is_over(store: Store, clock: FakeClock) -> None:
    await store.set_queue(ONE)
    await started(store)
    await put(store)

    clock.advance(HOUR)

    assert await take_many(store) == []


async def test_runs_of_other_queues_do_not_count(store: Store) -> None:
    await store.set_queue(ONE)
    await started(store, queue="lane")
    mine = await put(store)

    assert await claim_order(store) == [mine]


async def test_nothing_is_prefetched_from_a_limited_queue(store: Store) -> None:
    await store.set_queue(Queue(name="default", concurrency=5))
    jobs = [await put(store) for _ in range(5)]

    assert await take_many(store, limit=0, prefetch=3) == []
    assert await claim_order(store, limit=2, prefetch=3) == jobs[:2]


async def test_raised_limit_lets_more_in_and_a_lowered_one_stops_nobody(store: Store) -> None:
    await store.set_queue(Queue(name="default", concurrency=2))
    jobs = [await put(store) for _ in range(4)]
    claims = await take_many(store)

    await store.set_queue(ONE)
    await settle(store, claims[0], SUCCEEDED)
    still_full = await take_many(store)
    await store.set_queue(Queue(name="default", concurrency=3))

    assert still_full == []
    assert await claim_order(store) == jobs[2:]


async def test_limited_queue_keeps_its_order(store: Store) -> None:
    await store.set_queue(ONE)
    low, high = await put(store), await put(store, priority=5)
    taken = []
    for _ in range(2):
        claim = await take(store)
        taken.append(claim.id)
        await settle(store, claim, SUCCEEDED)

    assert taken == [high, low]


async def test_claims_at_once_do_not_exceed_the_limit(store: Store) -> None:
    await store.set_queue(Queue(name="default", concurrency=3))
    await store.add([make_job() for _ in range(20)])

    taken = await asyncio.gather(
        *(take_many(store, limit=2, holder=f"worker-{n}") for n in range(5))
    )

    assert sum(len(claims) for claims in taken) == 3


async def test_nothing_of_a_paused_queue_is_claimed(store: Store, clock: FakeClock) -> None:
    job_id = await put(store)
    await store.pause("default", reason="deploy", span=None)

    assert await take_many(store) == []
    assert await take_many(store, limit=0, prefetch=5) == []
    pause = Pause(at=clock.now(), reason="deploy")
    assert await store.queue("default") == Queue(name="default", pause=pause)
    assert await store.queues() == [Queue(name="default", pause=pause)]
    assert (await job_of(store, job_id)).state is State.QUEUED


async def test_pause_is_of_one_queue(store: Store) -> None:
    await store.pause("default", reason=None, span=None)
    other = await put(store, queue="lane")

    assert await claim_order(store, queue="lane") == [other]


async def test_paused_queue_takes_new_jobs_and_lets_running_ones_end(store: Store) -> None:
    claim = await started(store)
    await store.pause("default", reason=None, span=None)

    waits = await put(store)

    assert await settle(store, claim, SUCCEEDED)
    assert (await job_of(store, waits)).state is State.QUEUED


async def test_claim_of_a_paused_queue_still_promotes(store: Store, clock: FakeClock) -> None:
    due = await put(store, delay=SECOND)
    await store.pause("default", reason=None, span=None)
    clock.advance(SECOND)

    await take_many(store)

    assert (await job_of(store, due)).state is State.QUEUED


async def test_resumed_queue_goes_on_where_it_was(store: Store) -> None:
    jobs = [await put(store) for _ in range(3)]
    await store.pause("default", reason=None, span=None)

    assert await store.resume("default")

    assert (await store.queue("default")).pause is None
    assert await claim_order(store) == jobs


async def test_resuming_what_is_not_paused_changes_nothing(store: Store) -> None:
    assert not await store.resume("default")
    assert await store.queues() == []
    assert await store.events(None) == []


async def test_pause_ends_by_itself_when_its_time_has_passed(
    store: Store, clock: FakeClock
) -> None:
    job_id = await put(store)
    await store.pause("default", reason=None, span=SECOND)

    clock.advance(SECOND - TICK)
    before = await take_many(store), await store.queue("default")
    clock.advance(TICK)

    assert before == ([], Queue(name="default", pause=before[1].pause))
    assert before[1].pause == Pause(at=clock.now() - SECOND, until=clock.now())
    assert (await store.queue("default")).pause is None
    assert not await store.resume("default"), "it is over already"
    assert await claim_order(store) == [job_id]


async def test_pausing_again_replaces_reason_and_time(store: Store, clock: FakeClock) -> None:
    await store.pause("default", reason="deploy", span=SECOND)
    clock.advance(TICK)

    await store.pause("default", reason=None, span=HOUR)

    at = clock.now()
    assert (await store.queue("default")).pause == Pause(at=at, until=at + HOUR)


async def test_setting_a_queue_leaves_its_pause_alone(store: Store) -> None:
    await store.pause("default", reason="deploy", span=None)
    before = await store.queue("default")

    await store.set_queue(ONE)

    assert (await store.queue("default")).pause == before.pause is not None
    assert (await store.queue("default")).concurrency == 1


async def test_pausing_a_queue_leaves_its_settings_alone(store: Store) -> None:
    lane = Queue(name="lane", ordering=Ordering.POSITION, gap=10, concurrency=3)
    await store.set_queue(lane)

    await store.pause("lane", reason=None, span=None)
    await store.resume("lane")

    assert await store.queue("lane") == lane


async def test_pause_and_resume_are_recorded_of_the_queue(store: Store, clock: FakeClock) -> None:
    start = clock.now()
    await store.pause("lane", reason="deploy", span=HOUR)
    clock.advance(SECOND)
    await store.resume("lane")

    paused, resumed = await store.events(None)

    plain: dict[str, Any] = {"job_id": None, "run_id": None, "token": 0, "queue": "lane"}
    until = (start + HOUR).isoformat()
    assert paused == EventRecord(
        id=paused.id, at=start, kind=EventKind.PAUSED, reason="deploy", detail=until, **plain
    )
    assert resumed == EventRecord(
        id=resumed.id, at=clock.now(), kind=EventKind.RESUMED, reason=None, **plain
    )


async def test_resume_and_a_set_queue_hint_it(store: Store) -> None:
    await store.pause("lane", reason=None, span=None)
    heard, deaf = _listening(store)

    await store.resume("lane")
    await _heard_of("lane", heard)
    await store.set_queue(Queue(name="lane", concurrency=2))
    await _heard_of("lane", heard)
    deaf()


async def test_end_of_a_run_hints_its_limited_queue(store: Store) -> None:
    await store.set_queue(Queue(name="lane", concurrency=1))
    for event in (SUCCEEDED, FAILED):
        claim = await started(store, queue="lane", max_attempts=1)
        heard, deaf = _listening(store)

        await settle(store, claim, event)

        await _heard_of("lane", heard)
        deaf()


def _listening(store: Store) -> tuple[asyncio.Queue[Notification], Callable[[], None]]:
    """What is heard of work from now on, and how to stop."""
    heard: asyncio.Queue[Notification] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def wake(hint: Notification) -> None:
        loop.call_soon_threadsafe(heard.put_nowait, hint)

    return heard, store.subscribe(wake, topics=[Topic.WORK])


async def _heard_of(queue: str, heard: asyncio.Queue[Notification]) -> None:
    """Earlier notifications may come first: a new subscriber may be notified at once."""
    async with asyncio.timeout(120):
        while queue not in (await heard.get()).queues:
            pass


async def test_gate_lets_through_what_there_is_room_for() -> None:
    """What a store chooses in its claim, as the core has it."""
    assert QueueGate().capacity(3, 4) == (3, 4)
    assert QueueGate(is_paused=True).capacity(3, 4) == (0, 0)
    assert QueueGate(concurrency=5, open_runs=3).capacity(3, 4) == (2, 0)
    assert QueueGate(concurrency=5, open_runs=7).capacity(3, 4) == (0, 0)
    assert QueueGate(concurrency=MANY).capacity(3, 4) == (3, 0)
    assert QueueGate(is_reserved=True).capacity(3, 4) == (1, 0)
    assert QueueGate(is_reserved=True).capacity(0, 4) == (0, 0)
    assert QueueGate(is_reserved=True, concurrency=1, open_runs=1).capacity(3, 4) == (0, 0)
