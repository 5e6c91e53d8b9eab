"""Runs, events, artifacts, lists and counts can be read afterwards."""

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, EventKind, Failed
from outlast.core.run import Lease
from outlast.core.state import RunStatus, State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LOST,
    SECOND,
    SUCCEEDED,
    TICK,
    ended,
    job_of,
    kinds,
    last_run,
    new_id,
    put,
    settle,
    started,
    take,
)


async def test_runs_come_first_one_first(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    await settle(store, claim, LOST)
    clock.advance(SECOND)
    await settle(store, await take(store), FAILED)
    await take(store)

    runs = await store.runs(claim.id)

    assert [run.token for run in runs] == [1, 2, 3]
    assert [run.status for run in runs] == [RunStatus.LOST, RunStatus.FAILED, RunStatus.RUNNING]


async def test_job_nobody_knows_has_no_history(store: Store) -> None:
    assert await store.runs(new_id()) == []
    assert await store.events(new_id()) == []


async def test_events_tell_what_was_unusual_oldest_first(store: Store, clock: FakeClock) -> None:
    claim = await started(store, max_attempts=2)
    await settle(store, claim, Failed("it broke", delay=SECOND))
    clock.advance(SECOND)
    second = await take(store)
    await settle(store, second, LOST)

    first_event, second_event = await store.events(claim.id)

    assert (first_event.kind, first_event.reason) == (EventKind.RETRY, "failed")
    assert (first_event.run_id, first_event.token) == (claim.run_id, 1)
    assert first_event.at == clock.now() - SECOND
    assert (second_event.kind, second_event.reason) == (EventKind.DEAD_LETTER, "owner_dead")
    assert (second_event.run_id, second_event.token) == (second.run_id, 2)
    assert (second_event.at, second_event.job_id) == (clock.now(), claim.id)
    assert first_event.id < second_event.id


async def test_event_of_a_waiting_job_names_no_run(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, LOST)

    await settle(store, await job_of(store, claim.id), CancelRequested("enough"))

    event = (await store.events(claim.id))[-1]
    assert (event.kind, event.run_id, event.token) == (EventKind.CANCELLED, None, 1)
    assert event.reason == "enough"


async def test_events_belong_to_their_own_job(store: Store) -> None:
    first = await started(store, delivery=Delivery.LINKED)
    await settle(store, first, FAILED)
    [_, successor] = await store.chain(first.id)

    assert await kinds(store, first.id) == [EventKind.CHAINED]
    assert await kinds(store, successor.id) == []


async def test_artifacts_are_appended_to_an_open_run(store: Store) -> None:
    claim = await started(store)

    first = await store.attach(claim.lease, ["a.txt"])
    second = await store.attach(claim.lease, ["b.txt", "a.txt"])

    assert (first, second) == (True, True)
    assert (await last_run(store, claim.id)).artifacts == ("a.txt", "b.txt", "a.txt")


async def test_artifacts_are_appended_to_a_closed_run(store: Store) -> None:
    claim = await started(store)
    await store.attach(claim.lease, ["a.txt"])
    await settle(store, claim, SUCCEEDED)
    before = await last_run(store, claim.id)

    attached = await store.attach(claim.lease, ["report.html"])

    after = await last_run(store, claim.id)
    assert attached
    assert after.artifacts == ("a.txt", "report.html")
    assert (after.status, after.finished_at) == (before.status, before.finished_at)


async def test_artifacts_of_a_lost_run_are_kept_while_its_job_waits(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, Failed("it broke", delay=HOUR))

    attached = await store.attach(claim.lease, ["core.dump"])

    assert attached
    assert (await last_run(store, claim.id)).artifacts == ("core.dump",)


async def test_artifacts_need_a_run(store: Store) -> None:
    job_id = await put(store)

    assert not await store.attach(Lease(job_id, 0), ["x"])
    assert not await store.attach(Lease(job_id, 1), ["x"])
    assert not await store.attach(Lease(new_id(), 1), ["x"])


async def test_due_jobs_are_promoted_earliest_first(store: Store, clock: FakeClock) -> None:
    last, first, second = [await put(store, delay=n * SECOND) for n in (3, 1, 2)]
    clock.advance(HOUR)

    moved = await store.promote_due(limit=2)

    states = [(await job_of(store, job_id)).state for job_id in (first, second, last)]
    assert moved == 2
    assert states == [State.QUEUED, State.QUEUED, State.SCHEDULED]
    assert await store.promote_due(limit=2) == 1
    assert await store.promote_due(limit=2) == 0


async def test_promotion_reaches_every_queue_and_every_waiting_job(
    store: Store, clock: FakeClock
) -> None:
    failed = await started(store)
    await settle(store, failed, Failed("it broke", delay=SECOND))
    scheduled = await put(store, queue="other", delay=SECOND)
    clock.advance(SECOND - TICK)
    too_early = await store.promote_due(limit=10)

    clock.advance(TICK)

    assert too_early == 0
    assert await store.promote_due(limit=10) == 2
    assert (await job_of(store, failed.id)).state is State.QUEUED
    assert (await job_of(store, scheduled)).state is State.QUEUED
    assert (await job_of(store, failed.id)).available_at == clock.now()


async def test_overdue_lists_queued_jobs_earliest_deadline_first(
    store: Store, clock: FakeClock
) -> None:
    second, third, first = [await put(store, start_within=n * SECOND) for n in (2, 3, 1)]
    await put(store, start_within=HOUR)
    await put(store)
    clock.advance(3 * SECOND)
    at_the_deadline = [job.id for job in await store.missed_start_deadline(limit=10)]

    clock.advance(TICK)

    assert at_the_deadline == [first, second]
    assert [job.id for job in await store.missed_start_deadline(limit=10)] == [first, second, third]
    assert [job.id for job in await store.missed_start_deadline(limit=1)] == [first]


async def test_only_queued_jobs_are_overdue(store: Store, clock: FakeClock) -> None:
    await ended(store, SUCCEEDED, start_within=SECOND)
    await started(store, start_within=SECOND)
    await put(store, start_within=SECOND, delay=SECOND)
    clock.advance(HOUR)

    assert await store.missed_start_deadline(limit=10) == []
    await store.promote_due(limit=10)
    assert len(await store.missed_start_deadline(limit=10)) == 1


async def test_find_lists_the_newest_first_and_pages_on(store: Store) -> None:
    jobs = [await put(store) for _ in range(5)]

    first_page = await store.find(Filter(), limit=2)
    second_page = await store.find(Filter(), limit=10, before=first_page[-1].seq)

    assert [job.id for job in first_page] == [jobs[4], jobs[3]]
    assert [job.id for job in second_page] == [jobs[2], jobs[1], jobs[0]]


async def test_find_lists_what_fits(store: Store) -> None:
    done = await ended(store, SUCCEEDED, type="a", queue="left")
    running = (await started(store, type="b", queue="left")).id
    waiting = await put(store, type="a", queue="right")

    async def found(what: Filter) -> list[str]:
        return [job.id for job in await store.find(what, limit=10)]

    assert await found(Filter()) == [waiting, running, done]
    assert await found(Filter(queue="left")) == [running, done]
    assert await found(Filter(type="a")) == [waiting, done]
    assert await found(Filter(states=frozenset({State.RUNNING, State.QUEUED}))) == [
        waiting,
        running,
    ]
    assert await found(Filter(type="a", queue="left", states=frozenset(State))) == [done]
    assert await found(Filter(states=frozenset())) == []


async def test_counts_tell_each_queue_and_state(store: Store) -> None:
    await ended(store, SUCCEEDED)
    await started(store)
    await put(store)
    await put(store)
    await put(store, queue="other", delay=HOUR)

    assert dict(await store.counts()) == {
        ("default", State.SUCCEEDED): 1,
        ("default", State.RUNNING): 1,
        ("default", State.QUEUED): 2,
        ("other", State.SCHEDULED): 1,
    }
