"""`job_lost` is logged, and counted, for runs that were lost and for no other."""

from collections.abc import Iterator

import pytest

from outlast.core.decide import succeed
from outlast.core.ids import Ids
from outlast.core.run import LeaseHolder
from outlast.core.state import Loss
from outlast.core.worker import SUPERVISED_BOOT_PREFIX
from outlast.errors import StoreBusy
from outlast.telemetry.events import TelemetryEvent, subscribe
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import HOUR, TYPE, new_id, put, started
from outlast.testing.model.store import ModelStore
from outlast.worker.maintenance.dead_workers import DeadWorkerReclaimer
from outlast.worker.maintenance.loop import Maintenance
from outlast.worker.supervisor.crash_attribution import CrashReport, close_runs

DEAD = LeaseHolder(instance_id="worker-1", boot_id=f"{SUPERVISED_BOOT_PREFIX}dead")


class LateStore(ModelStore):
    """A store in which one run ends after it was read as lost and before it is closed."""

    ends_first = None
    fails_after = None

    async def apply(self, changes):
        if self.fails_after is not None:
            answers = await super().apply(changes[: self.fails_after])
            rest = [None] * (len(changes) - self.fails_after)
            raise StoreBusy("throttled").with_answers([*answers, *rest])
        if self.ends_first is not None:
            first, self.ends_first = self.ends_first, None
            await super().apply([succeed(first.job_id, first.token, "1")])
        return await super().apply(changes)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock) -> LateStore:
    store = LateStore(clock, Ids(clock.now, lambda bits: 7))
    await store.open()
    return store


@pytest.fixture
def lost() -> Iterator[list[TelemetryEvent]]:
    """The events `job_lost` so far."""
    received: list[TelemetryEvent] = []
    leave = subscribe(lambda event: received.append(event) if event.event == "job_lost" else None)
    yield received
    leave()


def jobs_of(events):
    return [(event.fields["job"], event.fields["reason"]) for event in events]


async def test_run_that_ends_before_its_expired_lease_is_reclaimed_is_not_lost(store, clock, lost):
    ends, expires = await started(store), await started(store)
    clock.advance(HOUR)
    store.ends_first = ends

    done = await Maintenance(store, new_id).run_once()

    assert done.reclaimed == 1
    assert jobs_of(lost) == [(expires.id, "lease_expired")]


async def test_run_that_was_reclaimed_before_the_store_failed_is_lost(store, clock, lost):
    first, _ = await started(store), await started(store)
    clock.advance(HOUR)
    store.fails_after = 1

    with pytest.raises(StoreBusy):
        await Maintenance(store, new_id).run_once()

    assert jobs_of(lost) == [(first.id, "lease_expired")]


async def test_run_that_ends_before_its_dead_worker_is_reclaimed_is_not_lost(store, lost):
    await put(store)
    await put(store)
    ends, stays = await store.claim(DEAD, queue="default", types=[TYPE], limit=2, lease=HOUR)
    store.ends_first = ends

    closed = await DeadWorkerReclaimer(store, new_id).run_once()

    assert closed == 1
    assert jobs_of(lost) == [(stays.id, "owner_dead")]


async def test_run_that_a_dead_child_has_released_is_not_lost(store, lost):
    guilty, beside = await started(store), await started(store)
    report = CrashReport(
        reason=Loss.OWNER_DEAD, charged=frozenset({guilty.lease}), error="status 9"
    )

    await close_runs(store, [guilty.lease, beside.lease], report, new_id=new_id)

    assert jobs_of(lost) == [(guilty.id, "owner_dead")]
