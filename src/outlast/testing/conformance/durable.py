"""Capability DURABLE: closing the store and rebooting the machine lose nothing."""

from outlast.core.delivery import Delivery
from outlast.core.event import Failed
from outlast.core.job import DedupeKey
from outlast.core.ordering import Ordering
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added, Filter
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LAPSED,
    LEASE,
    MANY,
    SUCCEEDED,
    TICK,
    claim_order,
    ended,
    make_holder,
    make_job,
    make_worker,
    put,
    settle,
    started,
)


async def _reopen(store: Store) -> None:
    await store.close()
    await store.open()


async def _reboot(store: Store, clock: FakeClock) -> None:
    await store.close()
    clock.reboot()
    await store.open()


async def _everything(store: Store) -> list[object]:
    jobs = await store.find(Filter(), limit=MANY)
    runs = [await store.runs(job.id) for job in jobs]
    events = [await store.events(job.id) for job in jobs]
    return [jobs, runs, events, dict(await store.counts()), await store.queue("lane")]


async def _lapsed(store: Store) -> list[str]:
    return [job.id for job in await store.expired_leases(limit=MANY)]


async def test_all_is_as_it_was_when_opened_again(store: Store) -> None:
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION, gap=10))
    await ended(store, SUCCEEDED)
    await ended(store, Failed("it broke", delay=HOUR))
    await ended(store, FAILED, delivery=Delivery.LINKED, queue="lane")
    await started(store)
    await put(store, delay=HOUR, queue="lane")
    before = await _everything(store)

    await _reopen(store)

    assert await _everything(store) == before


async def test_order_is_as_it_was_when_opened_again(store: Store) -> None:
    for number in range(10):
        await put(store, priority=number % 3)
    expected = [job.id for job in await store.peek("default", limit=MANY)]

    await _reopen(store)

    assert await claim_order(store) == expected


async def test_order_of_coming_goes_on_when_opened_again(store: Store) -> None:
    first = await put(store)

    await _reopen(store)
    second = await put(store)

    assert [job.id for job in await store.find(Filter(), limit=10)] == [second, first]


async def test_keys_are_still_taken_when_opened_again(store: Store) -> None:
    holder = await put(store, key=DedupeKey(key="brief"), active_key="sync")

    await _reopen(store)

    losers = [make_job(key=DedupeKey(key="brief")), make_job(active_key="sync")]
    assert await store.add(losers) == [Added(holder, created=False)] * 2


async def test_lease_is_still_held_when_opened_again(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(LEASE - TICK)

    await _reopen(store)
    just_before = await _lapsed(store)
    clock.advance(TICK)

    assert just_before == []
    assert await _lapsed(store) == [claim.id]
    assert await settle(store, claim, SUCCEEDED)


async def test_every_lease_is_over_after_a_reboot(store: Store, clock: FakeClock) -> None:
    claim = await started(store)

    await _reboot(store, clock)

    assert await _lapsed(store) == [claim.id]
    assert await settle(store, claim, LAPSED)


async def test_lease_renewed_after_a_reboot_holds(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    await _reboot(store, clock)

    await store.renew([claim.lease], span=LEASE)
    clock.advance(LEASE - TICK)
    just_before = await _lapsed(store)
    clock.advance(TICK)

    assert just_before == []
    assert await _lapsed(store) == [claim.id]


async def test_workers_are_listed_still_and_live_on_when_opened_again(store: Store) -> None:
    await store.register_worker(make_worker())
    await store.heartbeat(make_holder(), span=LEASE)
    before = await store.workers()

    await _reopen(store)

    assert await store.workers() == before
    assert before[0].is_alive


async def test_no_worker_outlives_a_reboot(store: Store, clock: FakeClock) -> None:
    await store.register_worker(make_worker())
    await store.heartbeat(make_holder(), span=LEASE)

    await _reboot(store, clock)
    after = [worker.is_alive for worker in await store.workers()]

    assert after == [False]
    assert await store.heartbeat(make_holder(), span=LEASE)
    assert [worker.is_alive for worker in await store.workers()] == [True]


async def test_leases_of_an_earlier_boot_lapsed_before_those_of_this_one(
    store: Store, clock: FakeClock
) -> None:
    clock.advance(HOUR)
    old = await started(store)
    await _reboot(store, clock)
    new = await started(store)
    clock.advance(LEASE)

    assert await _lapsed(store) == [old.id, new.id]
