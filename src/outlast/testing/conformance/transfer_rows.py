"""Dumped rows loaded into another store lose and change nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Edited, Failed, Released
from outlast.core.group import ClosePolicy, GroupMode, NewGroup, OnMemberFailure
from outlast.core.ids import Ids
from outlast.core.job import DedupeKey, Slot
from outlast.core.ordering import Ordering
from outlast.core.position import JobEdit
from outlast.core.run import Lease
from outlast.core.schedule import SlotOutcome
from outlast.errors import StoreSealed
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.contract.transfer import (
    COLUMNS,
    FIRST,
    Row,
    StatusChange,
    TableKind,
    TransferStage,
    key_of,
)
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SECOND,
    SUCCEEDED,
    TYPE,
    ended,
    job_of,
    make_firing,
    make_job,
    new_id,
    next_ids,
    put,
    put_schedule,
    settle,
    started,
    take,
)
from outlast.testing.conformance.reservations import make_reservation
from outlast.testing.model.store import ModelStore
from outlast.transfer.row_sync import sync_rows
from outlast.verify import verify

FILLING = StatusChange(
    stage=TransferStage.FILLING, other="sqlite:////source.db", transfer_id="move-1"
)
OPENED = replace(FILLING, stage=TransferStage.OPEN)
COPIED = tuple(kind for kind in TableKind if kind is not TableKind.COUNTERS)


async def furnish(store: Store, clock: FakeClock) -> None:
    """Something of everything that a store can hold, in every state that lasts."""
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION, gap=50, concurrency=2))
    await store.pause("held", reason="höld", span=HOUR)
    for _ in range(3):
        await put(store, queue="lane")
    await put(store, priority=7, params='{"text":"naïve \\u0001 “quoted” \\\\"}')
    await put(store, delay=HOUR, max_attempts=None, metadata='{"tags":["ü"],"meta":{"n":1.5}}')
    await ended(store, SUCCEEDED, key=DedupeKey(key="inv:3", bucket="2026"), queue="a")
    await ended(store, Failed("böse", permanent=True), active_key="freed", queue="b")
    await ended(store, Failed("again", delay=HOUR), queue="c")
    await put(store, active_key="kept", queue="d")
    await _chain(store)
    await _group(store)
    await _run_with_everything(store)
    await _schedules(store, clock)
    await store.swap("note", "gone", expected=None, value='"x"')
    there = await store.swap("note", "dàily", expected=None, value='{"a": [1, 2]}')
    assert there is not None
    await store.swap("note", "dàily", expected=there.version, value='{"a":[1, 2]}')
    await store.reserve(make_reservation(), make_job(queue="direct"))


async def _chain(store: Store) -> None:
    """A root that failed, its successor that waits, and the active key that it has from it."""
    chain = {"delivery": Delivery.LINKED, "queue": "chains", "active_key": "of-the-chain"}
    await ended(store, Failed("first"), **chain)


async def _group(store: Store) -> None:
    """Three in a row, of which the first has ended; and one that closes."""
    group = NewGroup(id=new_id(), total=3, mode=GroupMode.SEQUENTIAL, name="three")
    await store.add_group(group)
    member = {"group_id": group.id, "member": True, "queue": "rows"}
    await store.add([make_job(**member) for _ in range(3)])
    await store.seal_group(group.id)
    await settle(store, await take(store, queue="rows"), SUCCEEDED)
    closing = NewGroup(id=new_id(), total=2, on_failure=OnMemberFailure.STOP)
    await store.add_group(closing)
    await store.stop_group(closing.id, reason="enough", skip=True)


async def _run_with_everything(store: Store) -> None:
    """Handed back once, then ended with all that a run can leave."""
    first = await started(store, queue="rich")
    await settle(store, first, Released("shutdown"))
    claim = await take(store, queue="rich")
    await store.record_progress([(Lease(claim.id, claim.token), '{"done": 3}')])
    await store.attach(Lease(claim.id, claim.token), ["a.txt"])
    change = decide(claim, SUCCEEDED, new_id=new_id)
    await store.apply([replace(change, exit_code=3, log_path="/log", artifacts=("b.txt",))])
    await store.attach(Lease(claim.id, claim.token), ["late ö.txt"])


async def _schedules(store: Store, clock: FakeClock) -> None:
    schedule = await put_schedule(store, clock.now(), queue="timed")
    await store.fire([make_firing(schedule)])
    missed = await put_schedule(store, clock.now(), name="other", enabled=True)
    await store.fire([make_firing(missed, SlotOutcome.MISSED)])
    await put(store, slot=Slot(series="by-hand", at=clock.now()), queue="timed")


async def everything(store: Store) -> dict[TableKind, list[Row]]:
    return {kind: await store.dump(kind, limit=MANY) for kind in COPIED}


async def copied(source: Store, target: Store) -> int:
    """How many rows differed."""
    return (await sync_rows(source, target, ended_only=False, on_rows=lambda _: None)).differed


async def another(clock: FakeClock) -> ModelStore:
    """Another store, by the same clock."""
    model = ModelStore(clock, Ids(clock.now, Random(2).getrandbits))
    await model.open()
    return model


async def test_every_kind_comes_in_the_order_of_its_keys_page_by_page(
    store: Store, clock: FakeClock
) -> None:
    await furnish(store, clock)
    for kind in COPIED:
        whole = await store.dump(kind, limit=MANY)
        keys = [key_of(kind, row) for row in whole]
        pages, after = [], None
        while page := await store.dump(kind, after=after, limit=2):
            pages += page
            after = key_of(kind, page[-1])

        assert whole, f"the world has no {kind}"
        assert pages == whole
        assert keys == sorted(set(keys))
        assert keys[0] > FIRST[kind]
        assert {len(row) for row in whole} == {len(COLUMNS[kind])}


async def test_another_store_holds_all_of_it_exactly_so(store: Store, clock: FakeClock) -> None:
    other = await another(clock)
    await furnish(store, clock)
    await other.change_transfer_status(FILLING)

    assert await copied(store, other) > 0
    assert await copied(store, other) == 0

    assert await everything(other) == await everything(store)
    jobs = await store.find(Filter(), limit=MANY)
    assert await other.find(Filter(), limit=MANY) == jobs
    for job in jobs:
        assert await other.runs(job.id) == await store.runs(job.id)
        assert await other.events(job.id) == await store.events(job.id)
    assert (await verify(other)).is_sound


async def test_it_takes_all_of_another_store_exactly_so(store: Store, clock: FakeClock) -> None:
    other = await another(clock)
    await furnish(other, clock)
    await store.change_transfer_status(FILLING)

    assert await copied(other, store) > 0
    assert await copied(other, store) == 0

    assert await everything(store) == await everything(other)
    assert (await verify(store)).is_sound
    assert await store.change_transfer_status(OPENED)
    jobs = await other.find(Filter(), limit=MANY)
    assert await store.find(Filter(), limit=MANY) == jobs
    assert await store.queues() == await other.queues()
    assert await store.reservations(limit=9) == await other.reservations(limit=9)
    assert await store.find_groups(limit=9) == await other.find_groups(limit=9)
    assert await store.schedules(limit=9) == await other.schedules(limit=9)
    for queue in ("default", "lane", "rows", "chains", "timed"):
        assert await next_ids(store, queue) == await next_ids(other, queue)


async def test_what_was_filled_goes_on_where_the_other_one_was(
    store: Store, clock: FakeClock
) -> None:
    """Keys, chains, groups, limits, numbers: all that a job meets on its way."""
    other = await another(clock)
    await furnish(other, clock)
    await store.change_transfer_status(FILLING)
    await copied(other, store)
    await store.change_transfer_status(OPENED)
    last_seq = max(row[0] for row in await store.dump(TableKind.JOBS, limit=MANY))
    last_event = max(row[0] for row in await store.dump(TableKind.EVENTS, limit=MANY))
    record = await store.document("note", "dàily")
    assert record is not None

    [known, held] = await store.add(
        [make_job(key=DedupeKey(key="inv:3", bucket="2026")), make_job(active_key="of-the-chain")]
    )
    assert (known.created, held.created) == (False, False)
    claim = await take(store, queue="chains")
    assert claim.failures == 1
    assert await settle(store, claim, SUCCEEDED)
    assert (await store.add([make_job(active_key="of-the-chain")]))[0].created
    member = await take(store, queue="rows")
    assert await settle(store, member, SUCCEEDED)
    await take(store, queue="rows")
    assert len([await take(store, queue="lane") for _ in range(2)]) == 2
    fresh = await job_of(store, await put(store))
    assert fresh.seq > last_seq
    newer = await store.swap("note", "dàily", expected=record.version, value="1")
    assert newer is not None
    assert newer.version > record.version
    await store.pause("default", reason=None, span=None)
    assert (await store.stream(limit=MANY))[-1].id > last_event
    assert (await verify(store)).is_sound


async def test_numbers_go_on_where_the_rows_end(store: Store, clock: FakeClock) -> None:
    """Also where nothing but rows tells how far they are."""
    other = await another(clock)
    jobs = [await put(other) for _ in range(3)]
    await store.change_transfer_status(FILLING)
    await sync_rows(other, store, ended_only=False, on_rows=lambda _: None)
    await store.load(TableKind.COUNTERS, [])
    await store.change_transfer_status(OPENED)

    fresh = await put(store)

    assert await next_ids(store) == [*jobs, fresh]
    assert (await job_of(store, fresh)).seq > (await job_of(store, jobs[-1])).seq


async def test_events_go_on_after_those_of_a_store_that_was_far_ahead(
    store: Store, clock: FakeClock
) -> None:
    """Event numbers may come from a server's transactions; a reader that pages on misses none."""
    await store.change_transfer_status(FILLING)
    far = 1 << 52
    row = [far, None, "lane", 1, "paused", 0, None, None, None]
    await store.load(TableKind.EVENTS, [row])
    await store.load(TableKind.COUNTERS, [["events", far]])
    await store.change_transfer_status(OPENED)

    await store.pause("lane", reason=None, span=None)
    clock.advance(SECOND)
    await store.resume("lane")

    told = await store.stream(limit=MANY)
    assert [event.id for event in told] == sorted(event.id for event in told)
    assert [str(event.kind) for event in told] == ["paused", "paused", "resumed"]
    assert told[0].id == far


async def test_what_changes_meanwhile_is_made_good(store: Store, clock: FakeClock) -> None:
    other = await another(clock)
    await furnish(other, clock)
    await store.change_transfer_status(FILLING)
    await copied(other, store)
    waiting = await job_of(other, await put(other, queue="edited"))
    gone = await put(other, queue="gone")
    await copied(other, store)

    edit = Edited(JobEdit(params='{"new": 1}', priority=3))
    await other.apply([decide(waiting, edit, new_id=new_id)])
    claim = await take(other, queue="edited")
    await settle(other, claim, Released("shutdown"))
    await settle(other, await job_of(other, gone), CancelRequested())
    clock.advance(SECOND)
    await other.prune(older_than=SECOND / 2, limit=MANY)
    record = await other.document("note", "gone")
    assert record is not None
    await other.swap("note", "gone", expected=record.version, value=None)
    await other.resume("held")
    assert await copied(other, store) > 0
    while await copied(other, store):  # a group goes after the last of its members
        pass

    assert await everything(store) == await everything(other)
    assert (await verify(store)).is_sound


async def test_history_is_copied_while_jobs_run(store: Store, clock: FakeClock) -> None:
    other = await another(clock)
    await furnish(store, clock)
    running = await started(store, queue="busy")
    await other.change_transfer_status(FILLING)

    await sync_rows(store, other, ended_only=True, on_rows=lambda _: None)

    rows = await other.dump(TableKind.JOBS, limit=MANY)
    assert rows == await store.dump(TableKind.JOBS, limit=MANY, ended_only=True)
    assert running.id not in {row[1] for row in await store.dump(TableKind.JOBS, limit=MANY)}
    assert {row[0] for row in await other.dump(TableKind.RUNS, limit=MANY)} <= {
        row[0] for row in rows
    }


class FiringBetweenTables:
    """A source whose schedule fires, and whose job ends, after the slots and before the jobs."""

    def __init__(self, store: Store, act: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._act: Callable[[], Awaitable[None]] | None = act

    async def dump(self, kind: TableKind, **asked: Any) -> list[Row]:
        act = self._act
        if kind is TableKind.JOBS and act is not None:
            self._act = None
            await act()
        return await self._store.dump(kind, **asked)


async def test_a_slot_whose_job_ends_between_the_tables_arrives_with_it(
    store: Store, clock: FakeClock
) -> None:
    other = await another(clock)
    schedule = await put_schedule(other, clock.now())

    async def fire() -> None:
        await other.fire([make_firing(schedule)])
        await settle(other, await take(other), SUCCEEDED)

    await store.change_transfer_status(FILLING)
    source = FiringBetweenTables(other, fire)
    await sync_rows(source, store, ended_only=True, on_rows=lambda _: None)  # type: ignore[arg-type]
    assert len(await store.dump(TableKind.JOBS, limit=MANY)) == 1
    assert await store.dump(TableKind.SLOTS, limit=MANY) == []
    while await copied(other, store):
        pass

    assert await everything(store) == await everything(other)
    assert (await verify(store)).is_sound


async def test_rows_are_taken_only_while_it_is_filled(store: Store) -> None:
    row = ["lane", "scheduled", 100, None, None, None, None]
    with pytest.raises(StoreSealed, match="open, not filling"):
        await store.load(TableKind.QUEUES, [row])
    await store.change_transfer_status(
        replace(FILLING, stage=TransferStage.SEALED, span=SECOND, grace=SECOND)
    )
    with pytest.raises(StoreSealed, match="sealed, not filling"):
        await store.load(TableKind.QUEUES, [row])

    assert await store.dump(TableKind.QUEUES, limit=9) == []


async def test_digest_is_that_of_the_rows_however_they_are_paged(
    store: Store, clock: FakeClock
) -> None:
    other = await another(clock)
    await furnish(store, clock)
    await other.change_transfer_status(FILLING)
    there = (await sync_rows(store, other, ended_only=False, on_rows=lambda _: None)).digests

    third = await another(clock)
    await third.change_transfer_status(FILLING)
    here = (await sync_rows(other, third, ended_only=False, on_rows=lambda _: None)).digests

    assert here == there
    assert here[TableKind.JOBS].rows == len(await store.dump(TableKind.JOBS, limit=MANY))
    assert TYPE in {row[2] for row in await third.dump(TableKind.JOBS, limit=1)}
    assert ClosePolicy.SKIP in {row[8] for row in await third.dump(TableKind.GROUPS, limit=9)}
