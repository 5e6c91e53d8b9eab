"""What `explain` says of a job that runs or has ended, and of workers that are dead."""

import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Released
from outlast.core.explain import Explanation
from outlast.core.ids import JobId
from outlast.core.worker import SUPERVISED_BOOT_PREFIX, WorkerInfo
from outlast.jobs.explanation import explain_job, judged
from outlast.process_identity import process_name
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    LOST,
    SECOND,
    job_of,
    make_worker,
    put,
    settle,
    take,
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    sqlite = SqliteStore(tmp_path / "jobs.db", clock=clock)
    await sqlite.open()
    yield sqlite
    await sqlite.close()


async def explained(store: SqliteStore, job_id: JobId) -> Explanation:
    found = await explain_job(store, job_id)
    assert found is not None
    return found


async def appear(store: SqliteStore, worker: WorkerInfo) -> None:
    await store.register_worker(worker)
    await store.heartbeat(worker.holder, span=HOUR)


def boot_of_a_dead_process() -> str:
    """The boot id of a process of this machine that has ended."""
    program = (
        "from outlast.process_identity import process_name\n"
        f"print(process_name({SUPERVISED_BOOT_PREFIX!r}, 'x'))"
    )
    return subprocess.check_output([sys.executable, "-c", program], text=True).strip()


async def test_the_start_beside_the_worker_is_that_of_its_own_run(
    store: SqliteStore, clock: FakeClock
) -> None:
    await put(store)
    first = await take(store, holder="worker-1")
    await settle(store, first, Released("shutdown"))
    clock.advance(HOUR)
    second = await take(store, holder="worker-2")

    stop = (await explained(store, second.id)).stop

    since = f"{clock.now():%Y-%m-%d %H:%M:%S} UTC"
    assert stop is not None
    assert stop.text == f"running on worker-2 since {since}, attempt 1 of 5"


async def test_progress_and_the_attempt_of_a_running_job_are_shown(store: SqliteStore) -> None:
    await put(store)
    await settle(store, await take(store), LOST)
    again = await take(store)
    await store.record_progress([(again.lease, '{"done": 5, "total": 10, "message": "copying"}')])

    stop = (await explained(store, again.id)).stop

    assert stop is not None
    assert stop.text.endswith(", attempt 2 of 5; [#####-----] 50 % 5/10 copying")


async def test_no_takeover_is_promised_while_no_worker_is_alive(
    store: SqliteStore, clock: FakeClock
) -> None:
    await put(store)
    claim = await take(store)
    clock.advance(LEASE + SECOND)

    alone = await explained(store, claim.id)
    await appear(store, make_worker("worker-2"))
    served = await explained(store, claim.id)

    assert "no live worker can take the job over" in str(alone)
    assert "Clears when: `outlast worker -q default`" in str(alone)
    assert "another worker takes the job over" in str(served)


async def test_a_linked_job_names_the_job_that_continues_it(store: SqliteStore) -> None:
    await put(store, delivery=Delivery.LINKED)
    claim = await take(store)
    await settle(store, claim, LOST)
    [_, successor] = await store.chain(claim.id)

    found = await explained(store, claim.id)

    assert f"job {successor.id} continues it: `outlast explain {successor.id}`" in str(found)
    assert found.is_continued
    assert not (await explained(store, successor.id)).is_continued


async def test_a_worker_whose_process_is_dead_counts_as_dead_at_once(store: SqliteStore) -> None:
    dead = replace(make_worker("worker-1"), boot_id=boot_of_a_dead_process())
    here = process_name(SUPERVISED_BOOT_PREFIX, "y")
    for worker in (dead, replace(make_worker("worker-2"), boot_id=here)):
        await appear(store, worker)
    await put(store)
    [claim] = await store.claim(
        dead.holder, queue="default", types=list(dead.types), limit=1, lease=LEASE
    )

    alive = {each.instance_id: each.is_alive for each in judged(await store.workers())}
    found = await explained(store, claim.id)

    assert alive == {"worker-1": False, "worker-2": True}
    assert "worker worker-1 is dead, and another worker takes the job over" in str(found)
    assert (await job_of(store, claim.id)).state == "running"


async def test_a_dead_worker_serves_no_queue(store: SqliteStore) -> None:
    await appear(store, make_worker("worker-1", boot_id=boot_of_a_dead_process()))

    stop = (await explained(store, await put(store))).stop

    assert stop is not None
    assert stop.text == 'no live worker serves queue "default"'
