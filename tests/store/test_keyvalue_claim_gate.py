"""After `pause` has returned, no claim that did not know the pause is written, or returned."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from outlast.core.event import EventKind
from outlast.core.ids import JobId
from outlast.core.state import RunStatus, State
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Conditions, Key, StoredItem, Write
from outlast.store.keyvalue.operations import queues
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import job_of, kinds, last_run, put, take_many
from outlast.verify import verify
from support.engines.faulty import Fault, FaultyEngine, fine
from support.engines.memory import MemoryEngine

ACT = Callable[[], Awaitable[Any]]


class Interrupted(MemoryEngine):
    """A process that stands still before a transaction; counts its reads of the queue's record."""

    meanwhile: ACT | None = None
    reads = 0

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            await act()
        return await super().transact(conditions, writes)

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        self.reads += Key(key_layout.QUEUE, "default") in keys
        return await super().get(keys)


async def opened(engine: MemoryEngine | FaultyEngine) -> KeyValueStore:
    store = KeyValueStore(engine, clock=FakeClock())
    await store.open()
    return store


async def waiting(engine: Interrupted, count: int = 3) -> tuple[Store, Store, list[JobId]]:
    """A store with waiting jobs, as two processes see it."""
    store, other = await opened(engine), await opened(engine)
    return store, other, [await put(store) for _ in range(count)]


def pause(store: Store) -> ACT:
    return lambda: store.pause("default", reason="deploy", span=None)


async def test_claim_that_began_before_a_pause_is_not_written_after_it() -> None:
    engine = Interrupted()
    store, other, ids = await waiting(engine)
    engine.meanwhile = pause(other)

    assert await take_many(store) == []

    assert engine.meanwhile is None, "it was about to write"
    jobs = [await job_of(store, job_id) for job_id in ids]
    assert [(job.state, job.token) for job in jobs] == [(State.QUEUED, 0)] * 3


async def test_claim_that_began_before_a_limit_keeps_it() -> None:
    engine = Interrupted()
    store, other, ids = await waiting(engine)
    engine.meanwhile = lambda: other.set_queue(Queue(name="default", concurrency=1))

    claims = await take_many(store)

    assert [claim.id for claim in claims] == ids[:1]


async def test_where_a_compare_is_billed_a_late_claim_is_released() -> None:
    engine = Interrupted(status_delay=0.0)
    store, other, [job_id] = await waiting(engine, 1)
    engine.meanwhile = pause(other)

    assert await take_many(store) == []

    job, run = await job_of(store, job_id), await last_run(store, job_id)
    assert (job.state, job.failures, job.losses) == (State.QUEUED, 0, 0)
    assert (run.status, run.reason) == (RunStatus.RELEASED, "queue_paused")
    assert await kinds(store, job_id) == [EventKind.RELEASED]
    await other.resume("default")
    assert [claim.id for claim in await take_many(store)] == [job_id]
    assert (await verify(store)).is_sound


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.TIMED_OUT])
async def test_late_claim_whose_release_failed_is_looked_up(fault: Fault) -> None:
    """If its run is open, it would be lost without its worker, and cost an attempt."""
    inner = Interrupted(status_delay=0.0)
    engine = FaultyEngine(inner)
    store, other = await opened(engine), await opened(inner)
    job_id = await put(store)

    async def pause_and_fail() -> None:
        await other.pause("default", reason=None, span=None)
        engine.choose = lambda _: fault

    inner.meanwhile = pause_and_fail
    assert await take_many(store) == []
    engine.choose = fine

    claims = await take_many(store)

    is_open = (await job_of(store, job_id)).state is State.RUNNING
    assert is_open == (fault is Fault.SERVER_ERROR)
    assert [claim.id for claim in claims] == [job_id] * is_open


async def test_claim_in_time_costs_no_further_read() -> None:
    reads = []
    for delay in (None, 1000.0, 0.0):
        engine = Interrupted(status_delay=delay)
        store, _, _ = await waiting(engine, 1)
        before = engine.reads
        await take_many(store)
        reads.append(engine.reads - before)

    assert reads == [0, 0, 1]


async def test_pause_returns_when_the_claims_that_began_before_it_are_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    store = await opened(MemoryEngine(status_delay=3.0))
    monkeypatch.setattr(queues.asyncio, "sleep", sleep)

    await store.pause("default", reason=None, span=None)

    assert waited[-1] == 3.0
    monkeypatch.setattr(queues.asyncio, "sleep", asyncio.sleep)
    assert (await store.queue("default")).pause is not None
