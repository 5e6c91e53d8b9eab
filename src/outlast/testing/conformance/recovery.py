"""Recovery reads of a store that holds no corruption."""

from dataclasses import replace
from itertools import product

from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.event import (
    CancelRequested,
    DetachedJobFound,
    Event,
    EventKind,
    Lost,
    SuccessorMissing,
)
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import LeaseHolder
from outlast.core.state import Loss, RunStatus, State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LEASE,
    LOST,
    MANY,
    SUCCEEDED,
    TYPE,
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

LEFT = Lost(Loss.STARTUP_RECOVERY, "holder=worker-1 boot=worker-1-boot")


async def _held(store: Store, besides: str, instance_id: str | None = None) -> list[JobId]:
    found = await store.running_under_other_boots(
        besides=besides, instance_id=instance_id, limit=MANY
    )
    return [job.id for job in found]


async def test_held_are_the_running_jobs_of_other_boots(store: Store) -> None:
    first = await started(store)
    await put(store)
    second = await take(store, holder="worker-2")
    await ended(store, SUCCEEDED)
    await put(store, delay=HOUR)

    assert await _held(store, "worker-3-boot") == [first.id, second.id]
    assert await _held(store, "worker-1-boot") == [second.id]
    assert await _held(store, "worker-1-boot", "worker-1") == []
    assert await _held(store, "another-boot", "worker-1") == [first.id]
    assert await _held(store, "another-boot", "worker-9") == []


async def test_held_tells_one_boot_of_an_instance_from_the_next(store: Store) -> None:
    ids = [await put(store), await put(store)]
    for boot in ("boot-1", "boot-2"):
        holder = LeaseHolder(instance_id="worker-1", boot_id=boot)
        await store.claim(holder, queue="default", types=[TYPE], limit=1, lease=LEASE)

    assert await _held(store, "boot-2", "worker-1") == ids[:1]
    assert await _held(store, "boot-3", "worker-1") == ids


async def test_held_comes_in_pages_in_the_order_stored(store: Store) -> None:
    ids = [(await started(store)).id for _ in range(5)]

    seen: list[Job] = []
    while page := await store.running_under_other_boots(
        besides="x", after=seen[-1].seq if seen else 0, limit=2
    ):
        seen += page

    assert [job.id for job in seen] == ids


async def test_run_of_an_earlier_boot_is_lost_before_its_lease_is_over(store: Store) -> None:
    claim = await started(store)
    [job] = await store.running_under_other_boots(besides="boot-2", limit=1)

    assert await settle(store, job, LEFT)

    run = await last_run(store, claim.id)
    assert (run.status, run.reason, run.error) == (RunStatus.LOST, "startup_recovery", LEFT.error)
    assert (await job_of(store, claim.id)).state is State.QUEUED
    assert await _held(store, "boot-2") == []
    assert not await settle(store, claim, SUCCEEDED), "the earlier boot is too late"


async def test_event_of_a_loss_tells_its_detail(store: Store) -> None:
    claim = await started(store)

    await settle(store, claim, LEFT)

    [event] = await store.events(claim.id)
    assert (event.kind, event.reason, event.detail) == (
        EventKind.REQUEUED,
        "startup_recovery",
        LEFT.error,
    )


async def test_event_of_a_failure_leaves_the_error_to_its_run(store: Store) -> None:
    job_id = await ended(store, FAILED)

    [event] = await store.events(job_id)
    assert (event.kind, event.detail) == (EventKind.RETRY, None)
    assert (await last_run(store, job_id)).error == FAILED.error


async def _one_of_each(store: Store) -> list[Job]:
    """Whole chains, ends of every kind, and what waits or runs."""
    events: tuple[Event, ...] = (SUCCEEDED, FAILED, LOST)
    presets = (Delivery.LEASE, Delivery.LINKED, Delivery.ONCE)
    for number, (event, delivery) in enumerate(product(events, presets)):
        await ended(store, event, delivery=delivery, queue=f"queue-{number}")
    await ended(store, FAILED, delivery=Delivery.LINKED, max_attempts=1, queue="dead")
    cancelled = await put(store, delivery=Delivery.LINKED, queue="dead")
    await settle(store, await job_of(store, cancelled), CancelRequested())
    await put(store, delay=HOUR)
    await started(store, queue="running")
    return await store.find(Filter(), limit=MANY)


async def test_whole_store_has_nothing_adrift_unfollowed_or_orphaned(store: Store) -> None:
    jobs = await _one_of_each(store)

    assert len(jobs) > 10
    assert await store.detached_jobs(limit=MANY) == []
    assert await store.missing_successors(limit=MANY) == []
    assert await store.remove_orphans(limit=MANY) == []
    assert await store.events(None) == []


async def test_nothing_that_stands_somewhere_is_taken_for_adrift(
    store: Store, clock: FakeClock
) -> None:
    jobs = await _one_of_each(store)
    before = [await _all_of(store, job.id) for job in jobs]
    clock.advance(HOUR)

    for last in (None, *sorted(set(RunStatus) - {RunStatus.RUNNING})):
        running = [_as_running(job) for job in jobs]
        changes = [decide(job, DetachedJobFound(last), new_id=new_id) for job in running]
        assert await store.apply(changes) == [False] * len(jobs), last

    assert [await _all_of(store, job.id) for job in jobs] == before
    assert EventKind.LATE_WRITE_REFUSED not in [
        each.kind for each in await store.stream(limit=MANY)
    ]


async def test_failed_link_that_is_followed_gets_no_second_successor(store: Store) -> None:
    job_id = await ended(store, FAILED, delivery=Delivery.LINKED)
    job = await job_of(store, job_id)

    await _check_refused(store, job, SuccessorMissing("startup_recovery"))

    assert len(await store.chain(job_id)) == 2


async def _check_refused(store: Store, job: Job, event: Event) -> None:
    before = await _all_of(store, job.id)

    [applied] = await store.apply([decide(job, event, new_id=new_id)])

    assert not applied
    assert await _all_of(store, job.id) == before
    assert EventKind.LATE_WRITE_REFUSED not in await kinds(store, job.id)


async def _all_of(store: Store, job_id: JobId) -> object:
    return await job_of(store, job_id), await store.runs(job_id), await store.events(job_id)


def _as_running(job: Job) -> Job:
    """Return the job as a read at the wrong moment may have shown it."""
    return replace(job, state=State.RUNNING)
