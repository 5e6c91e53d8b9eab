"""What a store in transfer refuses, what it still accepts, and when it opens again."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.decide import decide
from outlast.core.event import CancelRequested, Edited, Misfired, Released
from outlast.core.explain import Explanation, GateCode, explain
from outlast.core.group import NewGroup
from outlast.core.ids import JobId
from outlast.core.position import JobEdit
from outlast.core.reservation import ReservationId
from outlast.core.run import Lease
from outlast.core.schedule import SlotOutcome
from outlast.errors import StoreMoved, StoreSealed, StoreUnavailable
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.store.contract.transfer import OPEN, StatusChange, TableKind, TransferStage
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    MANY,
    SECOND,
    SUCCEEDED,
    job_of,
    make_firing,
    make_holder,
    make_job,
    make_worker,
    new_id,
    put,
    put_schedule,
    settle,
    started,
    take_many,
)
from outlast.testing.conformance.reservations import make_reservation

ELSEWHERE = "postgresql://elsewhere/jobs"
SPAN = 30 * SECOND
ADDING_AT_ONCE = 4


def step(stage: TransferStage, **over: Any) -> StatusChange:
    """Of one and the same move; a seal lasts half a minute."""
    span = {"span": SPAN, "grace": SECOND} if stage is TransferStage.SEALED else {}
    return StatusChange(
        **{"stage": stage, "other": ELSEWHERE, "transfer_id": "move-1", **span, **over}
    )


WISHES: dict[str, Callable[[Store], Any]] = {
    "add": lambda s: s.add([make_job()]),
    "add_keyed": lambda s: s.add([make_job(active_key="a"), make_job(priority=3)]),
    "claim": take_many,
    "promote_due": lambda s: s.promote_due(limit=1),
    "prune": lambda s: s.prune(older_than=HOUR, limit=1),
    "prune_jobs": lambda s: s.prune_jobs([], older_than=HOUR),
    "set_queue": lambda s: s.set_queue(Queue(name="lane", concurrency=1)),
    "pause": lambda s: s.pause("default", reason=None, span=None),
    "resume": lambda s: s.resume("default"),
    "renumber": lambda s: s.renumber("default"),
    "swap": lambda s: s.swap("note", "daily", expected=None, value="1"),
    "reserve": lambda s: s.reserve(make_reservation(), make_job()),
    "keep": lambda s: s.extend_reservation(ReservationId(new_id()), span=LEASE),
    "add_group": lambda s: s.add_group(NewGroup(id=new_id(), total=1)),
    "seal_group": lambda s: s.seal_group(new_id()),
    "stop_group": lambda s: s.stop_group(new_id(), reason=None),
    "set_schedule": lambda s: s.set_schedule(new_id(), expected=1, value=None),
}


@pytest.mark.parametrize("stage", [TransferStage.SEALED, TransferStage.FILLING])
async def test_whatever_somebody_wants_is_refused_unless_it_is_open(
    store: Store, stage: TransferStage
) -> None:
    await put(store)
    before = [
        await store.dump(kind, limit=9) for kind in TableKind if kind is not TableKind.COUNTERS
    ]
    assert await store.change_transfer_status(step(stage))

    for wish in WISHES.values():
        with pytest.raises(StoreSealed, match="elsewhere"):
            await wish(store)

    after = [
        await store.dump(kind, limit=9) for kind in TableKind if kind is not TableKind.COUNTERS
    ]
    assert after == before


async def test_schedules_fire_nothing_unless_it_is_open(store: Store, clock: FakeClock) -> None:
    schedule = await put_schedule(store, clock.now())
    await store.change_transfer_status(step(TransferStage.SEALED))

    for outcome in (SlotOutcome.RAN, SlotOutcome.MISSED):
        with pytest.raises(StoreSealed):
            await store.fire([make_firing(schedule, outcome)])

    assert await store.slots(schedule.series, limit=9) == []


async def test_waiting_jobs_are_not_changed_unless_it_is_open(store: Store) -> None:
    job = await job_of(store, await put(store))
    running = await started(store, queue="other")
    await store.change_transfer_status(step(TransferStage.SEALED))
    events = (CancelRequested(), Misfired(), Edited(JobEdit(priority=3)))

    for event in events:
        with pytest.raises(StoreSealed):
            await store.apply([decide(job, event, new_id=new_id)])
    with pytest.raises(StoreSealed):
        await store.apply([decide(running, CancelRequested(), new_id=new_id)])

    assert await job_of(store, job.id) == job


async def test_what_runs_goes_on_while_it_is_sealed(store: Store) -> None:
    first, second = await started(store), await started(store, queue="other")
    await store.register_worker(make_worker())
    await store.change_transfer_status(step(TransferStage.SEALED))

    assert await store.heartbeat(make_holder(), span=LEASE)
    assert (await store.renew([Lease(first.id, first.token)], span=LEASE))[0].held
    assert await store.record_progress([(Lease(first.id, first.token), "1")]) == [True]
    assert await store.attach(Lease(first.id, first.token), ["a.txt"])
    assert await settle(store, first, SUCCEEDED)
    assert await settle(store, second, Released("shutdown"))
    await store.deregister_worker(make_holder())
    assert [row[18] for row in await store.dump(TableKind.JOBS, limit=9)] == ["succeeded", "queued"]


async def test_seal_is_over_by_itself_when_nobody_renews_it(store: Store, clock: FakeClock) -> None:
    await put(store)
    assert await store.change_transfer_status(step(TransferStage.SEALED))
    clock.advance(SPAN - SECOND)
    assert await store.change_transfer_status(step(TransferStage.SEALED, grace=None))
    renewed = await store.transfer_status()

    clock.advance(SPAN - SECOND)
    with pytest.raises(StoreSealed):
        await take_many(store)
    clock.advance(SECOND)

    assert renewed.until == clock.now()
    assert renewed.grace is not None
    assert await store.transfer_status() == OPEN
    assert len(await take_many(store)) == 1
    assert not await store.change_transfer_status(step(TransferStage.MOVED))
    assert not await store.change_transfer_status(step(TransferStage.SEALED, grace=None)), (
        "somebody has begun something"
    )
    assert await store.transfer_status() == OPEN


async def test_who_seals_anew_for_the_same_store_leaves_nothing_to_who_did_before(
    store: Store,
) -> None:
    await store.change_transfer_status(step(TransferStage.SEALED))

    assert not await store.change_transfer_status(
        step(TransferStage.SEALED, transfer_id="move-2", grace=None)
    )
    assert not await store.change_transfer_status(
        step(TransferStage.SEALED, transfer_id="move-2", other="sqlite:////else.db")
    )
    assert await store.change_transfer_status(step(TransferStage.SEALED, transfer_id="move-2"))

    for stage in (TransferStage.MOVED, TransferStage.OPEN):
        assert not await store.change_transfer_status(step(stage))
    assert not await store.change_transfer_status(step(TransferStage.SEALED, grace=None))
    assert await store.change_transfer_status(step(TransferStage.MOVED, transfer_id="move-2"))


async def test_store_that_was_moved_says_where_for_good(store: Store, clock: FakeClock) -> None:
    await store.change_transfer_status(step(TransferStage.SEALED))
    assert await store.change_transfer_status(step(TransferStage.MOVED))
    clock.advance(timedelta(days=400))

    with pytest.raises(StoreMoved, match="moved to postgresql://elsewhere") as told:
        await put(store)

    assert told.value.to == ELSEWHERE
    with pytest.raises(StoreMoved):
        await take_many(store)
    for stage in TransferStage:
        assert not await store.change_transfer_status(step(stage))
    assert (await store.transfer_status()).stage is TransferStage.MOVED


_NEXT_STAGES = {
    TransferStage.OPEN: (TransferStage.FILLING, TransferStage.SEALED),
    TransferStage.FILLING: (TransferStage.FILLING, TransferStage.READY, TransferStage.OPEN),
    TransferStage.READY: (TransferStage.FILLING, TransferStage.OPEN),
    TransferStage.SEALED: (TransferStage.SEALED, TransferStage.MOVED, TransferStage.OPEN),
}
STEPS = {(stage, after) for stage, following in _NEXT_STAGES.items() for after in following}


WAYS = {
    TransferStage.OPEN: (),
    TransferStage.FILLING: (TransferStage.FILLING,),
    TransferStage.READY: (TransferStage.FILLING, TransferStage.READY),
    TransferStage.SEALED: (TransferStage.SEALED,),
}


@pytest.mark.parametrize("start", WAYS)
async def test_only_the_next_step_of_its_own_move_is_taken(
    store: Store, start: TransferStage
) -> None:
    for stage in sorted(
        TransferStage, key=lambda each: each is TransferStage.MOVED
    ):  # from there nothing leads on
        await store.change_transfer_status(step(TransferStage.OPEN))
        for way in WAYS[start]:
            assert await store.change_transfer_status(step(way))
        before = await store.transfer_status()

        if start is not TransferStage.OPEN:
            assert not await store.change_transfer_status(
                step(stage, other="sqlite:///stranger.db")
            )
        assert await store.transfer_status() == before
        # One that is open already has nothing to be opened from.
        assert await store.change_transfer_status(step(stage)) is ((start, stage) in STEPS), stage


async def test_explain_names_the_transfer_as_the_first_gate_and_what_clears_it(
    store: Store, clock: FakeClock
) -> None:
    job_id = await put(store)
    await store.pause("default", reason=None, span=None)

    assert await store.change_transfer_status(step(TransferStage.SEALED))
    sealed = await _explained(store, job_id)
    clock.advance(SPAN)
    expired = await _explained(store, job_id)

    assert sealed.stop is not None
    assert (sealed.stop.code, sealed.stop.holder) == (GateCode.TRANSFER, ELSEWHERE)
    assert "sealed" in sealed.stop.text
    assert "the copy ends" in (sealed.stop.clears or "")
    assert expired.gates[0].code is GateCode.BLOCKED


@pytest.mark.parametrize(
    "stages",
    [
        (TransferStage.FILLING,),
        (TransferStage.FILLING, TransferStage.READY),
        (TransferStage.SEALED, TransferStage.MOVED),
    ],
)
async def test_explain_names_the_other_store_of_a_transfer(
    store: Store, stages: Sequence[TransferStage]
) -> None:
    job_id = await put(store)
    for stage in stages:
        assert await store.change_transfer_status(step(stage))

    stop = (await _explained(store, job_id)).stop

    assert stop is not None
    assert stop.code is GateCode.TRANSFER
    assert ELSEWHERE in stop.text
    assert ELSEWHERE in (stop.clears or "")


async def _explained(store: Store, job_id: JobId) -> Explanation:
    facts = await store.wait_facts(job_id)
    assert facts is not None
    return explain(facts)


async def test_address_of_the_other_store_is_kept_as_it_was_given(store: Store) -> None:
    other = "sqlite:////var/lib/ÄÖ 'quoted' \"jobs\".db?busy=3"

    await store.change_transfer_status(step(TransferStage.FILLING, other=other))

    footing = await store.transfer_status()
    assert (footing.other, footing.transfer_id, footing.until) == (other, "move-1", None)
    assert await store.change_transfer_status(step(TransferStage.OPEN, other=other))
    assert await store.transfer_status() == OPEN


@pytest.mark.parametrize("stage", [TransferStage.SEALED, TransferStage.FILLING])
async def test_what_is_acknowledged_while_it_closes_is_there_when_it_is_closed(
    store: Store, stage: TransferStage
) -> None:
    """Many add at once; the change of the status returns, and from then on nothing is added."""
    acknowledged: set[str] = set()

    async def keep_adding() -> None:
        while True:
            job = make_job()
            await store.add([job])
            acknowledged.add(job.id)
            await asyncio.sleep(0)  # others have their turn, on a store of dictionaries, too

    adding = [asyncio.create_task(keep_adding()) for _ in range(ADDING_AT_ONCE)]
    while not acknowledged:  # noqa: ASYNC110 - any of them
        await asyncio.sleep(0)

    assert await store.change_transfer_status(step(stage))
    closed = [row[1] for row in await store.dump(TableKind.JOBS, limit=MANY)]
    refused = await asyncio.gather(*adding, return_exceptions=True)

    assert {type(error) for error in refused} <= {StoreSealed, StoreUnavailable}
    assert acknowledged <= set(closed)
    assert [row[1] for row in await store.dump(TableKind.JOBS, limit=MANY)] == closed
