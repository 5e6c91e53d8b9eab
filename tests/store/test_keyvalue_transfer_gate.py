"""A write that began in an open store and ends in a closed one is refused or not acknowledged."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import pytest

from outlast.core.decide import decide
from outlast.core.event import CancelRequested
from outlast.core.group import NewGroup
from outlast.errors import StoreSealed, StoreUnavailable
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.store.contract.transfer import OPEN, StatusChange, TableKind, TransferStage
from outlast.store.keyvalue.engine import Conditions, Write
from outlast.store.keyvalue.operations import transfer_status
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.keyvalue.transfer_gate import STATUS_KEY
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    SUCCEEDED,
    ended,
    job_of,
    make_firing,
    make_job,
    new_id,
    put,
    put_schedule,
    take_many,
)
from outlast.testing.conformance.reservations import make_reservation
from support.engines.memory import MemoryEngine

SPAN = 30 * SECOND


class Paused(MemoryEngine):
    """A process that stands still between its last look at the store and its write."""

    meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            await act()
        return await super().transact(conditions, writes)


def change(stage: TransferStage, **over: Any) -> StatusChange:
    span = {"span": SPAN, "grace": SECOND} if stage is TransferStage.SEALED else {}
    given = {"stage": stage, "other": "sqlite:////b.db", "transfer_id": "move-1"}
    return StatusChange(**given | span | over)


async def fire(store: Store) -> Any:
    [schedule] = await store.schedules(limit=9)
    return await store.fire([make_firing(schedule)])


async def cancel(store: Store) -> Any:
    [job] = await store.peek("default", limit=1)
    return await store.apply([decide(job, CancelRequested(), new_id=new_id)])


WISHES: Final[dict[str, Callable[[Store], Any]]] = {
    "add": lambda s: s.add([make_job()]),
    "add_many": lambda s: s.add([make_job(active_key="a"), make_job(priority=3)]),
    "claim": take_many,
    "fire": fire,
    "cancel": cancel,
    "prune": lambda s: s.prune(older_than=SECOND, limit=1),
    "set_queue": lambda s: s.set_queue(Queue(name="lane", concurrency=1)),
    "pause": lambda s: s.pause("default", reason=None, span=None),
    "swap": lambda s: s.swap("note", "daily", expected=None, value="1"),
    "reserve": lambda s: s.reserve(make_reservation(), make_job()),
    "add_group": lambda s: s.add_group(NewGroup(id=new_id(), total=1)),
}


async def opened(engine: MemoryEngine, clock: FakeClock) -> KeyValueStore:
    store = KeyValueStore(engine, clock=clock)
    await store.open()
    return store


async def furnished(engine: MemoryEngine) -> tuple[KeyValueStore, KeyValueStore]:
    """A store with something of all that is changed, as two processes see it."""
    clock = FakeClock()
    store, other = await opened(engine, clock), await opened(engine, clock)
    await put_schedule(store, clock.now(), queue="timed")
    await ended(store, SUCCEEDED, queue="old")
    await put(store)
    await store.add([make_job(queue=queue) for queue in ("default", "direct")])
    clock.advance(HOUR)
    return store, other


async def rows(store: Store) -> list[Any]:
    kinds = [kind for kind in TableKind if kind is not TableKind.COUNTERS]
    running = await store.running_under_other_boots(besides="", limit=9)
    return [*[await store.dump(kind, limit=99) for kind in kinds], running]


@pytest.mark.parametrize("stage", [TransferStage.SEALED, TransferStage.FILLING])
@pytest.mark.parametrize("wish", WISHES)
async def test_a_paused_writer_writes_nothing_into_a_closed_store(
    wish: str, stage: TransferStage
) -> None:
    engine = Paused(most_writes=20)
    store, other = await furnished(engine)
    before = await rows(store)
    await store.queue("default")
    engine.meanwhile = lambda: other.change_transfer_status(change(stage))

    with pytest.raises(StoreSealed, match="Nothing was written"):
        await WISHES[wish](store)

    assert engine.meanwhile is None, "it was about to write"
    assert await rows(store) == before


@pytest.mark.parametrize(
    ("wish", "after"),
    [
        (wish, after)
        for wish in WISHES
        for after in (TransferStage.SEALED, TransferStage.MOVED, TransferStage.OPEN)
        if (wish, after) != ("claim", TransferStage.OPEN)  # its run is found: see below
    ],
)
async def test_where_a_compare_is_billed_a_paused_writer_gets_no_acknowledgement(
    wish: str, after: TransferStage
) -> None:
    """Also if the store is open again by then: its rows may have been read without this one."""
    engine = Paused(status_delay=0.0)
    store, other = await furnished(engine)
    engine.meanwhile = partial(_seal_and, after, other)

    with pytest.raises(StoreUnavailable, match="send it again"):
        await WISHES[wish](store)


async def test_a_late_claim_is_found_in_a_store_that_is_open_again() -> None:
    engine = Paused(status_delay=0.0)
    store, other = await furnished(engine)
    engine.meanwhile = partial(_seal_and, TransferStage.OPEN, other)

    claims = await take_many(store)

    running = await store.running_under_other_boots(besides="", limit=9)
    assert {job.id for job in running} == {claim.job_id for claim in claims} != set()


async def _seal_and(after: TransferStage, store: Store) -> None:
    await store.change_transfer_status(change(TransferStage.SEALED))
    if after is not TransferStage.SEALED:
        assert await store.change_transfer_status(change(after))


async def test_what_is_sent_again_gets_a_certain_answer() -> None:
    engine = Paused(status_delay=0.0)
    store, other = await furnished(engine)
    job = make_job()
    engine.meanwhile = lambda: other.change_transfer_status(change(TransferStage.SEALED))
    with pytest.raises(StoreUnavailable):
        await store.add([job])

    with pytest.raises(StoreSealed):
        await store.add([job])
    assert await other.change_transfer_status(change(TransferStage.OPEN))
    [added] = await store.add([job])

    assert (added.id, added.created) == (job.id, False)
    assert (await job_of(store, job.id)).id == job.id


@pytest.mark.parametrize("status_delay", [None, 0.0])
async def test_work_begun_in_an_expired_seal_ends_the_transfer_that_set_it(
    status_delay: float | None,
) -> None:
    """Whatever the clock of the machine that transfers shows."""
    engine = Paused(status_delay=status_delay)
    clock, late = FakeClock(), FakeClock()
    store, other = await opened(engine, clock), await opened(engine, late)
    assert await other.change_transfer_status(change(TransferStage.SEALED))
    clock.advance(SPAN)

    await put(store)

    assert (await other.transfer_status()) == OPEN
    assert not await other.change_transfer_status(change(TransferStage.MOVED))
    assert not await other.change_transfer_status(change(TransferStage.SEALED, grace=None))


async def test_gate_costs_no_request_while_its_status_is_fresh() -> None:
    engine = Counted(status_delay=1000.0)
    store = await opened(engine, FakeClock())
    for _ in range(3):
        await put(store)

    assert engine.looks == 1
    assert engine.compared == 0


async def test_gate_compares_in_each_transaction_that_adds_or_claims() -> None:
    engine = Counted()
    store = await opened(engine, FakeClock())
    await put(store)
    before = engine.compared
    await store.add([make_job(), make_job()])
    added = engine.compared - before
    await take_many(store)

    assert added == 1
    assert engine.compared == before + added + 1


class Counted(MemoryEngine):
    """Counts the reads of the transfer status, and the transactions that compare it."""

    looks = compared = 0

    async def get(self, keys: Any) -> Any:
        self.looks += STATUS_KEY in keys
        return await super().get(keys)

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        self.compared += STATUS_KEY in conditions
        return await super().transact(conditions, writes)


@pytest.mark.parametrize("stage", [TransferStage.SEALED, TransferStage.FILLING])
async def test_status_change_waits_until_writes_that_do_not_know_it_are_over(
    stage: TransferStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that ends within two thirds of the wait is acknowledged without a second look."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    store = await opened(MemoryEngine(status_delay=3.0), FakeClock())
    monkeypatch.setattr(transfer_status.asyncio, "sleep", sleep)

    assert await store.change_transfer_status(change(stage))
    assert await store.change_transfer_status(change(TransferStage.OPEN))

    assert [seconds for seconds in waited if seconds] == [3.0]
