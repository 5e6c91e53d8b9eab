"""Numbers on the key-value store: unique and rising, with gaps, and after a restore."""

from collections.abc import Sequence

from outlast.store.contract.jobs import Filter
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Write
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import ended, job_of, make_job, put
from outlast.testing.stores import ids_for_test
from support.engines.memory import MemoryEngine

BLOCK = 4_096


class _Gaps(MemoryEngine):
    """Gives numbers as etcd does: each call has a block, and other writes leave gaps."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges_read = 0

    async def advance(self, counter: Key, by: int) -> int:
        return await super().advance(counter, 7 * BLOCK) - BLOCK + by

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        self.ranges_read += 1
        return await super().range(span, limit=limit, reverse=reverse)


async def test_newest_jobs_are_found_across_gaps_in_the_numbers_by_few_reads() -> None:
    engine = _Gaps()
    store = await _opened(engine)
    single = [await put(store) for _ in range(30)]
    await store.add([make_job() for _ in range(1_000)])
    last = [await put(store) for _ in range(30)]
    engine.ranges_read = 0

    newest = await store.find(Filter(), limit=40)
    reads = engine.ranges_read
    everything = await store.find(Filter(), limit=2_000)

    assert [job.id for job in newest[:30]] == last[::-1]
    assert [job.id for job in everything[-30:]] == single[::-1]
    assert len({job.id for job in everything}) == len(everything) == 1_060
    assert reads < 20


async def test_numbers_rise_after_a_restore_into_an_engine_that_counts_from_the_start() -> None:
    before = MemoryEngine()
    store = await _opened(before)
    jobs = [await ended(store) for _ in range(20)]
    after = MemoryEngine()
    records = before.everything()
    del records[key_layout.NUMBERS]
    await _restore(after, [Write(key, value) for key, value in records.items()])
    restored = await _opened(after)

    new = [await put(restored) for _ in range(3)]

    numbers = [(await job_of(restored, job_id)).seq for job_id in (*jobs, *new)]
    assert numbers == sorted(set(numbers))


async def _restore(engine: MemoryEngine, writes: Sequence[Write]) -> None:
    for start in range(0, len(writes), engine.limits.most_writes):
        await engine.transact({}, writes[start : start + engine.limits.most_writes])


async def _opened(engine: MemoryEngine) -> KeyValueStore:
    clock = FakeClock()
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await store.open()
    return store
