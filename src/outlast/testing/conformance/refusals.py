"""A job whose params do not fit its worker's code waits, and no attempt is spent."""

from datetime import timedelta
from typing import Final

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import ZERO, CancelRequested, Event, EventKind, Moved, Snoozed, Unfit
from outlast.core.group import GroupMode, OnMemberFailure
from outlast.core.ids import JobId
from outlast.core.job import Slot
from outlast.core.position import Anchor, MoveTo
from outlast.core.refusals import MAX_WORKERS, UNFIT, Refusals
from outlast.core.run import Claim
from outlast.core.state import RunStatus, State
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LOST,
    SECOND,
    group_of,
    job_of,
    kinds,
    last_run,
    make_job,
    new_id,
    next_ids,
    put,
    put_group,
    settle,
    started,
    sweep,
    take,
    take_many,
)
from outlast.testing.conformance.reservations import ONE, now, reserve
from outlast.verify import verify

LINKED: Final = Delivery.LINKED
MINUTE: Final = timedelta(minutes=1)


async def refusals_of(store: Store, job_id: JobId) -> Refusals | None:
    """The refusals of one job."""
    [found] = await store.refusals([job_id])
    return found


async def refuse(
    store: Store, claim: Claim, worker: str = "worker-1", *, max_unfit: timedelta = HOUR
) -> None:
    """End a claim as a worker does that cannot read its params."""
    before = await refusals_of(store, claim.id)
    age = ZERO if before is None else await store.now() - before.since
    assert await settle(store, claim, Unfit("no field", worker, max_unfit, before, age))


async def test_refused_job_waits_at_its_position_and_nothing_counts(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store)
    before = await job_of(store, claim.id)
    clock.advance(SECOND)

    await refuse(store, claim)

    job, run = await job_of(store, claim.id), await last_run(store, claim.id)
    assert (job.state, job.available_at) == (State.RETRY_WAIT, clock.now() + SECOND)
    assert (job.position, job.failures, job.losses) == (before.position, 0, 0)
    assert (run.status, run.reason, run.error) == (RunStatus.RELEASED, UNFIT, "no field")
    assert await kinds(store, claim.id) == [EventKind.UNFIT]
    assert await take_many(store) == []


async def test_refusals_in_a_row_are_counted_since_the_first_with_their_workers(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store)
    since = clock.now()
    await refuse(store, claim, "worker-1")
    first = await refusals_of(store, claim.id)

    for name, delay in (("worker-2", 2), ("worker-1", 4), ("worker-2", 8)):
        clock.advance(MINUTE)
        await refuse(store, await take(store), name)
        assert (await job_of(store, claim.id)).available_at == clock.now() + delay * SECOND

    assert first == Refusals(count=1, since=since, workers=("worker-1",))
    workers = ("worker-1", "worker-2")
    assert await refusals_of(store, claim.id) == Refusals(count=4, since=since, workers=workers)


async def test_refusals_name_the_last_workers_only(store: Store, clock: FakeClock) -> None:
    claim = await started(store)

    for number in range(MAX_WORKERS + 2):
        await refuse(store, claim, f"worker-{number}")
        clock.advance(MINUTE)
        claim = await take(store)

    found = await refusals_of(store, claim.id)
    assert found is not None
    assert found.workers == tuple(f"worker-{n}" for n in range(2, MAX_WORKERS + 2))


@pytest.mark.parametrize("event", [FAILED, LOST, Snoozed(SECOND)], ids=["fail", "lose", "snooze"])
async def test_claim_that_ends_otherwise_resets_the_refusals(
    store: Store, clock: FakeClock, event: Event
) -> None:
    claim = await started(store)
    await refuse(store, claim)
    clock.advance(MINUTE)
    again = await take(store)
    while_it_runs = await refusals_of(store, claim.id)

    await settle(store, again, event)

    assert while_it_runs is not None
    assert await refusals_of(store, claim.id) is None
    clock.advance(MINUTE)
    await refuse(store, await take(store))
    found = await refusals_of(store, claim.id)
    assert found is not None
    assert (found.count, found.since) == (1, clock.now())


async def test_refusals_survive_whatever_happens_to_the_job_while_it_waits(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store)
    await refuse(store, claim)
    found = await refusals_of(store, claim.id)

    for _ in range(20):
        assert await settle(store, await job_of(store, claim.id), Moved(MoveTo(Anchor.BACK)))
    clock.advance(SECOND)
    await store.promote_due(limit=10)

    assert await refusals_of(store, claim.id) == found


async def test_refusals_are_answered_in_the_order_asked(store: Store) -> None:
    claim = await started(store)
    await refuse(store, claim)
    other, unknown = await put(store), new_id()

    found = await store.refusals([unknown, other, claim.id, other, claim.id])

    assert [each is not None for each in found] == [False, False, True, False, True]
    assert await store.refusals([]) == []


async def test_linked_job_is_continued_by_a_successor_and_nothing_counts(
    store: Store, clock: FakeClock
) -> None:
    """A linked job executes at most once: its refused claim is its only run."""
    claim = await started(store, delivery=LINKED, max_attempts=1)
    since = clock.now()
    await refuse(store, claim, "worker-1")
    clock.advance(SECOND)
    next_claim = await take(store)
    await refuse(store, next_claim, "worker-2")

    root, second, third = await store.chain(claim.id)
    assert [job.state for job in (root, second, third)] == [
        State.FAILED,
        State.FAILED,
        State.SCHEDULED,
    ]
    assert (root.reason, root.failures, third.failures) == (UNFIT, 0, 0)
    assert third.available_at == clock.now() + 2 * SECOND
    assert [len(await store.runs(job.id)) for job in (root, second, third)] == [1, 1, 0]
    workers = ("worker-1", "worker-2")
    assert await refusals_of(store, third.id) == Refusals(count=2, since=since, workers=workers)
    assert (await verify(store)).violations == ()


async def test_successor_of_a_failed_linked_job_was_not_refused(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store, delivery=LINKED)
    await refuse(store, claim)
    clock.advance(SECOND)
    await settle(store, await take(store), FAILED)

    last = (await store.chain(claim.id))[-1]

    assert await refusals_of(store, last.id) is None


@pytest.mark.parametrize("delivery", [Delivery.LEASE, LINKED])
async def test_job_refused_for_too_long_becomes_a_dead_letter_that_can_be_retried(
    store: Store, clock: FakeClock, delivery: Delivery
) -> None:
    claim = await started(store, delivery=delivery)
    await refuse(store, claim, max_unfit=MINUTE)
    clock.advance(MINUTE)

    await refuse(store, await take(store), max_unfit=MINUTE)

    last = (await store.chain(claim.id))[-1]
    run = await last_run(store, last.id)
    assert (last.state, last.reason, last.failures) == (State.DEAD_LETTER, UNFIT, 1)
    assert (run.status, run.error) == (RunStatus.FAILED, "no field")
    retried = await put(store, delivery=delivery, retry_of=last.id)
    assert await refusals_of(store, retried) is None
    assert (await verify(store)).violations == ()


async def test_once_job_is_skipped_and_its_slot_stays_claimed(
    store: Store, clock: FakeClock
) -> None:
    slot = Slot(series="nightly", at=clock.now())
    claim = await started(store, delivery=Delivery.ONCE, slot=slot)

    await refuse(store, claim)

    job, run = await job_of(store, claim.id), await last_run(store, claim.id)
    assert (job.state, job.reason) == (State.SKIPPED, UNFIT)
    assert (run.status, run.error) == (RunStatus.SKIPPED, "no field")
    [again] = await store.add([make_job(delivery=Delivery.ONCE, slot=slot)])
    assert not again.created
    assert (await verify(store)).violations == ()


@pytest.mark.parametrize("delivery", [Delivery.LEASE, LINKED])
async def test_refusal_yields_to_a_cancel(store: Store, delivery: Delivery) -> None:
    claim = await started(store, delivery=delivery)
    await settle(store, claim, CancelRequested("no"))

    await refuse(store, claim)

    [job] = await store.chain(claim.id)
    assert (job.state, job.reason) == (State.CANCELLED, "cancel_requested")


@pytest.mark.parametrize("delivery", [Delivery.LEASE, LINKED])
async def test_refused_member_holds_back_the_next_one_and_may_end_its_group(
    store: Store, clock: FakeClock, delivery: Delivery
) -> None:
    members = [make_job(delivery=delivery), make_job(delivery=delivery)]
    group_id, [first, second] = await put_group(
        store, *members, mode=GroupMode.SEQUENTIAL, on_failure=OnMemberFailure.STOP
    )
    await refuse(store, await take(store), max_unfit=SECOND)
    waiting = await job_of(store, second)
    clock.advance(SECOND)

    await refuse(store, await take(store), max_unfit=SECOND)

    assert waiting.state is State.BLOCKED
    assert (await store.chain(first))[-1].state is State.DEAD_LETTER
    await sweep(store)
    assert (await group_of(store, group_id)).is_over


async def test_refused_direct_job_keeps_its_reservation(store: Store, clock: FakeClock) -> None:
    await store.set_queue(ONE)
    held, other = await reserve(store, max_attempts=1), await put(store)

    await refuse(store, await take(store))

    assert (await now(store, held)).is_active
    assert await take_many(store) == []
    clock.advance(SECOND)
    assert [claim.id for claim in await take_many(store, limit=1)] == [held.job_id]
    assert other in await next_ids(store)


async def test_refusal_of_a_former_holder_changes_nothing(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, LOST)
    await take(store)

    assert not await settle(store, claim, Unfit("no field", "worker-1", HOUR))

    assert (await job_of(store, claim.id)).state is State.RUNNING
    assert await refusals_of(store, claim.id) is None
