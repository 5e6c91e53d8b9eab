"""A stale token writes nothing, by any operation."""

from dataclasses import replace

import pytest

from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.event import (
    CancelRequested,
    Event,
    EventKind,
    Failed,
    GivenUp,
    Lost,
    Misfired,
    Released,
    Skipped,
    Snoozed,
    Stopped,
    Succeeded,
)
from outlast.core.ids import JobId
from outlast.core.run import Claim, Lease
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
    TICK,
    ended,
    job_of,
    kinds,
    last_run,
    make_job,
    new_id,
    put,
    settle,
    started,
    take,
)

LATE_WRITES = [
    SUCCEEDED,
    FAILED,
    Failed("it broke", permanent=True),
    Lost(Loss.TIMEOUT),
    Released("drain"),
    Snoozed(SECOND),
    Skipped(),
    Stopped(),
    CancelRequested(),
]


async def _superseded(store: Store) -> tuple[Claim, Claim]:
    """A claim that was lost, and the one that followed it on the same job."""
    former = await started(store)
    await settle(store, former, LOST)
    return former, await take(store, holder="worker-2")


async def test_stale_finisher_cannot_overwrite_its_successor(store: Store) -> None:
    former, current = await _superseded(store)

    stale = await settle(store, former, SUCCEEDED)
    fresh = await settle(store, current, Failed("no", permanent=True))

    assert (stale, fresh) == (False, True)
    assert (await job_of(store, former.id)).state is State.DEAD_LETTER
    statuses = [run.status for run in await store.runs(former.id)]
    assert statuses == [RunStatus.LOST, RunStatus.FAILED]


@pytest.mark.parametrize("event", LATE_WRITES, ids=lambda event: type(event).__name__)
async def test_former_holder_writes_nothing_while_another_runs(store: Store, event: Event) -> None:
    former, current = await _superseded(store)
    job, runs = await job_of(store, former.id), await store.runs(former.id)

    applied = await settle(store, former, event)

    assert not applied
    assert await job_of(store, former.id) == job
    assert await store.runs(former.id) == runs
    assert await settle(store, current, SUCCEEDED)


@pytest.mark.parametrize("event", LATE_WRITES, ids=lambda event: type(event).__name__)
async def test_former_holder_writes_nothing_after_the_end(store: Store, event: Event) -> None:
    claim = await started(store)
    await settle(store, claim, Skipped("its own end"))
    job, runs = await job_of(store, claim.id), await store.runs(claim.id)

    applied = await settle(store, claim, event)

    assert not applied
    assert await job_of(store, claim.id) == job
    assert await store.runs(claim.id) == runs


@pytest.mark.parametrize("event", LATE_WRITES, ids=lambda event: type(event).__name__)
async def test_former_holder_writes_nothing_while_the_job_waits(store: Store, event: Event) -> None:
    claim = await started(store)
    await settle(store, claim, Failed("its own end", delay=HOUR))
    job = await job_of(store, claim.id)

    applied = await settle(store, claim, event)

    assert not applied
    assert await job_of(store, claim.id) == job


async def test_refused_chain_writes_no_successor(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED)
    await settle(store, claim, SUCCEEDED)

    applied = await settle(store, claim, FAILED)

    assert not applied
    assert [job.id for job in await store.chain(claim.id)] == [claim.id]


async def test_late_write_leaves_a_record(store: Store, clock: FakeClock) -> None:
    former, _ = await _superseded(store)
    clock.advance(SECOND)

    await settle(store, former, SUCCEEDED)

    late = (await store.events(former.id))[-1]
    assert (late.kind, late.reason) == (EventKind.LATE_WRITE_REFUSED, "succeeded")
    assert (late.token, late.at) == (former.token, clock.now())


async def test_each_late_write_leaves_its_own_record(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, SUCCEEDED)

    await settle(store, claim, Succeeded('"another result"'))
    await settle(store, claim, FAILED)

    late = EventKind.LATE_WRITE_REFUSED
    assert await kinds(store, claim.id) == [late, late]


OWN_ENDS = [
    *((Delivery.LEASE, event) for event in LATE_WRITES if not isinstance(event, CancelRequested)),
    (Delivery.LINKED, FAILED),
    (Delivery.LINKED, Lost(Loss.TIMEOUT)),
]


@pytest.mark.parametrize(("delivery", "event"), OWN_ENDS)
async def test_end_that_is_written_again_was_written_and_is_no_late_write(
    store: Store, delivery: Delivery, event: Event
) -> None:
    """Its writer never saw the first answer, so it writes the same end once more."""
    claim = await started(store, delivery=delivery)
    change = decide(claim, event, new_id=new_id)
    change = replace(change, artifacts=("made.txt",), exit_code=7, log_path="run.log")
    assert await store.apply([change]) == [True]
    seen = await _everything(store, claim.id)

    again = await store.apply([change])

    assert again == [True]
    assert await _everything(store, claim.id) == seen


async def test_end_that_is_written_again_was_written_though_another_runs_the_job(
    store: Store,
) -> None:
    former = await started(store)
    change = decide(former, Released("drain"), new_id=new_id)
    await store.apply([change])
    current = await take(store, holder="worker-2")

    again = await store.apply([change])

    assert again == [True]
    assert EventKind.LATE_WRITE_REFUSED not in await kinds(store, former.id)
    assert await settle(store, current, SUCCEEDED)


async def test_end_with_another_successor_is_a_late_write(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED)
    assert await settle(store, claim, FAILED)

    again = await settle(store, claim, FAILED)

    assert not again
    assert (await kinds(store, claim.id))[-1] is EventKind.LATE_WRITE_REFUSED
    assert len(await store.chain(claim.id)) == 2


async def _everything(store: Store, job_id: JobId) -> tuple[object, ...]:
    job, runs = await job_of(store, job_id), await store.runs(job_id)
    return job, runs, await store.events(job_id), await store.chain(job_id)


async def test_change_of_a_job_nobody_knows_is_refused(store: Store) -> None:
    job = make_job()
    unknown = Claim(
        job_id=job.id,
        token=1,
        run_id=(await started(store)).run_id,
        type=job.type,
        params=job.params,
        delivery=job.delivery,
        failures=0,
        losses=0,
        max_attempts=5,
    )

    applied = await settle(store, unknown, SUCCEEDED)

    assert not applied
    assert await store.events(job.id) == []


async def test_token_from_the_future_is_refused(store: Store) -> None:
    claim = await started(store)

    [renewal] = await store.renew([Lease(claim.id, 2)], span=LEASE)

    assert renewal == Renewal(held=False)
    assert not await store.attach(Lease(claim.id, 2), ["x"])


async def test_stale_renewal_is_refused_and_extends_nothing(store: Store, clock: FakeClock) -> None:
    former, _ = await _superseded(store)
    clock.advance(LEASE - TICK)

    [renewal] = await store.renew([former.lease], span=HOUR)
    clock.advance(TICK)

    assert renewal == Renewal(held=False)
    assert [job.id for job in await store.expired_leases(limit=10)] == [former.id]


async def test_ended_run_has_no_lease_to_renew(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, SUCCEEDED)

    assert await store.renew([claim.lease], span=LEASE) == [Renewal(held=False)]


async def test_stale_holder_attaches_nothing_while_another_runs(store: Store) -> None:
    former, current = await _superseded(store)

    attached = await store.attach(former.lease, ["late.txt"])

    assert not attached
    assert [run.artifacts for run in await store.runs(former.id)] == [(), ()]
    assert await store.attach(current.lease, ["new.txt"])


async def test_stale_holder_attaches_nothing_once_another_has_run(store: Store) -> None:
    former, current = await _superseded(store)
    await settle(store, current, SUCCEEDED)

    attached = await store.attach(former.lease, ["late.txt"])

    assert not attached
    assert [run.artifacts for run in await store.runs(former.id)] == [(), ()]


async def test_loss_by_lapse_is_refused_while_the_lease_lives(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store)
    clock.advance(LEASE - TICK)

    early = await settle(store, claim, LAPSED)
    clock.advance(TICK)

    assert not early
    assert await kinds(store, claim.id) == [], "a reclaimer is no former holder"
    assert await settle(store, claim, LAPSED)


async def test_loss_by_lapse_yields_to_a_renewal(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(LEASE)
    [lapsed] = await store.expired_leases(limit=10)

    await store.renew([claim.lease], span=LEASE)

    assert not await settle(store, lapsed, LAPSED)
    assert await settle(store, claim, SUCCEEDED)


async def test_loss_is_counted_once_however_often_it_is_seen(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store)
    clock.advance(LEASE)
    [lapsed] = await store.expired_leases(limit=10)
    changes = [decide(lapsed, LAPSED, new_id=new_id) for _ in range(2)]

    applied = await store.apply(changes)

    job = await job_of(store, claim.id)
    assert applied == [True, False]
    assert (job.failures, job.losses) == (1, 1)


async def test_decision_on_a_waiting_job_is_refused_once_it_runs(store: Store) -> None:
    waiting = await job_of(store, await put(store))
    claim = await take(store)

    assert not await settle(store, waiting, CancelRequested())
    assert not await settle(store, waiting, Misfired())
    assert (await last_run(store, claim.id)).status is RunStatus.RUNNING
    assert await kinds(store, claim.id) == []


async def test_decision_on_a_waiting_job_is_refused_once_it_waits_again(store: Store) -> None:
    waiting = await job_of(store, await put(store))
    await settle(store, await take(store), Released("drain"))

    assert not await settle(store, waiting, CancelRequested())
    assert not await settle(store, waiting, Misfired())
    assert (await job_of(store, waiting.id)).state is State.QUEUED


async def test_decision_on_one_waiting_state_is_refused_in_another(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store)
    await settle(store, claim, Failed("it broke", delay=SECOND))
    waiting = await job_of(store, claim.id)
    clock.advance(SECOND)
    await store.promote_due(limit=10)

    assert not await settle(store, waiting, GivenUp("hopeless"))
    assert (await job_of(store, claim.id)).state is State.QUEUED


async def test_ended_job_cannot_end_again(store: Store) -> None:
    waiting = await job_of(store, await put(store))
    await settle(store, waiting, CancelRequested("first"))

    again = await settle(store, waiting, CancelRequested("second"))

    assert not again
    assert (await job_of(store, waiting.id)).reason == "first"


async def test_given_up_twice_is_given_up_once(store: Store) -> None:
    failed = await job_of(store, await ended(store, FAILED, delivery=Delivery.LINKED))
    await settle(store, failed, GivenUp("first"))

    again = await settle(store, failed, GivenUp("second"))

    assert not again
    assert (await job_of(store, failed.id)).reason == "first"
