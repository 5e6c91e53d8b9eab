"""Runs of a dead worker are reclaimed before their lease expires, and never those of a living one.

Where locks are the kernel's, a free lock proves the death. Elsewhere the operating system must
prove it; the lock is free whenever its connection broke.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from recovery_helpers import NOW, PRESETS

from outlast.core.delivery import Delivery
from outlast.core.event import EventKind
from outlast.core.ids import JobId
from outlast.core.run import LeaseHolder
from outlast.core.state import RunStatus, State
from outlast.core.worker import SUPERVISED_BOOT_PREFIX, WorkerInfo
from outlast.process_identity import process_name
from outlast.store.contract import Store
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    TYPE,
    job_of,
    kinds,
    make_job,
    new_id,
    put,
)
from outlast.testing.conformance.reservations import make_reservation
from outlast.testing.stores import ids_for_test
from outlast.worker.maintenance.loop import Maintenance
from outlast.worker.maintenance.recovery import Recovery
from support.dead_process import dead_process_name
from support.engines.memory import MemoryEngine

STORES = ("sqlite", "postgres", "keyvalue")
SESSION_LOCKS = ("postgres", "keyvalue")
"""Stores whose locks end with a connection or a heartbeat, too."""

LEASE = timedelta(hours=1)
EMBEDDED = LeaseHolder(instance_id="worker-3", boot_id="an-embedded-one")


def boot(instance_id: str, boot_id: str) -> LeaseHolder:
    return LeaseHolder(instance_id=instance_id, boot_id=boot_id)


DEAD = boot("worker-1", dead_process_name(SUPERVISED_BOOT_PREFIX))
ELSEWHERE = boot("worker-1", f"{SUPERVISED_BOOT_PREFIX}0123456789abcdef.1.1.x")
"""Its process may run on another machine."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture(params=STORES)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, engine: MemoryEngine
) -> AsyncIterator[Store]:
    opened = _another(request.param, request, tmp_path, clock, engine)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def other(
    request: pytest.FixtureRequest,
    store: Store,
    tmp_path: Path,
    clock: FakeClock,
    engine: MemoryEngine,
) -> AsyncIterator[Store]:
    """A store of another process, as far as the locks can tell."""
    kind = request.node.callspec.params["store"]
    opened = _another(kind, request, tmp_path, clock, engine)
    await opened.open()
    yield opened
    await opened.close()


def _another(
    kind: str,
    request: pytest.FixtureRequest,
    folder: Path,
    clock: FakeClock,
    engine: MemoryEngine,
) -> Store:
    if kind == "sqlite":
        return SqliteStore(folder / "jobs.db", clock=clock)
    if kind == "postgres":
        return PostgresStore(request.getfixturevalue("postgres_url"), clock=clock)
    return KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))


def living(instance_id: str = "worker-1") -> LeaseHolder:
    """A boot of this process, which holds none of its locks: their connections broke."""
    return boot(instance_id, process_name(SUPERVISED_BOOT_PREFIX, "1"))


async def running(store: Store, holder: LeaseHolder, **over: Any) -> JobId:
    """Let a registered worker claim a job of its own name."""
    info = WorkerInfo(
        instance_id=holder.instance_id,
        boot_id=holder.boot_id,
        host="host",
        pid=1,
        queues=("default",),
        types=(TYPE,),
        concurrency=1,
    )
    await store.register_worker(info)
    await put(store, name=new_id(), **over)
    [claim] = await store.claim(holder, queue="default", types=[TYPE], limit=1, lease=LEASE)
    return claim.id


async def reserved(store: Store, caller: str) -> JobId:
    """Reserve a queue for the direct job of that caller."""
    new = make_reservation(caller=caller, span=HOUR)
    done = await store.reserve(new, make_job(max_attempts=1))
    assert done.reservation is not None
    return done.reservation.job_id


async def closed(store: Store, job_id: JobId) -> list[tuple[str, str | None]]:
    return [(run.status, run.reason) for run in await store.runs(job_id)]


async def test_runs_of_a_dead_worker_are_closed_at_once(store: Store) -> None:
    job_id = await running(store, DEAD)

    tidied = await Maintenance(store, new_id).run_once()

    assert tidied.reclaimed == 1
    assert await closed(store, job_id) == [(RunStatus.LOST, "owner_dead")]
    assert (await job_of(store, job_id)).state is State.QUEUED
    assert await kinds(store, job_id) == [EventKind.REQUEUED]


@pytest.mark.parametrize("delivery", PRESETS)
@pytest.mark.parametrize("store", SESSION_LOCKS, indirect=True)
async def test_runs_of_a_living_worker_whose_lock_is_free_wait_for_their_lease(
    store: Store, clock: FakeClock, delivery: Delivery
) -> None:
    holders = [living(), ELSEWHERE]
    jobs = [await running(store, each, delivery=delivery) for each in holders]
    tidy = Maintenance(store, new_id)

    at_once = await tidy.run_once()
    while_they_run = [await closed(store, job_id) for job_id in jobs]
    clock.advance(LEASE + SECOND)
    after_the_lease = await tidy.run_once()

    assert (at_once.reclaimed, after_the_lease.reclaimed) == (0, 2)
    assert while_they_run == [[(RunStatus.RUNNING, None)]] * 2
    assert await closed(store, jobs[0]) == [(RunStatus.LOST, "lease_expired")]


@pytest.mark.parametrize("delivery", PRESETS)
@pytest.mark.parametrize("scope", ["instance", "all"])
@pytest.mark.parametrize("store", SESSION_LOCKS, indirect=True)
async def test_a_start_under_the_same_name_leaves_the_runs_of_a_living_boot_to_their_lease(
    store: Store, clock: FakeClock, scope: Literal["instance", "all"], delivery: Delivery
) -> None:
    alive, dead = [await running(store, each, delivery=delivery) for each in (living(), DEAD)]

    async def recovered() -> int:
        return (await Recovery(store, NOW, scope=scope, new_id=new_id).run_once()).lost

    at_once = await recovered()
    while_it_runs = await closed(store, alive)
    clock.advance(LEASE + SECOND)
    after_the_lease = await recovered()

    assert (at_once, after_the_lease) == (1, 1)
    assert await closed(store, dead) == [(RunStatus.LOST, "startup_recovery")]
    assert while_it_runs == [(RunStatus.RUNNING, None)]
    assert await closed(store, alive) == [(RunStatus.LOST, "lease_expired")]


async def test_runs_of_a_worker_of_which_one_process_is_left_are_not(
    store: Store, other: Store
) -> None:
    here = await store.acquire_lock(DEAD.boot_id, shared=True)
    there = await other.acquire_lock(DEAD.boot_id, shared=True)
    assert here is not None
    assert there is not None
    job_id = await running(store, DEAD)
    tidy = Maintenance(store, new_id)

    both = await tidy.run_once()
    await here.release()
    one = await tidy.run_once()
    await other.close()  # as if its process had died
    none = await tidy.run_once()

    assert [each.reclaimed for each in (both, one, none)] == [0, 0, 1]
    assert (await job_of(store, job_id)).losses == 1


async def test_runs_of_a_worker_without_such_a_lock_wait_for_their_lease(store: Store) -> None:
    job_id = await running(store, EMBEDDED)

    tidied = await Maintenance(store, new_id).run_once()

    assert tidied.reclaimed == 0
    assert (await job_of(store, job_id)).state is State.RUNNING


async def test_closing_them_leaves_the_lock_free(store: Store) -> None:
    await running(store, DEAD)

    await Maintenance(store, new_id).run_once()

    assert await store.free_locks([DEAD.boot_id]) == {DEAD.boot_id}
    assert (await Maintenance(store, new_id).run_once()).reclaimed == 0


async def test_the_direct_job_of_a_dead_caller_is_cancelled_at_once(store: Store) -> None:
    job_id = await reserved(store, dead_process_name("caller."))

    await Maintenance(store, new_id).run_once()

    job = await job_of(store, job_id)
    assert (job.state, job.reason) == (State.CANCELLED, "owner_dead")


@pytest.mark.parametrize("store", SESSION_LOCKS, indirect=True)
@pytest.mark.parametrize(
    "caller",
    [process_name("caller.", "1"), "caller.0123456789abcdef.1.1.x"],
    ids=["this process", "another machine"],
)
async def test_the_direct_job_of_a_living_caller_whose_lock_is_free_waits_for_its_reservation(
    store: Store, clock: FakeClock, caller: str
) -> None:
    job_id = await reserved(store, caller)
    tidy = Maintenance(store, new_id)

    await tidy.run_once()
    before = await job_of(store, job_id)
    clock.advance(HOUR + SECOND)
    await tidy.run_once()

    assert before.state is State.QUEUED
    after = await job_of(store, job_id)
    assert (after.state, after.reason) == (State.CANCELLED, "caller_silent")
