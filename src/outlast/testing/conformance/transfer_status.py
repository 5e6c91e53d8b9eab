"""A store that is being moved: what it refuses, what goes on, and when it takes work again."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.decide import decide
from outlast.core.event import CancelRequested, Edited, Misfired, Released
from outlast.core.group import NewGroup
from outlast.core.position import Edit
from outlast.core.reservation import ReservationId
from outlast.core.run import Lease
from outlast.core.schedule import Outcome
from outlast.errors import StoreMoved, StoreSealed
from outlast.store.base import Queue, Store
from outlast.store.contract.transfer import OPEN, Kind, Stage, Step
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
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

ELSEWHERE = "postgresql://somebody@elsewhere/jobs"
SPAN = 30 * SECOND


def step(stage: Stage, **over: Any) -> Step:
    """Of one and the same move; a seal lasts half a minute."""
    span = {"span": SPAN, "grace": SECOND} if stage is Stage.SEALED else {}
    return Step(**{"stage": stage, "other": ELSEWHERE, "by": "move-1", **span, **over})


WISHES: dict[str, Callable[[Store], Any]] = {
    "add": lambda s: s.add([make_job()]),
    "add_keyed": lambda s: s.add([make_job(active_key="a"), make_job(priority=3)]),
    "claim": take_many,
    "promote_due": lambda s: s.promote_due(limit=1),
    "prune": lambda s: s.prune(older_than=HOUR, limit=1),
    "set_queue": lambda s: s.set_queue(Queue(name="lane", concurrency=1)),
    "pause": lambda s: s.pause("default", reason=None, span=None),
    "resume": lambda s: s.resume("default"),
    "normalise": lambda s: s.normalise("default"),
    "swap": lambda s: s.swap("note", "daily", expected=None, value="1"),
    "reserve": lambda s: s.reserve(make_reservation(), make_job()),
    "keep": lambda s: s.keep(ReservationId(new_id()), span=LEASE),
    "add_group": lambda s: s.add_group(NewGroup(id=new_id(), total=1)),
    "seal_group": lambda s: s.seal_group(new_id()),
    "stop_group": lambda s: s.stop_group(new_id(), reason=None),
    "set_schedule": lambda s: s.set_schedule(new_id(), expected=1, value=None),
}


@pytest.mark.parametrize("stage", [Stage.SEALED, Stage.FILLING])
async def test_whatever_somebody_wants_is_refused_unless_it_is_open(
    store: Store, stage: Stage
) -> None:
    await put(store)
    before = [await store.dump(kind, limit=9) for kind in Kind if kind is not Kind.COUNTERS]
    assert await store.stand(step(stage))

    for wish in WISHES.values():
        with pytest.raises(StoreSealed, match="elsewhere"):
            await wish(store)

    after = [await store.dump(kind, limit=9) for kind in Kind if kind is not Kind.COUNTERS]
    assert after == before


async def test_schedules_fire_nothing_unless_it_is_open(store: Store, clock: FakeClock) -> None:
    schedule = await put_schedule(store, clock.now())
    await store.stand(step(Stage.SEALED))

    for outcome in (Outcome.RAN, Outcome.MISSED):
        with pytest.raises(StoreSealed):
            await store.fire([make_firing(schedule, outcome)])

    assert await store.slots(schedule.series, limit=9) == []


async def test_waiting_jobs_are_not_changed_unless_it_is_open(store: Store) -> None:
    job = await job_of(store, await put(store))
    running = await started(store, queue="other")
    await store.stand(step(Stage.SEALED))
    events = (CancelRequested(), Misfired(), Edited(Edit(priority=3)))

    for event in events:
        with pytest.raises(StoreSealed):
            await store.apply([decide(job, event, new_id=new_id)])
    with pytest.raises(StoreSealed):
        await store.apply([decide(running, CancelRequested(), new_id=new_id)])

    assert await job_of(store, job.id) == job


async def test_what_runs_goes_on_while_it_is_sealed(store: Store) -> None:
    first, second = await started(store), await started(store, queue="other")
    await store.enlist(make_worker())
    await store.stand(step(Stage.SEALED))

    assert await store.beat(make_holder(), span=LEASE)
    assert (await store.renew([Lease(first.id, first.token)], span=LEASE))[0].held
    assert await store.report([(Lease(first.id, first.token), "1")]) == [True]
    assert await store.attach(Lease(first.id, first.token), ["a.txt"])
    assert await settle(store, first, SUCCEEDED)
    assert await settle(store, second, Released("shutdown"))
    await store.retire(make_holder())
    assert [row[18] for row in await store.dump(Kind.JOBS, limit=9)] == ["succeeded", "queued"]


async def test_seal_is_over_by_itself_when_nobody_renews_it(store: Store, clock: FakeClock) -> None:
    await put(store)
    assert await store.stand(step(Stage.SEALED))
    clock.advance(SPAN - SECOND)
    assert await store.stand(step(Stage.SEALED, grace=None))
    renewed = await store.footing()

    clock.advance(SPAN - SECOND)
    with pytest.raises(StoreSealed):
        await take_many(store)
    clock.advance(SECOND)

    assert renewed.until == clock.now()
    assert renewed.grace is not None
    assert await store.footing() == OPEN
    assert len(await take_many(store)) == 1
    assert not await store.stand(step(Stage.MOVED))
    assert not await store.stand(step(Stage.SEALED, grace=None)), "somebody has begun something"
    assert await store.footing() == OPEN


async def test_who_seals_anew_for_the_same_store_leaves_nothing_to_who_did_before(
    store: Store,
) -> None:
    await store.stand(step(Stage.SEALED))

    assert not await store.stand(step(Stage.SEALED, by="move-2", grace=None))
    assert not await store.stand(step(Stage.SEALED, by="move-2", other="sqlite:////else.db"))
    assert await store.stand(step(Stage.SEALED, by="move-2"))

    for stage in (Stage.MOVED, Stage.OPEN):
        assert not await store.stand(step(stage))
    assert not await store.stand(step(Stage.SEALED, grace=None))
    assert await store.stand(step(Stage.MOVED, by="move-2"))


async def test_store_that_was_moved_says_where_for_good(store: Store, clock: FakeClock) -> None:
    await store.stand(step(Stage.SEALED))
    assert await store.stand(step(Stage.MOVED))
    clock.advance(timedelta(days=400))

    with pytest.raises(StoreMoved, match="moved to postgresql://somebody@elsewhere") as told:
        await put(store)

    assert told.value.to == ELSEWHERE
    with pytest.raises(StoreMoved):
        await take_many(store)
    for stage in Stage:
        assert not await store.stand(step(stage))
    assert (await store.footing()).stage is Stage.MOVED


STEPS = {
    (Stage.OPEN, Stage.FILLING), (Stage.OPEN, Stage.SEALED), (Stage.FILLING, Stage.FILLING),
    (Stage.FILLING, Stage.READY), (Stage.FILLING, Stage.OPEN), (Stage.READY, Stage.FILLING),
    (Stage.READY, Stage.OPEN), (Stage.SEALED, Stage.SEALED), (Stage.SEALED, Stage.MOVED),
    (Stage.SEALED, Stage.OPEN),
}  # fmt: skip
WAYS = {
    Stage.OPEN: (),
    Stage.FILLING: (Stage.FILLING,),
    Stage.READY: (Stage.FILLING, Stage.READY),
    Stage.SEALED: (Stage.SEALED,),
}


@pytest.mark.parametrize("start", WAYS)
async def test_only_the_next_step_of_its_own_move_is_taken(store: Store, start: Stage) -> None:
    for stage in sorted(Stage, key=lambda each: each is Stage.MOVED):  # from there nothing leads on
        await store.stand(step(Stage.OPEN))
        for way in WAYS[start]:
            assert await store.stand(step(way))
        before = await store.footing()

        if start is not Stage.OPEN:
            assert not await store.stand(step(stage, other="sqlite:///stranger.db"))
        assert await store.footing() == before
        # One that is open already has nothing to be opened from.
        assert await store.stand(step(stage)) is ((start, stage) in STEPS), stage


async def test_address_of_the_other_store_is_kept_as_it_was_given(store: Store) -> None:
    other = "sqlite:////var/lib/ÄÖ 'quoted' \"jobs\".db?busy=3"

    await store.stand(step(Stage.FILLING, other=other))

    footing = await store.footing()
    assert (footing.other, footing.by, footing.until) == (other, "move-1", None)
    assert await store.stand(step(Stage.OPEN, other=other))
    assert await store.footing() == OPEN
