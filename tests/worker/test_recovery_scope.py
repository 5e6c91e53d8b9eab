"""A `single` worker that recovers closes the runs of its own queues only."""

from recovery_helpers import BEFORE, OTHER, recover, start

from outlast.core.ids import Ids
from outlast.core.state import RunStatus, State
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import job_of, last_run
from outlast.testing.model.store import ModelStore
from outlast.worker.maintenance.recovery import RecoveryResult


async def test_single_worker_leaves_the_runs_of_queues_that_it_does_not_serve():
    clock = FakeClock()
    store = ModelStore(clock, Ids(clock.now, lambda bits: 7))
    await store.open()
    left = [await start(store, each, queue="mine") for each in (BEFORE, OTHER)]
    beside = await start(store, OTHER, queue="theirs")

    done = await recover(store, scope="all", queues=["mine", "spare"])

    assert done == RecoveryResult(lost=2)
    assert [(await last_run(store, each.id)).status for each in left] == [RunStatus.LOST] * 2
    assert (await job_of(store, beside.id)).state is State.RUNNING
