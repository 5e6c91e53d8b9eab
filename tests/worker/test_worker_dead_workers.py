"""A worker of which no process is left is noticed before its leases lapse, and no other is."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from outlast.core.event import EventKind
from outlast.core.ids import JobId
from outlast.core.run import LeaseHolder
from outlast.core.state import RunStatus, State
from outlast.core.worker import SUPERVISED_BOOT_PREFIX
from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.store.postgres.operations import maintenance as postgres_maintenance
from outlast.testing.conformance.factories import TYPE, job_of, kinds, new_id, put
from outlast.worker.maintenance.loop import Maintenance

LEASE = timedelta(hours=1)
DEAD = LeaseHolder(instance_id="worker-1", boot_id=f"{SUPERVISED_BOOT_PREFIX}dead")
LIVING = LeaseHolder(instance_id="worker-2", boot_id=f"{SUPERVISED_BOOT_PREFIX}living")
EMBEDDED = LeaseHolder(instance_id="worker-3", boot_id="an-embedded-one")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    address: str = request.getfixturevalue("postgres_url")
    return address


@pytest.fixture
async def store(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    monkeypatch.setattr(postgres_maintenance, "RESTART_GRACE_S", 0)  # just started
    opened = open_store(url)
    await opened.open()
    yield opened
    await opened.close()


async def taken(store: Store, holder: LeaseHolder) -> JobId:
    await put(store)
    [claim] = await store.claim(holder, queue="default", types=[TYPE], limit=1, lease=LEASE)
    return claim.id


async def test_runs_of_a_dead_worker_are_closed_at_once(store: Store) -> None:
    job_id = await taken(store, DEAD)

    tidied = await Maintenance(store, new_id).run_once()

    [run] = await store.runs(job_id)
    assert tidied.reclaimed == 1
    assert (run.status, run.reason) == (RunStatus.LOST, "owner_dead")
    assert (await job_of(store, job_id)).state is State.QUEUED
    assert await kinds(store, job_id) == [EventKind.REQUEUED]


async def test_runs_of_a_worker_of_which_one_process_is_left_are_not(
    store: Store, url: str
) -> None:
    other = open_store(url)
    await other.open()
    here = await store.acquire_lock(LIVING.boot_id, shared=True)
    there = await other.acquire_lock(LIVING.boot_id, shared=True)
    assert here is not None
    assert there is not None
    job_id = await taken(store, LIVING)
    tidy = Maintenance(store, new_id)

    both = await tidy.run_once()
    await here.release()
    one = await tidy.run_once()
    await other.close()  # as if its process had died
    none = await tidy.run_once()

    assert [each.reclaimed for each in (both, one, none)] == [0, 0, 1]
    assert (await job_of(store, job_id)).losses == 1


async def test_runs_of_a_worker_without_such_a_lock_wait_for_their_lease(store: Store) -> None:
    job_id = await taken(store, EMBEDDED)

    tidied = await Maintenance(store, new_id).run_once()

    assert tidied.reclaimed == 0
    assert (await job_of(store, job_id)).state is State.RUNNING


async def test_closing_them_leaves_the_lock_free(store: Store) -> None:
    await taken(store, DEAD)

    await Maintenance(store, new_id).run_once()

    assert await store.free_locks([DEAD.boot_id]) == {DEAD.boot_id}
    assert (await Maintenance(store, new_id).run_once()).reclaimed == 0


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_after_a_start_of_the_server_a_free_lock_proves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_maintenance, "RESTART_GRACE_S", 1_000_000)
    job_id = await taken(store, DEAD)

    tidied = await Maintenance(store, new_id).run_once()

    assert tidied.reclaimed == 0
    assert (await job_of(store, job_id)).state is State.RUNNING
