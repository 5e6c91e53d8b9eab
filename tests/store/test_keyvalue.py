"""What the key-value store adds to the contract: addresses, clocks, index entries, tries."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from outlast.clock import SystemClock
from outlast.core.audit.violation import ViolationCode
from outlast.core.state import WAITING, State
from outlast.errors import ClockSkewTooLarge, ConfigurationError, SchemaTooNew, StoreBusy
from outlast.store.keyvalue.clocks import FleetClock, LeaseClock
from outlast.store.keyvalue.engine import Conditions, Key, KeyRange, ServerTime, StoredItem, Write
from outlast.store.keyvalue.key_layout import number
from outlast.store.keyvalue.operations import jobs as job_operations
from outlast.store.keyvalue.repositories import runs
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.keyvalue.unit_of_work import UnitOfWork
from outlast.store.open import open_store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    claim_order,
    ended,
    put,
    started,
    take_many,
)
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.memory import MemoryEngine


async def _opened(engine: MemoryEngine, clock: FakeClock | None = None) -> KeyValueStore:
    clock = clock or FakeClock()
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await store.open()
    return store


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("etcd:///jobs", "names no host"),
        ("etcd://user:secret@/jobs", "names no host"),
        ("etcd://host/a b", "prefix is 'a b'"),
        ("etcd://host/jobs?colour=red", "unknown options"),
        ("etcd://host/jobs?ca=nowhere.pem", "there is no such file"),
        ("etcd://host/jobs?max_skew=-1", "max_skew is '-1'"),
        ("dynamodb://", "dynamodb:// names no table"),
        ("dynamodb://ab", "dynamodb://ab names no table"),
        ("dynamodb://jobs/of/mine", "dynamodb://jobs/of/mine names no table"),
        ("dynamodb://jobs?endpoint=nonsense", "endpoint is .*write for example http://"),
        ("dynamodb://jobs?prefix=a%20b", "prefix is 'a b'"),
        ("dynamodb://jobs?beat=soon", "beat is 'soon'"),
    ],
)
def test_address_that_cannot_be_is_refused_by_what_is_wrong_with_it(
    url: str, reported: str
) -> None:
    with pytest.raises(ConfigurationError, match=reported) as caught:
        open_store(url)

    assert "secret" not in str(caught.value)


def test_hosts_without_a_port_have_the_usual_one() -> None:
    from outlast.store.keyvalue.engines.etcd.client import hosts  # noqa: PLC0415 - needs its driver

    assert hosts("a,b:1234,[::1]") == ["a:2379", "b:1234", "[::1]:2379"]


async def test_index_entry_that_is_gone_is_found_by_verify() -> None:
    engine = MemoryEngine()
    store = await _opened(engine)
    job_id = await put(store)
    [entry] = await engine.range(KeyRange("ready#default"), limit=10)

    await engine.transact({}, [Write(entry.key, None)])

    found = [(v.code, v.job_id) for v in (await verify(store)).violations]
    assert found == [(ViolationCode.DETACHED, job_id)]


async def test_dangling_index_entry_is_found_by_verify_and_never_claimed() -> None:
    engine = MemoryEngine()
    store = await _opened(engine)
    job_id = await put(store)
    [entry] = await engine.range(KeyRange("ready#default"), limit=10)
    ghost = Key("ready#default", entry.key.sort.replace(number(0), number(5), 1))

    await engine.transact({}, [Write(ghost, {**entry.value, "position": 5})])

    found = [(v.code, v.job_id) for v in (await verify(store)).violations]
    assert found == [(ViolationCode.DANGLING_STATE_ROW, job_id)]
    assert await claim_order(store) == [job_id]


async def test_counts_say_where_they_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await _opened(MemoryEngine())
    monkeypatch.setattr(job_operations, "MOST_COUNTED", 2)
    for _ in range(3):
        await put(store, queue="mail")
    for _ in range(2):
        await put(store)

    counts = await store.counts()

    assert dict(counts) == {("mail", State.QUEUED): 2, ("default", State.QUEUED): 2}
    assert counts.capped == {("mail", State.QUEUED)}
    assert (counts.text("mail", *WAITING), counts.text("default", *WAITING)) == ("2+", "2")


async def test_clock_that_is_set_moves_no_lease() -> None:
    clock = FakeClock()
    leases = LeaseClock(FleetClock(clock), margin=SECOND)
    end = leases.end(HOUR)

    clock.set_wall(clock.now() + 2 * HOUR)
    set_forward = leases.is_over(end)
    clock.set_back(4 * HOUR)
    clock.advance(HOUR)
    at_its_end = leases.is_over(end)
    clock.advance(SECOND)

    assert (set_forward, at_its_end, leases.is_over(end)) == (False, False, True)


async def test_machines_share_leases_and_a_reboot_ends_none() -> None:
    here, there = FakeClock(), FakeClock()
    there.reboot()
    end = LeaseClock(FleetClock(here)).end(HOUR)

    assert not LeaseClock(FleetClock(there)).is_over(end)


class _Elsewhen(MemoryEngine):
    """Its server's clock is ten seconds ahead."""

    async def time(self) -> ServerTime:  # type: ignore[override]
        clock, ahead = SystemClock(), timedelta(seconds=10)
        return ServerTime(clock.now() + ahead, clock.monotonic(), clock.monotonic())


async def test_machine_whose_clock_is_far_off_is_refused() -> None:
    with pytest.raises(ClockSkewTooLarge, match="10 s apart, and 5 s are allowed"):
        await KeyValueStore(_Elsewhen()).open()

    tolerant = KeyValueStore(_Elsewhen(), max_skew=timedelta(seconds=20))
    await tolerant.open()
    await tolerant.close()


async def test_records_of_a_newer_version_are_refused() -> None:
    engine = MemoryEngine()
    await engine.transact({}, [Write(Key("outlast", "version"), {"version": 99})])

    with pytest.raises(SchemaTooNew, match="version 99"):
        await _opened(engine)


class _Contended(MemoryEngine):
    """Another transaction always comes first."""

    is_lost = False

    async def transact(self, conditions: Conditions, writes: list[Write]) -> bool:  # type: ignore[override]
        return not self.is_lost and await super().transact(conditions, writes)


async def test_unit_of_work_that_always_conflicts_raises_store_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("outlast.store.keyvalue.unit_of_work.MAX_PAUSE_S", 0.0)
    engine = _Contended()
    store = await _opened(engine)
    engine.is_lost = True

    with pytest.raises(StoreBusy, match="nothing was written"):
        await put(store)


async def test_cost_of_a_claim_does_not_grow_with_what_waits() -> None:
    engine = MemoryEngine()
    store = await _opened(engine)
    await started(store)
    few = await _asked(engine, store)
    for _ in range(300):
        await put(store)

    assert await _asked(engine, store) == few


async def _asked(engine: MemoryEngine, store: KeyValueStore) -> int:
    """How many transactions it takes to enqueue and claim a job."""
    sent = 0

    def count(_: object) -> None:
        nonlocal sent
        sent += 1

    engine.before = count
    await put(store)
    await take_many(store, limit=1)
    engine.before = lambda _: None
    return sent


class _Asked(MemoryEngine):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        self.asked += 1
        return await super().get(keys)

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        self.asked += 1
        return await super().range(span, limit=limit, reverse=reverse)


async def test_verify_reads_by_the_page_and_not_by_the_job() -> None:
    engine = _Asked()
    store = await _opened(engine)
    counts = []
    for more in (20, 180):
        for _ in range(more):
            await ended(store)
        engine.asked = 0
        assert (await verify(store)).violations == ()
        counts.append(engine.asked)

    assert counts[0] == counts[1], "a request more for each page, none for a job"


async def test_runs_of_jobs_with_distant_ids_belong_to_their_job() -> None:
    engine = MemoryEngine()
    store = await _opened(engine)
    found = sorted([await ended(store) for _ in range(30)])
    first, last = await store.get([found[0], found[-1]])
    assert first is not None
    assert last is not None

    ours, others = await runs.closed_of(UnitOfWork(engine), [first, last])

    assert [run.job_id for run in ours] == [first.id]
    assert [run.job_id for run in others] == [last.id]
    assert await runs.closed_of(UnitOfWork(engine), []) == []
