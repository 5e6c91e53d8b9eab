"""A worker's start reads what is open, however many jobs have ended."""

from collections.abc import Sequence

from outlast.core.decide import succeed
from outlast.core.run import LeaseHolder
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import (
    LEASE,
    make_job,
    new_id,
    put,
    started,
    take,
    take_many,
)
from outlast.testing.stores import ids_for_test
from outlast.worker.maintenance.group_closer import INCOMPLETE_GROUP_TIMEOUT
from outlast.worker.maintenance.recovery import Recovery, RecoveryResult
from support.engines.memory import MemoryEngine

PAGE = 50
NEXT_BOOT = LeaseHolder(instance_id="worker-1", boot_id="the-next-boot")


class _Counted(MemoryEngine):
    """Counts the requests that read, and the records read."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = self.records = 0

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        self.requests += 1
        self.records += len(keys)
        return await super().get(keys)

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        found = await super().range(span, limit=limit, reverse=reverse)
        self.requests += 1
        self.records += len(found)
        return found


async def test_start_reads_as_much_after_many_finished_jobs_as_after_a_few() -> None:
    few, many = await _start_after(PAGE), await _start_after(sizes.SIZES.finished_jobs)

    assert few == many


async def _start_after(finished: int) -> tuple[int, int]:
    """Return the requests and the records that a start reads until its first claim."""
    engine, clock = _Counted(), FakeClock()
    before = await _opened(engine, clock)
    for _ in range(finished // PAGE):
        await before.add([make_job() for _ in range(PAGE)])
        claims = await take_many(before, limit=PAGE)
        await before.apply([succeed(claim.job_id, claim.token, None) for claim in claims])
    await started(before, queue="cut-off")
    await put(before)
    clock.advance(LEASE)
    await before.close()
    engine.requests = engine.records = 0

    store = await _opened(engine, clock)
    recovery = Recovery(store, NEXT_BOOT, scope="instance", new_id=new_id)
    done = await recovery.run_once()
    await store.maintenance_due(abandoned=INCOMPLETE_GROUP_TIMEOUT)
    await take(store)

    counts = engine.requests, engine.records
    assert done == RecoveryResult(lost=1)
    await store.close()
    return counts


async def _opened(engine: MemoryEngine, clock: FakeClock) -> KeyValueStore:
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await store.open()
    return store
