"""What the tests of recovery share: two boots of one worker, and what must always hold."""

from collections.abc import Collection
from typing import Any

from outlast.core.delivery import Delivery
from outlast.core.ids import JobId
from outlast.core.run import Claim, LeaseHolder
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.conformance.factories import LEASE, MANY, TYPE, new_id, put
from outlast.testing.conformance.histories.invariants import Dump, check_dump
from outlast.verify import verify
from outlast.worker.maintenance.history_inspector import HistoryInspector, HistoryRepairs
from outlast.worker.maintenance.recovery import Recovery, RecoveryResult

BEFORE = LeaseHolder(instance_id="worker-1", boot_id="boot-1")
NOW = LeaseHolder(instance_id="worker-1", boot_id="boot-2")
OTHER = LeaseHolder(instance_id="worker-2", boot_id="boot-3")
PRESETS = (Delivery.LEASE, Delivery.LINKED, Delivery.ONCE)


async def recover(store: Store, **over: Any) -> RecoveryResult:
    """What a new boot of worker-1 does."""
    options: dict[str, Any] = {"scope": "instance", "new_id": new_id, **over}
    return await Recovery(store, NOW, **options).run_once()


async def repair(store: Store) -> HistoryRepairs:
    """What `outlast verify --repair` does, and the maintenance of a worker on an SQL store."""
    return await HistoryInspector(store, new_id).inspect()


async def start(store: Store, holder: LeaseHolder = BEFORE, **over: Any) -> Claim:
    """Add a job that waits alone in its queue, and let that boot claim it."""
    await put(store, **over)
    [claim] = await store.claim(
        holder,
        queue=over.get("queue", "default"),
        types=[over.get("type", TYPE)],
        limit=1,
        lease=over.pop("lease", LEASE),
    )
    return claim


async def check_invariants(store: Store, *, chained: Collection[JobId] = ()) -> None:
    """Everything the store tells, held against every invariant."""
    jobs = {job.id: job for job in await store.find(Filter(), limit=MANY)}
    runs = {job_id: await store.runs(job_id) for job_id in jobs}
    events = {job_id: await store.events(job_id) for job_id in jobs}
    follow = {job.id for job in jobs.values() if job.retry_of} | set(chained)
    check_dump(Dump(jobs, runs, events), chained=follow)
    assert (await verify(store)).violations == ()
