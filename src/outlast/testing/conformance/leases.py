"""When a lease expires, and by which clock."""

from datetime import timedelta

from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Renewal
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LAPSED,
    LEASE,
    SECOND,
    SUCCEEDED,
    TICK,
    job_of,
    make_job,
    put,
    settle,
    started,
    take,
    take_many,
)


async def _lapsed(store: Store, limit: int = 100) -> list[str]:
    return [job.id for job in await store.expired_leases(limit=limit)]


async def test_lease_is_over_when_its_span_has_passed(store: Store, clock: FakeClock) -> None:
    claim = await started(store)

    clock.advance(LEASE - TICK)
    just_before = await _lapsed(store)
    clock.advance(TICK)

    assert just_before == []
    assert await _lapsed(store) == [claim.id]


async def test_lapsed_job_runs_on_until_somebody_decides(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(HOUR)

    [job] = await store.expired_leases(limit=10)

    assert (job.state, job.token, job.holder) == (State.RUNNING, 1, "worker-1")
    assert await take_many(store) == []
    assert await settle(store, claim, SUCCEEDED), "its holder may still finish"


async def test_longest_lapsed_comes_first(store: Store, clock: FakeClock) -> None:
    await store.add([make_job() for _ in range(3)])
    second = await take(store, lease=5 * SECOND)
    third = await take(store, lease=9 * SECOND)
    first = await take(store, lease=SECOND)

    clock.advance(HOUR)

    assert await _lapsed(store) == [first.id, second.id, third.id]
    assert await _lapsed(store, limit=2) == [first.id, second.id]


async def test_only_running_jobs_lapse(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    await settle(store, claim, SUCCEEDED)
    await put(store)

    clock.advance(HOUR)

    assert await _lapsed(store) == []


async def test_renewal_counts_from_now(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(10 * SECOND)

    renewed = await store.renew([claim.lease], span=LEASE)
    clock.advance(LEASE - TICK)
    just_before = await _lapsed(store)
    clock.advance(TICK)

    assert renewed == [Renewal(held=True)]
    assert just_before == []
    assert await _lapsed(store) == [claim.id]


async def test_lapsed_lease_can_still_be_renewed(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(HOUR)

    renewed = await store.renew([claim.lease], span=LEASE)

    assert renewed == [Renewal(held=True)]
    assert await _lapsed(store) == []


async def test_renewals_answer_in_the_order_given(store: Store) -> None:
    await store.add([make_job() for _ in range(2)])
    ended, running = await take_many(store)
    await settle(store, ended, SUCCEEDED)

    renewed = await store.renew([ended.lease, running.lease], span=LEASE)

    assert renewed == [Renewal(held=False), Renewal(held=True)]


async def test_renewing_nothing_answers_nothing(store: Store) -> None:
    assert await store.renew([], span=LEASE) == []


async def test_wall_clock_set_forward_steals_no_lease(store: Store, clock: FakeClock) -> None:
    claim = await started(store)

    clock.set_wall(clock.now() + timedelta(days=400))

    assert await _lapsed(store) == []
    assert not await settle(store, claim, LAPSED)


async def test_wall_clock_set_back_saves_no_lease(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.set_back(timedelta(days=400))

    clock.advance(LEASE)

    assert await _lapsed(store) == [claim.id]


async def test_reclaimed_job_starts_a_fresh_lease(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(LEASE)
    await settle(store, claim, LAPSED)

    again = await take(store)

    assert (again.id, again.token) == (claim.id, 2)
    assert await _lapsed(store) == []
    assert (await job_of(store, claim.id)).state is State.RUNNING
