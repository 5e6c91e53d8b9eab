"""The worker registry: register, heartbeat, deregister, list."""

from dataclasses import asdict
from datetime import timedelta

from outlast.core.worker import Topology, WorkerRecord
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LEASE,
    MANY,
    SECOND,
    TICK,
    ended,
    last_run,
    make_holder,
    make_worker,
    settle,
    started,
)

ONE, TWO = make_holder("worker-1"), make_holder("worker-2")


async def _names(store: Store) -> list[str]:
    return [worker.instance_id for worker in await store.workers()]


async def _alive(store: Store) -> list[str]:
    return [worker.instance_id for worker in await store.workers() if worker.is_alive]


async def test_worker_is_on_the_list_as_it_described_itself(store: Store, clock: FakeClock) -> None:
    worker = make_worker(
        queues=("a", "b"),
        types=(),
        processes=3,
        topology=Topology.SINGLE,
        version="1.2.3",
        app="shop.jobs",
        schedules=("nightly", "often"),
    )

    await store.register_worker(worker)

    now = clock.now()
    expected = WorkerRecord(
        **asdict(worker), started_at=now, seen_at=now, stopped_at=None, is_alive=False
    )
    assert await store.workers() == [expected]


async def test_worker_lives_until_the_span_of_its_beat_has_passed(
    store: Store, clock: FakeClock
) -> None:
    await store.register_worker(make_worker())
    clock.advance(SECOND)

    beaten = await store.heartbeat(ONE, span=LEASE)
    clock.advance(LEASE - TICK)
    just_before = await _alive(store)
    clock.advance(TICK)

    [worker] = await store.workers()
    assert beaten
    assert just_before == ["worker-1"]
    assert not worker.is_alive
    assert worker.seen_at == worker.started_at + SECOND


async def test_worker_that_stops_is_alive_and_stopping_until_it_is_registered_again(
    store: Store,
) -> None:
    await store.register_worker(make_worker())
    await store.heartbeat(ONE, span=LEASE, is_stopping=True)
    await store.heartbeat(ONE, span=LEASE)
    [stopping] = await store.workers()
    await store.register_worker(make_worker())

    [again] = await store.workers()
    assert (stopping.is_alive, stopping.is_stopping) == (True, True)
    assert not again.is_stopping


async def test_silent_worker_that_beats_again_lives_again(store: Store, clock: FakeClock) -> None:
    await store.register_worker(make_worker())
    await store.heartbeat(ONE, span=LEASE)
    clock.advance(HOUR)

    assert await store.heartbeat(ONE, span=LEASE)
    assert await _alive(store) == ["worker-1"]


async def test_clock_that_is_set_kills_and_saves_nobody(store: Store, clock: FakeClock) -> None:
    await store.register_worker(make_worker())
    await store.heartbeat(ONE, span=LEASE)

    clock.set_wall(clock.now() + timedelta(days=400))
    set_forward = await _alive(store)
    clock.set_back(timedelta(days=800))
    clock.advance(LEASE)

    assert set_forward == ["worker-1"]
    assert await _alive(store) == []


async def test_nobody_beats_who_is_not_on_the_list(store: Store) -> None:
    await started(store)  # a claim alone registers no worker

    assert not await store.heartbeat(ONE, span=LEASE)
    assert await store.workers() == []


async def test_retired_worker_is_dead_and_stays_so(store: Store, clock: FakeClock) -> None:
    await store.register_worker(make_worker())
    await store.heartbeat(ONE, span=HOUR)
    clock.advance(SECOND)

    await store.deregister_worker(ONE)
    beaten = await store.heartbeat(ONE, span=HOUR)
    clock.advance(SECOND)
    await store.deregister_worker(ONE)

    [worker] = await store.workers()
    assert (beaten, worker.is_alive) == (False, False)
    assert worker.stopped_at == worker.started_at + SECOND


async def test_retiring_nobody_is_harmless(store: Store) -> None:
    await store.deregister_worker(TWO)

    assert await store.workers() == []


async def test_each_boot_is_a_worker_of_its_own(store: Store, clock: FakeClock) -> None:
    await store.register_worker(make_worker(boot_id="first"))
    clock.advance(SECOND)
    await store.register_worker(make_worker(boot_id="second"))
    await store.register_worker(make_worker("worker-0"))

    assert (await store.workers())[0].boot_id == "first"
    assert await _names(store) == ["worker-1", "worker-0", "worker-1"]


async def test_same_boot_enlisted_again_starts_anew(store: Store, clock: FakeClock) -> None:
    await store.register_worker(make_worker())
    await store.heartbeat(ONE, span=HOUR)
    await store.deregister_worker(ONE)
    clock.advance(SECOND)

    await store.register_worker(make_worker(pid=8))

    [worker] = await store.workers()
    assert (worker.pid, worker.stopped_at, worker.is_alive) == (8, None, False)
    assert worker.started_at == clock.now()
    assert await store.heartbeat(ONE, span=LEASE)


async def test_worker_that_claimed_before_it_was_listed_is_one_worker(store: Store) -> None:
    claim = await started(store)

    await store.register_worker(make_worker())

    assert await _names(store) == ["worker-1"]
    assert (await last_run(store, claim.id)).holder == "worker-1"


async def test_prune_takes_the_long_stopped_and_the_long_silent(
    store: Store, clock: FakeClock
) -> None:
    for name in ("worker-1", "worker-2", "worker-3"):
        await store.register_worker(make_worker(name))
    await store.deregister_worker(ONE)
    await store.heartbeat(make_holder("worker-3"), span=3 * HOUR)
    clock.advance(HOUR)
    too_soon = await store.prune(older_than=HOUR, limit=MANY), await _names(store)
    clock.advance(TICK)

    gone = await store.prune(older_than=HOUR, limit=MANY)

    assert too_soon == (0, ["worker-1", "worker-2", "worker-3"])
    assert gone == 0, "it counts jobs"
    assert await _names(store) == ["worker-3"], "old, but alive"


async def test_age_of_a_stopped_worker_counts_from_its_stop(store: Store, clock: FakeClock) -> None:
    await store.register_worker(make_worker())
    clock.advance(2 * HOUR)
    await store.deregister_worker(ONE)
    clock.advance(SECOND)

    await store.prune(older_than=HOUR, limit=MANY)

    assert await _names(store) == ["worker-1"]


async def test_runs_name_a_worker_that_left_the_list(store: Store, clock: FakeClock) -> None:
    await store.register_worker(make_worker())
    failed = await ended(store, FAILED, max_attempts=1)
    running = await started(store)
    clock.advance(2 * HOUR)

    await store.prune(older_than=HOUR, limit=MANY)

    assert await _names(store) == []
    assert (await last_run(store, failed)).holder == "worker-1"
    assert (await last_run(store, running.id)).boot_id == ONE.boot_id
    assert await settle(store, running, FAILED)
    assert not await store.heartbeat(ONE, span=LEASE)
