"""`claim` gives each job to one claimer, and only jobs that may run now."""

from outlast.core.delivery import Delivery
from outlast.core.event import Failed
from outlast.core.job import Slot
from outlast.core.run import LeaseHolder
from outlast.core.state import RunStatus, State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    LOST,
    SECOND,
    SUCCEEDED,
    TICK,
    TYPE,
    claim_order,
    job_of,
    kinds,
    last_run,
    make_job,
    put,
    settle,
    started,
    take,
    take_many,
)


async def test_claim_tells_the_slot_its_job_was_made_for(store: Store, clock: FakeClock) -> None:
    at = clock.now() - HOUR
    await put(store, slot=Slot(series="s", at=at))
    await put(store)

    claims = await take_many(store)

    assert {claim.slot_at for claim in claims} == {at, None}


async def test_claim_carries_all_that_its_worker_needs(store: Store) -> None:
    job = make_job(params='{"n":1}', delivery=Delivery.LINKED, max_attempts=3)
    await store.add([job])

    claim = await take(store)

    assert (claim.job_id, claim.token, claim.type) == (job.id, 1, job.type)
    assert (claim.params, claim.delivery, claim.max_attempts) == ('{"n":1}', Delivery.LINKED, 3)
    assert (claim.failures, claim.losses, claim.cancel_requested) == (0, 0, False)


async def test_type_that_is_named_twice_is_one_type(store: Store) -> None:
    job_id = await put(store)

    taken = await take_many(store, types=(TYPE, TYPE), limit=2, prefetch=2)

    assert [claim.id for claim in taken] == [job_id]


async def test_claim_opens_a_run(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, params='{"n":1}', template_id="template-1")

    claim = await take(store, holder="worker-2")

    [run] = await store.runs(job_id)
    assert (run.run_id, run.job_id, run.token) == (claim.run_id, job_id, 1)
    assert (run.status, run.reason) == (RunStatus.RUNNING, None)
    assert (run.holder, run.boot_id) == ("worker-2", "worker-2-boot")
    assert (run.started_at, run.finished_at) == (clock.now(), None)
    assert (run.error, run.result, run.exit_code, run.log_path) == (None, None, None, None)
    assert (run.artifacts, run.params_snapshot) == ((), '{"n":1}')
    assert run.template_id == "template-1"


async def test_claimed_job_shows_who_runs_it(store: Store, clock: FakeClock) -> None:
    job_id = await put(store)

    await take(store, holder="worker-2")

    job = await job_of(store, job_id)
    assert (job.state, job.token) == (State.RUNNING, 1)
    assert (job.holder, job.boot_id) == ("worker-2", "worker-2-boot")
    assert (job.started_at, job.finished_at) == (clock.now(), None)
    assert await kinds(store, job_id) == [], "the routine path records nothing"


async def test_two_instances_may_call_their_boots_alike(store: Store) -> None:
    await store.add([make_job(), make_job()])
    holders = [LeaseHolder(instance_id=name, boot_id="boot-1") for name in ("worker-1", "worker-2")]

    for holder in holders:
        await store.claim(holder, queue="default", types=[TYPE], limit=1, lease=LEASE)

    running = await store.find(Filter(), limit=10)
    assert [job.holder for job in running] == ["worker-2", "worker-1"]


async def test_claimed_job_goes_to_nobody_else(store: Store) -> None:
    await started(store)

    second = await take_many(store, holder="worker-2")

    assert second == []


async def test_each_claim_of_a_job_has_a_higher_token_and_its_own_run(store: Store) -> None:
    first = await started(store)
    await settle(store, first, LOST)

    second = await take(store)

    assert (first.token, second.token) == (1, 2)
    assert first.run_id != second.run_id
    assert (second.failures, second.losses) == (1, 1)


async def test_every_run_of_one_claim_has_its_own_id(store: Store) -> None:
    await store.add([make_job() for _ in range(20)])

    claims = await take_many(store)

    assert len({claim.run_id for claim in claims}) == 20


async def test_claim_takes_no_more_than_its_limit(store: Store) -> None:
    await store.add([make_job() for _ in range(5)])

    claims = await take_many(store, limit=3)

    assert len(claims) == 3
    assert len(await take_many(store)) == 2


async def test_claim_takes_only_types_it_is_given(store: Store) -> None:
    await put(store, type="unknown")
    known = await put(store, type="known")
    also_known = await put(store, type="also-known")

    taken = await claim_order(store, types=["known", "also-known", "never-seen"])

    assert taken == [known, also_known]


async def test_claim_takes_only_from_its_queue(store: Store) -> None:
    await put(store, queue="other")
    mine = await put(store)

    assert await claim_order(store) == [mine]


async def test_claim_of_an_empty_queue_takes_nothing(store: Store) -> None:
    assert await take_many(store, queue="nobody-ever-used") == []


async def test_claim_takes_what_has_fallen_due(store: Store, clock: FakeClock) -> None:
    due = await put(store, delay=SECOND)
    await put(store, delay=SECOND + TICK)

    clock.advance(SECOND)

    assert await claim_order(store) == [due]


async def test_claim_takes_nothing_before_it_is_due(store: Store, clock: FakeClock) -> None:
    await put(store, delay=SECOND)

    clock.advance(SECOND - TICK)

    assert await take_many(store) == []


async def test_queued_job_stays_claimable_when_the_wall_clock_is_set_back(
    store: Store, clock: FakeClock
) -> None:
    job_id = await put(store)

    clock.set_back(HOUR)

    assert await claim_order(store) == [job_id]


async def test_job_past_its_start_deadline_is_left_out(store: Store, clock: FakeClock) -> None:
    await put(store, start_within=SECOND)
    in_time = await put(store, start_within=SECOND + TICK)

    clock.advance(SECOND + TICK)

    assert await claim_order(store) == [in_time]


async def test_start_deadline_counts_for_the_first_start_alone(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(store, start_within=SECOND)
    await settle(store, claim, Failed("broke", delay=HOUR))

    clock.advance(HOUR)

    assert await store.missed_start_deadline(limit=10) == []
    assert await claim_order(store) == [claim.id]


async def test_once_job_waits_while_its_name_runs(store: Store) -> None:
    running = await started(store, delivery=Delivery.ONCE, name="brief")
    waits = await put(store, delivery=Delivery.ONCE, name="brief")
    other = await put(store, delivery=Delivery.ONCE, name="digest")

    while_it_runs = await claim_order(store)
    await settle(store, running, SUCCEEDED)

    assert while_it_runs == [other]
    assert await claim_order(store) == [waits]


async def test_once_name_counts_across_queues_and_types(store: Store) -> None:
    await started(store, delivery=Delivery.ONCE, name="brief", queue="a", type="one")
    await put(store, delivery=Delivery.ONCE, name="brief", queue="b", type="two")

    assert await take_many(store, queue="b", types=["two"]) == []


async def test_one_claim_takes_one_once_job_of_a_name(store: Store) -> None:
    first = await put(store, delivery=Delivery.ONCE, name="brief")
    await put(store, delivery=Delivery.ONCE, name="brief")
    after = await put(store)

    assert await claim_order(store, limit=2) == [first, after]


async def test_name_binds_once_jobs_only(store: Store) -> None:
    await started(store, delivery=Delivery.LEASE, name="brief")
    once = await put(store, delivery=Delivery.ONCE, name="brief")
    lease = await put(store, delivery=Delivery.LEASE, name="brief")

    assert await claim_order(store) == [once, lease]


async def test_prefetch_takes_that_many_more(store: Store) -> None:
    jobs = [await put(store) for _ in range(6)]

    assert await claim_order(store, limit=2, prefetch=3) == jobs[:5]


async def test_prefetch_takes_lease_jobs_only(store: Store) -> None:
    first = await put(store, delivery=Delivery.LINKED)
    await put(store, delivery=Delivery.LINKED)
    await put(store, delivery=Delivery.ONCE)
    lease = await put(store)

    assert await claim_order(store, limit=1, prefetch=3) == [first, lease]


async def test_prefetch_leaves_out_jobs_with_a_lost_run(store: Store) -> None:
    lost = await started(store, priority=1)
    await settle(store, lost, LOST)
    first, last = await put(store, priority=2), await put(store)

    assert await claim_order(store, limit=1, prefetch=2) == [first, last]
    assert await claim_order(store, limit=1) == [lost.id]


async def test_prefetch_leaves_out_jobs_whose_next_loss_would_end_them(store: Store) -> None:
    tried = await started(store, max_attempts=2)
    await settle(store, tried, Failed("no"))
    single = await put(store, max_attempts=1)
    two_left, endless = await put(store, max_attempts=2), await put(store, max_attempts=None)

    assert await claim_order(store, limit=0, prefetch=9) == [two_left, endless]
    assert await claim_order(store, limit=9) == [tried.id, single]


async def test_prefetch_leaves_them_out_of_several_types_too(store: Store) -> None:
    first, _ = await put(store, max_attempts=1), await put(store, max_attempts=1, type="other")
    last = await put(store, type="other")

    assert await claim_order(store, types=(TYPE, "other"), limit=1, prefetch=3) == [first, last]


async def test_what_is_prefetched_runs_like_the_rest(store: Store) -> None:
    job_id = await put(store)

    [claim] = await take_many(store, limit=0, prefetch=1)

    assert (claim.id, claim.token) == (job_id, 1)
    assert (await last_run(store, job_id)).status is RunStatus.RUNNING
