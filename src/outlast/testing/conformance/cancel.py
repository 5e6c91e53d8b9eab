"""A cancel request marks a running job, notifies its worker and takes effect at its end."""

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import (
    CancelRequested,
    Event,
    EventKind,
    Failed,
    Lost,
    Released,
    Snoozed,
    Stopped,
)
from outlast.core.state import Loss, RunStatus, State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Renewal
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LAPSED,
    LEASE,
    LOST,
    SECOND,
    SUCCEEDED,
    job_of,
    kinds,
    last_run,
    settle,
    started,
    take,
    take_many,
)

YIELDING = [
    (Delivery.LEASE, Failed("it broke", delay=SECOND), RunStatus.FAILED, "failed"),
    (Delivery.LEASE, Released("drain"), RunStatus.RELEASED, "drain"),
    (Delivery.LEASE, Snoozed(SECOND, "later"), RunStatus.RELEASED, "later"),
    (Delivery.LEASE, Lost(Loss.OWNER_DEAD), RunStatus.LOST, "owner_dead"),
    (Delivery.LINKED, FAILED, RunStatus.FAILED, "retried"),
    (Delivery.LINKED, Lost(Loss.TIMEOUT), RunStatus.LOST, "timeout"),
]


async def test_cancel_request_marks_the_run_and_leaves_it_running(store: Store) -> None:
    claim = await started(store)

    applied = await settle(store, claim, CancelRequested("not needed"))

    job = await job_of(store, claim.id)
    [event] = await store.events(claim.id)
    assert applied
    assert (job.state, job.cancel_requested, job.token) == (State.RUNNING, True, 1)
    assert (event.kind, event.reason) == (EventKind.CANCEL_REQUESTED, "not needed")
    assert (event.run_id, event.token) == (claim.run_id, 1)
    assert (await last_run(store, claim.id)).status is RunStatus.RUNNING


async def test_renewal_tells_of_a_cancel_request(store: Store) -> None:
    claim = await started(store)
    before = await store.renew([claim.lease], span=LEASE)

    await settle(store, claim, CancelRequested())

    assert before == [Renewal(held=True)]
    assert await store.renew([claim.lease], span=LEASE) == [Renewal(True, cancel_requested=True)]


async def test_run_that_stops_when_asked_ends_cancelled(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, CancelRequested())

    await settle(store, claim, Stopped("asked to"))

    job = await job_of(store, claim.id)
    assert (job.state, job.reason, job.cancel_requested) == (State.CANCELLED, "asked to", False)
    assert await kinds(store, claim.id) == [EventKind.CANCEL_REQUESTED, EventKind.CANCELLED]


async def test_run_that_succeeds_all_the_same_has_succeeded(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, CancelRequested())

    await settle(store, claim, SUCCEEDED)

    job = await job_of(store, claim.id)
    assert (job.state, job.cancel_requested) == (State.SUCCEEDED, False)


@pytest.mark.parametrize(("delivery", "event", "status", "reason"), YIELDING)
async def test_job_asked_to_stop_is_not_run_again(
    store: Store, delivery: Delivery, event: Event, status: RunStatus, reason: str
) -> None:
    claim = await started(store, delivery=delivery, active_key="a")
    await settle(store, claim, CancelRequested())

    applied = await settle(store, claim, event)

    job, run = await job_of(store, claim.id), await last_run(store, claim.id)
    assert applied
    assert (job.state, job.reason) == (State.CANCELLED, "cancel_requested")
    assert (run.status, run.reason) == (status, reason)
    assert [each.id for each in await store.chain(claim.id)] == [claim.id]
    assert await take_many(store) == []


@pytest.mark.parametrize("delivery", [Delivery.LEASE, Delivery.LINKED])
async def test_job_that_yields_is_recorded_as_cancelled(store: Store, delivery: Delivery) -> None:
    claim = await started(store, delivery=delivery)
    await settle(store, claim, CancelRequested())

    await settle(store, claim, LOST)

    [_, event] = await store.events(claim.id)
    assert (event.kind, event.reason) == (EventKind.CANCELLED, "cancel_requested")
    assert (event.run_id, event.token) == (claim.run_id, 1)


@pytest.mark.parametrize("delivery", [Delivery.LEASE, Delivery.LINKED])
@pytest.mark.parametrize("is_read_before", [False, True])
async def test_job_asked_to_stop_whose_worker_died_is_cancelled_when_its_lease_expires(
    store: Store, clock: FakeClock, delivery: Delivery, is_read_before: bool
) -> None:
    """Also if the loss was decided by a read from before the request."""
    claim = await started(store, delivery=delivery)
    if not is_read_before:
        await settle(store, claim, CancelRequested())
    clock.advance(HOUR)
    [expired] = await store.expired_leases(limit=10)
    if is_read_before:
        await settle(store, claim, CancelRequested())

    applied = await settle(store, expired, LAPSED)

    job, run = await job_of(store, claim.id), await last_run(store, claim.id)
    assert applied
    assert (job.state, job.reason) == (State.CANCELLED, "cancel_requested")
    assert (run.status, run.reason) == (RunStatus.LOST, "lease_expired")
    assert [each.id for each in await store.chain(claim.id)] == [claim.id]
    assert await take_many(store) == []


async def test_job_that_yields_still_counts_its_failure(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, CancelRequested())

    await settle(store, claim, LOST)

    job = await job_of(store, claim.id)
    assert (job.failures, job.losses) == (1, 1)


async def test_run_without_a_request_yields_to_nothing(store: Store, clock: FakeClock) -> None:
    claim = await started(store)

    await settle(store, claim, Failed("it broke", delay=SECOND))
    clock.advance(SECOND)

    again = await take(store)
    assert (again.id, again.cancel_requested) == (claim.id, False)


async def test_exhausted_job_asked_to_stop_is_a_dead_letter(store: Store) -> None:
    claim = await started(store, max_attempts=1)
    await settle(store, claim, CancelRequested())

    await settle(store, claim, FAILED)

    assert (await job_of(store, claim.id)).state is State.DEAD_LETTER
