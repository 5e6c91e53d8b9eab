"""A job with a long history is pruned in small transactions, and stops no other."""

import logging
from collections.abc import Sequence

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Snoozed
from outlast.core.ids import JobId
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Conditions, Key, Write
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    MANY,
    SECOND,
    SUCCEEDED,
    ended,
    make_job,
    settle,
    started,
    take,
)
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.memory import MemoryEngine

WRITES = 10
RUNS = 30
"""Three times as many records as the transactions that one chain may take have."""


class _Killed(BaseException):
    """The process is killed before a transaction."""


class _Counting(MemoryEngine):
    """Remembers how many records each transaction wrote."""

    def __init__(self) -> None:
        super().__init__(most_writes=WRITES)
        self.written: list[int] = []
        self.refused: str | None = None

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        if self.refused and any(self.refused in write.key.sort for write in writes):
            raise ValueError("this record cannot be written")
        self.written.append(len(writes))
        return await super().transact(conditions, writes)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine() -> _Counting:
    return _Counting()


async def _opened(engine: MemoryEngine, clock: FakeClock) -> KeyValueStore:
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await store.open()
    return store


async def _snoozed_often(store: KeyValueStore, clock: FakeClock, runs: int) -> JobId:
    """A job that ended after so many runs."""
    claim = await started(store)
    for _ in range(runs - 1):
        await settle(store, claim, Snoozed(SECOND))
        clock.advance(SECOND)
        claim = await take(store)
    assert await settle(store, claim, SUCCEEDED)
    return claim.id


@pytest.mark.timeout(3_600)  # 100,000 runs at full size
async def test_job_of_many_runs_is_pruned_in_small_transactions(
    engine: _Counting, clock: FakeClock
) -> None:
    store = await _opened(engine, clock)
    await _snoozed_often(store, clock, sizes.SIZES.pruned_runs)
    clock.advance(2 * HOUR)
    engine.written.clear()

    gone = await store.prune(older_than=HOUR, limit=MANY)

    assert gone == 1
    assert max(engine.written) <= WRITES
    left = {key.part for key in engine.everything()}
    assert left.isdisjoint({key_layout.RUN, key_layout.EVENT, key_layout.STREAM, key_layout.JOB})
    assert (await verify(store)).violations == ()


async def test_prune_killed_at_any_step_leaves_a_sound_store_and_the_next_finishes(
    clock: FakeClock,
) -> None:
    whole = _Counting()
    store = await _opened(whole, clock)
    job_id = await _snoozed_often(store, clock, RUNS)
    clock.advance(2 * HOUR)
    before = whole.everything()
    whole.written.clear()
    await store.prune(older_than=HOUR, limit=MANY)

    for step in range(len(whole.written)):
        engine = _restored(before)
        killed = await _opened(engine, clock)
        _kill_before(engine, step)
        with pytest.raises(_Killed):
            await killed.prune(older_than=HOUR, limit=MANY)
        engine.before = lambda _: None
        after = await _opened(engine, clock)

        assert (await verify(after)).violations == (), step
        await after.prune(older_than=HOUR, limit=MANY)
        assert await after.get([job_id]) == [None], step
        assert engine.everything().keys() == whole.everything().keys(), step


def _restored(records: dict[Key, object]) -> MemoryEngine:
    engine = _Counting()
    for key, value in records.items():
        engine._write(key, value)  # type: ignore[arg-type]
    return engine


def _kill_before(engine: MemoryEngine, step: int) -> None:
    left = iter(range(step))

    def before(_: Sequence[Write]) -> None:
        if next(left, None) is None:
            raise _Killed

    engine.before = before


async def test_long_chain_is_pruned_in_small_transactions(
    engine: _Counting, clock: FakeClock
) -> None:
    store = await _opened(engine, clock)
    root = await ended(store, FAILED, delivery=Delivery.LINKED, max_attempts=20)
    for _ in range(7):
        clock.advance(HOUR)
        claim = await take(store)
        await settle(store, claim, FAILED)
    clock.advance(HOUR)
    await settle(store, await take(store), SUCCEEDED)
    clock.advance(2 * HOUR)
    chain = await store.chain(root)
    engine.written.clear()

    gone = await store.prune(older_than=HOUR, limit=MANY)

    assert gone == len(chain) == 9
    assert max(engine.written) <= WRITES
    assert await store.get([job.id for job in chain]) == [None] * 9
    assert (await verify(store)).violations == ()


async def test_job_that_is_being_pruned_cannot_be_retried(clock: FakeClock) -> None:
    engine = _Counting()
    store = await _opened(engine, clock)
    job_id = await _snoozed_often(store, clock, RUNS)
    clock.advance(2 * HOUR)
    _kill_before(engine, 3)
    with pytest.raises(_Killed):
        await store.prune(older_than=HOUR, limit=MANY)
    engine.before = lambda _: None

    [added] = await store.add([make_job(retry_of=job_id)])

    assert not added.created
    assert "there is no such job" in (added.refused or "")


@pytest.mark.parametrize("runs", [1, RUNS])
async def test_job_that_cannot_be_pruned_stops_no_other(
    engine: _Counting, clock: FakeClock, caplog: pytest.LogCaptureFixture, runs: int
) -> None:
    store = await _opened(engine, clock)
    stuck = await _snoozed_often(store, clock, runs)
    clock.advance(SECOND)
    others = [await ended(store) for _ in range(2)]
    clock.advance(2 * HOUR)
    engine.refused = stuck

    with caplog.at_level(logging.WARNING, logger="outlast.store"):
        gone = await store.prune(older_than=HOUR, limit=MANY)

    assert gone == 2
    assert await store.get(others) == [None, None]
    assert f"job={stuck}" in caplog.text
    assert "could not be pruned: 1" in caplog.text
    engine.refused = None
    assert await store.prune(older_than=HOUR, limit=MANY) == 1
