"""Recovery settles jobs found detached. Takes a fixture `corrupter`."""

from typing import Any

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import (
    DetachedJobFound,
    Event,
    EventKind,
    Failed,
    Moved,
    Released,
    Skipped,
    Stopped,
)
from outlast.core.group import ClosePolicy, GroupMode, OnMemberFailure
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.ordering import Ordering
from outlast.core.position import Anchor, MoveTo
from outlast.core.run import UNKNOWN_HOLDER
from outlast.core.state import RunStatus, State
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.corruption import CorruptionInjector
from outlast.testing.conformance.factories import (
    FAILED,
    LOST,
    MANY,
    SECOND,
    SUCCEEDED,
    claim_order,
    ended,
    group_of,
    job_of,
    kinds,
    last_run,
    make_job,
    put,
    put_group,
    settle,
    started,
    take,
)

LINKED, ONCE = {"delivery": Delivery.LINKED}, {"delivery": Delivery.ONCE}
DRIFTED = DetachedJobFound(None, detail="holder=None boot=None")


async def _adrift(store: Store) -> list[JobId]:
    return [job.id for job in await store.detached_jobs(limit=MANY)]


async def _found(store: Store, job_id: JobId) -> Job:
    """The only one adrift, which is that job."""
    [job] = await store.detached_jobs(limit=MANY)
    assert job.id == job_id
    return job


def keyed_job() -> NewJob:
    return make_job(active_key="key")


async def _resume(store: Store, job_id: JobId) -> bool:
    """Settle it as its last run says."""
    run = await last_run(store, job_id)
    return await settle(
        store, await _found(store, job_id), DetachedJobFound(run.status, run.reason, "why")
    )


@pytest.mark.parametrize("place", ["waiting", "running", "ended"])
async def test_job_that_stands_nowhere_is_adrift_and_shown_running(
    store: Store, corrupter: CorruptionInjector, clock: FakeClock, place: str
) -> None:
    job_id = await put(store, priority=7)
    if place != "waiting":
        claim = await take(store)
        assert place == "running" or await settle(store, claim, SUCCEEDED)
    clock.advance(SECOND)

    await corrupter.detach(job_id)

    job = await _found(store, job_id)
    assert (job.state, job.token) == (State.RUNNING, int(place == "ended"))
    assert (job.priority, job.position, job.finished_at, job.reason) == (0, 0, None, None)
    assert await store.get([job_id]) == [job]
    assert not await store.expired_leases(limit=MANY)


@pytest.mark.parametrize("event", [FAILED, LOST], ids=["failed", "lost"])
async def test_adrift_bears_the_counts_of_its_runs_and_its_chain(
    store: Store, corrupter: CorruptionInjector, event: Event
) -> None:
    await ended(store, event, **LINKED)
    second = await take(store)
    await settle(store, second, LOST)
    await corrupter.drop_successor(second.id)
    before = await job_of(store, second.id)

    await corrupter.detach(second.id)

    job = await _found(store, second.id)
    assert (
        (job.failures, job.losses) == (before.failures, before.losses) == (2, 1 + (event is LOST))
    )


async def test_retry_by_hand_is_adrift_with_its_own_counts_alone(
    store: Store, corrupter: CorruptionInjector
) -> None:
    dead = await ended(store, Failed("no", permanent=True), **LINKED)
    retry = await put(store, retry_of=dead, **LINKED)

    await corrupter.detach(retry)

    assert (await _found(store, retry)).failures == 0


@pytest.mark.parametrize(
    ("over", "state", "kind"),
    [
        ({}, State.QUEUED, EventKind.REQUEUED),
        (LINKED, State.FAILED, EventKind.CHAINED),
        (ONCE, State.FAILED, EventKind.CLOSED),
        ({"max_attempts": 1}, State.DEAD_LETTER, EventKind.DEAD_LETTER),
        ({"max_attempts": 1, **LINKED}, State.DEAD_LETTER, EventKind.DEAD_LETTER),
    ],
    ids=["lease", "linked", "once", "lease spent", "linked spent"],
)
async def test_job_without_a_run_gets_a_lost_one_and_follows_its_rule(
    store: Store,
    corrupter: CorruptionInjector,
    clock: FakeClock,
    over: Any,
    state: State,
    kind: EventKind,
) -> None:
    job_id = await put(store, **over)
    await corrupter.detach(job_id)
    clock.advance(SECOND)

    assert await settle(store, await _found(store, job_id), DRIFTED)

    job, [run], [event] = (
        await job_of(store, job_id),
        await store.runs(job_id),
        await store.events(job_id),
    )
    assert (job.state, job.token, job.failures, job.losses) == (state, 1, 1, 1)
    assert (run.status, run.reason, run.token) == (RunStatus.LOST, "startup_recovery", 1)
    assert (run.holder, run.boot_id) == (UNKNOWN_HOLDER.instance_id, UNKNOWN_HOLDER.boot_id)
    assert (run.started_at, run.finished_at) == (clock.now(), clock.now())
    assert (event.kind, event.token, event.run_id) == (kind, 1, run.run_id)
    assert (event.reason, event.detail) == ("startup_recovery", DRIFTED.detail)
    assert [each.state for each in await store.chain(job_id)][1:] == (
        [State.QUEUED] if kind is EventKind.CHAINED else []
    )
    assert await _adrift(store) == []


@pytest.mark.parametrize(
    ("event", "state", "kind"),
    [
        (SUCCEEDED, State.SUCCEEDED, EventKind.RECOVERED),
        (Skipped("empty"), State.SKIPPED, EventKind.SKIPPED),
        (Stopped("told"), State.CANCELLED, EventKind.CANCELLED),
        (Failed("no", permanent=True), State.DEAD_LETTER, EventKind.DEAD_LETTER),
        (FAILED, State.RETRY_WAIT, EventKind.RETRY),
        (LOST, State.QUEUED, EventKind.REQUEUED),
        (Released("drain"), State.QUEUED, EventKind.RELEASED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else str(value),
)
async def test_job_whose_run_ended_goes_where_the_run_says(
    store: Store, corrupter: CorruptionInjector, event: Event, state: State, kind: EventKind
) -> None:
    job_id = await ended(store, event)
    before, runs = await job_of(store, job_id), await store.runs(job_id)
    await corrupter.detach(job_id)

    assert await _resume(store, job_id)

    job, told = await job_of(store, job_id), (await store.events(job_id))[-1]
    assert (job.state, job.reason, job.token) == (state, before.reason, 1)
    assert (job.failures, job.losses) == (before.failures, before.losses)
    assert await store.runs(job_id) == runs, "a closed run is never touched"
    assert (told.kind, told.token, told.run_id, told.detail) == (kind, 1, runs[0].run_id, "why")
    assert await store.chain(job_id) == [job]


@pytest.mark.parametrize("event", [FAILED, LOST], ids=["failed", "lost"])
async def test_chain_goes_on_after_a_run_that_left_its_job_open(
    store: Store, corrupter: CorruptionInjector, event: Event
) -> None:
    job_id = await ended(store, event, active_key="key", **LINKED)
    await corrupter.drop_successor(job_id)
    await corrupter.detach(job_id)

    assert await _resume(store, job_id)

    job, successor = await store.chain(job_id)
    assert (job.state, job.failures) == (State.FAILED, 1)
    assert (successor.state, successor.failures, successor.retry_of) == (State.QUEUED, 1, job_id)


async def test_adrift_with_a_successor_ends_and_keeps_the_one_it_has(
    store: Store, corrupter: CorruptionInjector
) -> None:
    job_id = await ended(store, FAILED, active_key="key", **LINKED)
    [_, successor] = await store.chain(job_id)
    await corrupter.detach(job_id)

    assert await _resume(store, job_id)

    chain = await store.chain(job_id)
    assert [(job.id, job.state) for job in chain] == [
        (job_id, State.FAILED),
        (successor.id, State.QUEUED),
    ]
    [added] = await store.add([keyed_job()])
    assert not added.created, "the successor still has the key"


async def test_once_job_whose_run_was_released_never_comes_back(
    store: Store, corrupter: CorruptionInjector
) -> None:
    job_id = await ended(store, SUCCEEDED, **ONCE)
    await corrupter.detach(job_id)

    assert await settle(store, await _found(store, job_id), DetachedJobFound(RunStatus.RELEASED))

    job = await job_of(store, job_id)
    assert (job.state, job.reason, job.failures) == (State.FAILED, "startup_recovery", 0)


@pytest.mark.parametrize("ordering", Ordering)
async def test_adrift_comes_back_behind_the_others(
    store: Store, corrupter: CorruptionInjector, clock: FakeClock, ordering: Ordering
) -> None:
    await store.set_queue(Queue(name="default", ordering=ordering))
    lost = [await put(store, priority=9), await put(store, priority=9)]
    clock.advance(SECOND)
    waiting = [await put(store), await put(store)]
    for job_id in lost:
        await corrupter.detach(job_id)
    clock.advance(SECOND)

    for job in await store.detached_jobs(limit=MANY):
        assert await settle(store, job, DRIFTED)

    assert await claim_order(store) == [*waiting, *lost]


async def test_adrift_comes_back_behind_one_moved_to_the_front(
    store: Store, corrupter: CorruptionInjector
) -> None:
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    lost, waiting = await put(store), await put(store)
    await corrupter.detach(lost)
    assert await settle(store, await job_of(store, waiting), Moved(MoveTo(Anchor.FRONT)))

    assert await settle(store, await _found(store, lost), DRIFTED)

    assert (await job_of(store, lost)).position == 100
    assert await claim_order(store) == [waiting, lost]


async def test_repair_of_a_job_adrift_counts_once(
    store: Store, corrupter: CorruptionInjector
) -> None:
    job_id = await put(store)
    await corrupter.detach(job_id)
    job = await _found(store, job_id)

    answers = [await settle(store, job, DRIFTED), await settle(store, job, DRIFTED)]

    assert answers == [True, False]
    assert (await job_of(store, job_id)).failures == 1
    assert await kinds(store, job_id) == [EventKind.REQUEUED]


async def test_adrift_under_a_newer_run_is_refused_by_the_token(
    store: Store, corrupter: CorruptionInjector
) -> None:
    job_id = await ended(store, Released("drain"))
    await corrupter.detach(job_id)
    seen = await _found(store, job_id)
    await _resume(store, job_id)
    await settle(store, await take(store), Failed("no", permanent=True))
    await corrupter.detach(job_id)

    assert not await settle(store, seen, DetachedJobFound(RunStatus.RELEASED, "drain"))
    assert await _adrift(store) == [job_id], "the run that came since says where it goes"
    assert await _resume(store, job_id)
    assert (await job_of(store, job_id)).state is State.DEAD_LETTER


async def test_holder_of_a_run_cut_loose_has_nothing_left_to_write(
    store: Store, corrupter: CorruptionInjector
) -> None:
    claim = await started(store)
    await corrupter.detach(claim.id)

    assert not await settle(store, claim, SUCCEEDED)
    assert not (await store.renew([claim.lease], span=SECOND))[0].held


@pytest.mark.parametrize("delivery", [Delivery.LEASE, Delivery.LINKED])
async def test_member_that_was_put_back_still_moves_its_group(
    store: Store, corrupter: CorruptionInjector, delivery: Delivery
) -> None:
    first = make_job(delivery=delivery)
    group_id, [lost, second] = await put_group(store, first, make_job(), mode=GroupMode.SEQUENTIAL)
    await corrupter.detach(lost)

    await settle(store, await _found(store, lost), DRIFTED)
    assert await settle(store, await take(store), SUCCEEDED)

    assert await claim_order(store) == [second]
    assert (await group_of(store, group_id)).counts == {State.SUCCEEDED: 1, State.RUNNING: 1}


async def test_member_that_recovery_ends_moves_its_group(
    store: Store, corrupter: CorruptionInjector
) -> None:
    first = make_job(max_attempts=1)
    group_id, [lost, _] = await put_group(
        store, first, make_job(), mode=GroupMode.SEQUENTIAL, on_failure=OnMemberFailure.STOP
    )
    await corrupter.detach(lost)

    assert await settle(store, await _found(store, lost), DRIFTED)

    assert (await job_of(store, lost)).state is State.DEAD_LETTER
    assert (await group_of(store, group_id)).closing is ClosePolicy.STOP
    assert (await kinds(store, lost))[-1] is EventKind.GROUP_STOPPED
