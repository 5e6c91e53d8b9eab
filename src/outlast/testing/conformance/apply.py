"""`apply` writes every part of a change, for every shape of change."""

from dataclasses import replace

import pytest

from outlast.core.decide import Change, Guard, Transition, decide
from outlast.core.delivery import Delivery
from outlast.core.event import (
    CancelRequested,
    Event,
    EventKind,
    Failed,
    FellDue,
    GivenUp,
    Lost,
    Misfired,
    Released,
    Skipped,
    Snoozed,
    Stopped,
    Unblocked,
)
from outlast.core.state import Loss, RunStatus, State
from outlast.store.contract import Store
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

ENDS = [
    (Delivery.LEASE, SUCCEEDED, State.SUCCEEDED, RunStatus.SUCCEEDED, None),
    (Delivery.LEASE, Skipped("empty"), State.SKIPPED, RunStatus.SKIPPED, "empty"),
    (Delivery.LEASE, Stopped("told"), State.CANCELLED, RunStatus.CANCELLED, "told"),
    (Delivery.LEASE, Failed("x", permanent=True), State.DEAD_LETTER, RunStatus.FAILED, "permanent"),
    (Delivery.ONCE, FAILED, State.FAILED, RunStatus.FAILED, "failed"),
    (Delivery.ONCE, Lost(Loss.TIMEOUT), State.FAILED, RunStatus.LOST, "timeout"),
    (Delivery.LINKED, FAILED, State.FAILED, RunStatus.FAILED, "retried"),
    (Delivery.LINKED, Lost(Loss.SILENT), State.FAILED, RunStatus.LOST, "silent"),
]


@pytest.mark.parametrize(("delivery", "event", "state", "status", "reason"), ENDS)
async def test_end_of_a_run_ends_its_job(
    store: Store,
    clock: FakeClock,
    delivery: Delivery,
    event: Event,
    state: State,
    status: RunStatus,
    reason: str | None,
) -> None:
    claim = await started(store, delivery=delivery)
    began = clock.now()
    clock.advance(SECOND)

    applied = await settle(store, claim, event)

    job, run = await job_of(store, claim.id), await last_run(store, claim.id)
    assert applied
    assert (job.state, job.reason, job.finished_at) == (state, reason, clock.now())
    assert (job.started_at, job.token, job.holder) == (began, 1, "worker-1")
    assert (run.status, run.reason) == (status, reason)
    assert (run.started_at, run.finished_at) == (began, clock.now())


async def test_success_writes_its_result_and_records_nothing(store: Store) -> None:
    job_id = await ended(store, SUCCEEDED)

    run = await last_run(store, job_id)

    assert (run.result, run.error) == (SUCCEEDED.result, None)
    assert await kinds(store, job_id) == []


async def test_failure_writes_its_error(store: Store) -> None:
    job_id = await ended(store, FAILED)

    run = await last_run(store, job_id)

    assert (run.result, run.error) == (None, FAILED.error)


async def test_change_appends_its_artifacts_to_the_run(store: Store) -> None:
    claim = await started(store)
    await store.attach(claim.lease, ["draft.txt"])
    change = decide(claim, SUCCEEDED, new_id=new_id)

    await store.apply([replace(change, artifacts=("final.txt",))])

    assert (await last_run(store, claim.id)).artifacts == ("draft.txt", "final.txt")


async def test_failed_lease_job_waits_out_its_backoff(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(SECOND)

    await settle(store, claim, Failed("it broke", delay=HOUR))

    job, run = await job_of(store, claim.id), await last_run(store, claim.id)
    assert (job.state, job.available_at) == (State.RETRY_WAIT, clock.now() + HOUR)
    assert (job.failures, job.losses, job.token) == (1, 0, 1)
    assert (job.reason, job.finished_at) == (None, None)
    assert (run.status, run.finished_at) == (RunStatus.FAILED, clock.now())
    assert await kinds(store, claim.id) == [EventKind.RETRY]


async def test_failure_without_backoff_is_due_at_once(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(SECOND)

    await settle(store, claim, FAILED)

    job = await job_of(store, claim.id)
    assert (job.state, job.available_at) == (State.RETRY_WAIT, clock.now())
    assert (await take(store)).token == 2


async def test_attempts_used_up_end_in_a_dead_letter(store: Store) -> None:
    claim = await started(store, max_attempts=2)
    await settle(store, claim, FAILED)

    await settle(store, await take(store), FAILED)

    job = await job_of(store, claim.id)
    assert (job.state, job.reason) == (State.DEAD_LETTER, "attempts_exhausted")
    assert (job.failures, job.token) == (2, 2)
    assert await kinds(store, claim.id) == [EventKind.RETRY, EventKind.DEAD_LETTER]


async def test_success_keeps_the_count_of_earlier_failures(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, LOST)

    await settle(store, await take(store), SUCCEEDED)

    job = await job_of(store, claim.id)
    assert (job.state, job.failures, job.losses) == (State.SUCCEEDED, 1, 1)


async def test_lost_lease_job_is_queued_where_it_was(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    before = await job_of(store, claim.id)
    clock.advance(SECOND)

    await settle(store, claim, LOST)

    job, run = await job_of(store, claim.id), await last_run(store, claim.id)
    assert (job.state, job.available_at) == (State.QUEUED, before.available_at)
    assert (job.failures, job.losses) == (1, 1)
    assert (run.status, run.reason) == (RunStatus.LOST, "owner_dead")
    assert await kinds(store, claim.id) == [EventKind.REQUEUED]


async def test_released_job_is_queued_where_it_was_and_nothing_counts(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store)
    before = await job_of(store, claim.id)
    clock.advance(SECOND)

    await settle(store, claim, Released("drain"))

    job = await job_of(store, claim.id)
    assert (job.state, job.available_at) == (State.QUEUED, before.available_at)
    assert (job.failures, job.losses) == (0, 0)
    assert (await last_run(store, claim.id)).status is RunStatus.RELEASED
    assert await kinds(store, claim.id) == [EventKind.RELEASED]


async def test_snoozed_job_waits_and_nothing_counts(store: Store, clock: FakeClock) -> None:
    claim = await started(store)

    await settle(store, claim, Snoozed(HOUR, "too early"))

    job = await job_of(store, claim.id)
    assert (job.state, job.available_at) == (State.RETRY_WAIT, clock.now() + HOUR)
    assert job.failures == 0
    assert await kinds(store, claim.id) == [EventKind.SNOOZED]


async def test_job_put_back_shows_its_last_holder_and_first_start(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store)
    began = clock.now()
    clock.advance(SECOND)

    await settle(store, claim, LOST)
    waiting = await job_of(store, claim.id)
    await take(store, holder="worker-2")

    running = await job_of(store, claim.id)
    assert (waiting.holder, waiting.boot_id) == ("worker-1", "worker-1-boot")
    assert (running.holder, running.boot_id) == ("worker-2", "worker-2-boot")
    assert (waiting.started_at, running.started_at) == (began, began)


async def test_cancelled_while_waiting_it_ends_without_a_run(
    store: Store, clock: FakeClock
) -> None:
    job = await job_of(store, await put(store))

    applied = await settle(store, job, CancelRequested("not needed"))

    after = await job_of(store, job.id)
    assert applied
    assert (after.state, after.reason) == (State.CANCELLED, "not needed")
    assert (after.finished_at, after.token) == (clock.now(), 0)
    assert await store.runs(job.id) == []
    assert await kinds(store, job.id) == [EventKind.CANCELLED]


async def test_cancel_of_a_waiting_job_survives_its_promotion(
    store: Store, clock: FakeClock
) -> None:
    scheduled = await job_of(store, await put(store, delay=SECOND))
    clock.advance(SECOND)
    await store.promote_due(limit=10)

    assert await settle(store, scheduled, CancelRequested())
    assert (await job_of(store, scheduled.id)).state is State.CANCELLED


async def test_misfired_job_is_skipped_without_a_run(store: Store, clock: FakeClock) -> None:
    await put(store, start_within=SECOND)
    clock.advance(SECOND + TICK)
    [late] = await store.missed_start_deadline(limit=10)

    applied = await settle(store, late, Misfired())

    job = await job_of(store, late.id)
    assert applied
    assert (job.state, job.reason) == (State.SKIPPED, "misfire")
    assert await kinds(store, job.id) == [EventKind.MISFIRE]


async def test_due_job_can_be_queued_by_hand(store: Store, clock: FakeClock) -> None:
    job = await job_of(store, await put(store, delay=SECOND))
    clock.advance(SECOND)

    applied = await settle(store, job, FellDue())

    after = await job_of(store, job.id)
    assert applied
    assert (after.state, after.available_at) == (State.QUEUED, job.available_at)
    assert await kinds(store, job.id) == []


async def test_unblocked_job_is_scheduled_and_taken_when_due(store: Store) -> None:
    job_id = await put(store)
    block = Transition(guard=Guard.STATE, to=State.BLOCKED)
    await store.apply([Change(job_id, 0, block, was=State.QUEUED)])
    blocked = await job_of(store, job_id)

    applied = await settle(store, blocked, Unblocked())

    assert blocked.state is State.BLOCKED
    assert applied
    assert (await job_of(store, job_id)).state is State.SCHEDULED
    assert await kinds(store, job_id) == [EventKind.UNBLOCKED]
    assert (await take(store)).id == job_id


async def test_job_given_up_while_it_waits_is_a_dead_letter(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, Failed("it broke", delay=HOUR))

    applied = await settle(store, await job_of(store, claim.id), GivenUp("hopeless"))

    job = await job_of(store, claim.id)
    assert applied
    assert (job.state, job.reason, job.failures) == (State.DEAD_LETTER, "hopeless", 1)
    assert await kinds(store, job.id) == [EventKind.RETRY, EventKind.GIVEN_UP]


async def test_failed_chain_job_given_up_is_a_dead_letter(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED)
    await settle(store, claim, FAILED)

    applied = await settle(store, await job_of(store, claim.id), GivenUp("hopeless"))

    job = await job_of(store, claim.id)
    assert applied
    assert (job.state, job.reason) == (State.DEAD_LETTER, "hopeless")
    assert len(await store.runs(job.id)) == 1
