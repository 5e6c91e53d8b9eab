"""Two callers at once on the key-value store: wherever they meet, it is as if one came first."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.decide import JobView, decide
from outlast.core.delivery import Delivery
from outlast.core.event import (
    Abandoned,
    Abandonment,
    CancelRequested,
    Edited,
    Event,
    Failed,
    Misfired,
    Moved,
)
from outlast.core.group import GroupMode, NewGroup, OnMemberFailure
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, KeyWindow, NewJob, Slot
from outlast.core.ordering import Ordering
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.core.reservation import NewReservation, ReservationId
from outlast.core.schedule import SlotOutcome
from outlast.store.contract.queues import Queue
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SUCCEEDED,
    job_of,
    make_firing,
    make_job,
    put_schedule,
    settle,
    take,
    take_many,
)
from support.engines.linearizability import InterleavingCheck, MakeWorld, Verb

MOMENT = timedelta(milliseconds=1)
SMALLEST = 10


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.store.keyvalue.unit_of_work.FIRST_PAUSE_S", 0.0)


def _id(name: str) -> JobId:
    """The same in every run of a world: two may store one job."""
    return JobId(f"00000000-0000-7000-8000-{int.from_bytes(name.encode(), 'big'):012x}")


GROUP = _id("group")


def _job(called: str, **over: Any) -> NewJob:
    return make_job(id=_id(called), **over)


def _adding(name: str, **over: Any) -> Verb:
    job = _job(name, **over)
    return lambda store: store.add([job])


def _applying(job: JobView, event: Event, *, successor: str = "successor") -> Verb:
    change = decide(job, event, new_id=lambda: _id(successor))
    return lambda store: store.apply([change])


def _moving(job: JobView, where: Anchor, target: str | None = None) -> Verb:
    return _applying(job, Moved(MoveTo(where, None if target is None else _id(target))))


def _claiming(holder: str = "worker-2") -> Verb:
    return lambda store: take_many(store, limit=1, holder=holder)


def _reserving(number: str, name: str) -> Verb:
    new = NewReservation(id=ReservationId(number), caller="me", request="mine", span=HOUR)
    return lambda store: store.reserve(new, _job(name))


async def _put_in_turn(store: KeyValueStore, clock: FakeClock, *names: str, **over: Any) -> None:
    for name in names:
        await store.add([_job(name, **over)])
        clock.advance(MOMENT)


async def _keys(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """A job that failed for good, one that is old, and one that could not start in time."""
    await store.add([_job("failed")])
    failed = await take(store)
    await settle(store, failed, Failed("it broke", permanent=True))
    await store.add([_job("old", key=DedupeKey(key="old"))])
    old = await take(store)
    await settle(store, old, SUCCEEDED)
    slot = Slot(series="s", at=START)
    await store.add([_job("late", slot=slot, start_within=MOMENT)])
    late = await job_of(store, _id("late"))
    clock.advance(HOUR)
    again: dict[str, Any] = {"retry_of": failed.id}
    return {
        "retry": _adding("retried", **again),
        "retry with a key": _adding("retried", **again, key=DedupeKey(key="k")),
        "retry by another with that key": _adding("another", **again, key=DedupeKey(key="k")),
        "add": _adding("new", key=DedupeKey(key="old")),
        "misfire": _applying(late, Misfired()),
        "overdue": lambda store: store.missed_start_deadline(limit=MANY),
        "prune": lambda store: store.prune(older_than=MOMENT, limit=MANY),
        "attach to old": lambda store: store.attach(old.lease, ["a file"]),
        "write late to old": _applying(old, SUCCEEDED),
    }


async def _chain_over(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """A chain of two, long over."""
    await store.add([_job("first", delivery=Delivery.LINKED)])
    first = await take(store)
    await store.apply([decide(first, Failed("it broke"), new_id=lambda: _id("last"))])
    last = await take(store)
    await settle(store, last, SUCCEEDED)
    clock.advance(HOUR)
    return {
        "prune": lambda store: store.prune(older_than=MOMENT, limit=MANY),
        "attach to the first": lambda store: store.attach(first.lease, ["a file"]),
        "write late to the first": _applying(first, SUCCEEDED),
        "write late to the last": _applying(last, SUCCEEDED),
        "retry": _adding("retried", retry_of=last.id),
    }


async def _line(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """Jobs in explicit positions without any room between them."""
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION, gap=1))
    await _put_in_turn(store, clock, "a", "b", "c", "d")
    await take(store)
    b, c, d = [await job_of(store, _id(name)) for name in "bcd"]
    return {
        "add": _adding("x"),
        "cancel": _applying(c, CancelRequested()),
        "front": _moving(d, Anchor.FRONT),
        "back": _moving(b, Anchor.BACK),
        "between": _moving(b, Anchor.BEFORE, "d"),
        "renumber": lambda store: store.renumber("default"),
    }


async def _unplaced(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """Jobs by their due time: a job moved between them gives those before it positions."""
    await _put_in_turn(store, clock, "a", "b", "c")
    a, c = [await job_of(store, _id(name)) for name in "ac"]
    return {
        "between": _moving(c, Anchor.BEFORE, "b"),
        "edit": _applying(a, Edited(JobEdit(priority=2))),
        "put off": _applying(a, Edited(JobEdit(delay=HOUR))),
        "add": _adding("x"),
    }


async def _at_work(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """One runs, one waits."""
    await _put_in_turn(store, clock, "a", "b")
    a = await take(store)
    return {
        "claim": _claiming(),
        "finish": _applying(a, SUCCEEDED),
        "renew": lambda store: store.renew([a.lease], span=HOUR),
        "runs": lambda store: store.runs(a.id),
        "held": lambda store: store.running_under_other_boots(besides="none", limit=MANY),
        "counts": lambda store: store.counts(),
        "overview": lambda store: store.overview(span=HOUR),
        "why": lambda store: store.wait_facts(_id("b")),
    }


def _limited(concurrency: int | None) -> MakeWorld:
    async def world(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
        """One runs, two wait."""
        await store.set_queue(Queue(name="default", concurrency=concurrency))
        await _put_in_turn(store, clock, "a", "b", "c")
        a = await take(store)
        c = await job_of(store, _id("c"))
        raised = Queue(name="default", concurrency=3)
        return {
            "claim": _claiming(),
            "renew": lambda store: store.renew([a.lease], span=HOUR),
            "finish": _applying(a, SUCCEEDED),
            "front": _moving(c, Anchor.FRONT),
            "raise": lambda store: store.set_queue(raised),
            "reserve": _reserving("r1", "direct"),
        }

    return world


def _reserved(concurrency: int | None) -> MakeWorld:
    async def world(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
        """A queue is held for a job whose caller has fallen silent; another one waits."""
        await store.set_queue(Queue(name="default", concurrency=concurrency))
        await _put_in_turn(store, clock, "a")
        await _reserving("r1", "direct")(store)
        direct = await job_of(store, _id("direct"))
        clock.advance(2 * HOUR)
        return {
            "claim": _claiming(),
            "reserve again": _reserving("r1", "direct"),
            "reserve another": _reserving("r2", "another"),
            "cancel": _applying(direct, CancelRequested()),
            "abandon": _applying(direct, Abandoned(Abandonment.CALLER_SILENT)),
            "keep": lambda store: store.extend_reservation(ReservationId("r1"), span=HOUR),
            "free": lambda store: store.release_stale_reservations(limit=MANY),
            "active": lambda store: store.reservations(active_only=True, limit=MANY),
        }

    return world


def _group_to_seal(mode: GroupMode) -> MakeWorld:
    async def world(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
        """All members are there, and the group is not sealed yet."""
        new = NewGroup(id=GROUP, total=2, mode=mode, on_failure=OnMemberFailure.STOP)
        await store.add_group(new)
        await _put_in_turn(store, clock, "a", "b", group_id=GROUP, member=True)
        a, b = [await job_of(store, _id(name)) for name in "ab"]
        return {
            "seal": lambda store: store.seal_group(GROUP),
            "stop": lambda store: store.stop_group(GROUP, reason=None),
            "cancel the first": _applying(a, CancelRequested()),
            "cancel the last": _applying(b, CancelRequested()),
            "add": _adding("c", group_id=GROUP, member=True),
            "claim": _claiming(),
            "look": lambda store: store.group(GROUP),
            "list": lambda store: store.find_groups(limit=MANY),
        }

    return world


def _group_at_work(mode: GroupMode) -> MakeWorld:
    async def world(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
        """The first of three runs."""
        new = NewGroup(id=GROUP, total=3, mode=mode, on_failure=OnMemberFailure.STOP)
        await store.add_group(new)
        members: dict[str, Any] = {"group_id": GROUP, "member": True, "delivery": Delivery.LINKED}
        await _put_in_turn(store, clock, "a", "b", "c", **members)
        await store.seal_group(GROUP)
        a = await take(store)
        b, c = [await job_of(store, _id(name)) for name in "bc"]
        return {
            "finish": _applying(a, SUCCEEDED),
            "fail": _applying(a, Failed("it broke", permanent=True)),
            "retry": _applying(a, Failed("it broke")),
            "cancel the next": _applying(b, CancelRequested()),
            "cancel the last": _applying(c, CancelRequested()),
            "stop": lambda store: store.stop_group(GROUP, reason=None),
            "look": lambda store: store.group(GROUP),
        }

    return world


async def _once(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """Two of one name that may not overlap, in two queues."""
    for name, queue in (("a", "default"), ("b", "other")):
        slot = Slot(series=queue, at=START)
        once: dict[str, Any] = {"delivery": Delivery.ONCE, "name": "one", "queue": queue}
        await store.add([_job(name, **once, slot=slot)])
    await store.set_queue(Queue(name="other", concurrency=1))
    a = await job_of(store, _id("a"))
    return {
        "claim": _claiming(),
        "claim of the other": lambda store: take_many(store, queue="other", limit=1),
        "cancel": _applying(a, CancelRequested()),
        "names": lambda store: store.running_names(["one"]),
    }


async def _scheduled(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """A slot that is due; its job would be one at a time."""
    schedule = await put_schedule(store, clock.now())

    def firing(name: str) -> Verb:
        answer = make_firing(schedule, job=_job(name, active_key="one at a time"))
        return lambda store: store.fire([answer])

    return {
        "fire": firing("a"),
        "fire it too": firing("b"),
        "add": _adding("c", active_key="one at a time"),
        "miss": lambda store: store.fire([make_firing(schedule, SlotOutcome.MISSED)]),
    }


def _windowed(params: str, **over: Any) -> Verb:
    window = KeyWindow(key="k", span=HOUR)
    return _adding(params, params=f'"{params}"', window=window, **over)


async def _window_over(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """A window that has ended, whose job waits still."""
    await store.add([_job("old", window=KeyWindow(key="k", span=MOMENT))])
    old = await job_of(store, _id("old"))
    clock.advance(HOUR)
    return {
        "take": _windowed("one"),
        "take it too": _windowed("two"),
        "replace": _windowed("three", replaces=True),
        "claim": _claiming(),
        "cancel": _applying(old, CancelRequested()),
        "prune": lambda store: store.prune(older_than=HOUR, limit=MANY),
    }


async def _replaceable(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """A job that holds a key and waits for its first claim."""
    key = DedupeKey(key="k")
    await _put_in_turn(store, clock, "old", key=key)
    old = await job_of(store, _id("old"))
    return {
        "replace": _adding("one", params='"one"', key=key, replaces=True),
        "replace it too": _adding("two", params='"two"', key=key, replaces=True),
        "add": _adding("three", key=key),
        "claim": _claiming(),
        "cancel": _applying(old, CancelRequested()),
        "edit": _applying(old, Edited(JobEdit(params='"edited"'))),
    }


async def _debounced(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """A debounced job that is due."""

    def put_off(name: str) -> Verb:
        window = KeyWindow(key="k", at_most=HOUR)
        given: dict[str, Any] = {"window": window, "delay": MOMENT, "replaces": True}
        return _adding(name, params=f'"{name}"', **given)

    await put_off("old")(store)
    old = await job_of(store, _id("old"))
    clock.advance(MOMENT)
    return {
        "put off": put_off("one"),
        "put off again": put_off("two"),
        "claim": _claiming(),
        "cancel": _applying(old, CancelRequested()),
        "prune": lambda store: store.prune(older_than=HOUR, limit=MANY),
    }


WORLDS: Mapping[str, MakeWorld] = {
    "a window that is over": _window_over,
    "a key of a job that waits": _replaceable,
    "a debounced job": _debounced,
    "keys": _keys,
    "a chain that is over": _chain_over,
    "a line": _line,
    "no positions": _unplaced,
    "at work": _at_work,
    "no limit": _limited(None),
    "two at a time": _limited(2),
    "held": _reserved(None),
    "held, one at a time": _reserved(1),
    "a group to seal": _group_to_seal(GroupMode.PARALLEL),
    "a group at work": _group_at_work(GroupMode.PARALLEL),
    "a sequential group at work": _group_at_work(GroupMode.SEQUENTIAL),
    "once": _once,
    "a slot that is due": _scheduled,
}


@pytest.mark.parametrize("name", WORLDS)
async def test_concurrent_operations_leave_what_a_serial_order_would(name: str) -> None:
    pairs = await InterleavingCheck.of(WORLDS[name])

    assert await pairs.all_anomalies() == []


@pytest.mark.parametrize("name", WORLDS if sizes.SIZES.every_case_on_servers else ["two at a time"])
async def test_the_same_where_jobs_are_spread_over_shards(name: str) -> None:
    pairs = await InterleavingCheck.of(WORLDS[name], shards=3)

    assert await pairs.all_anomalies() == []


async def _planned(store: KeyValueStore, clock: FakeClock) -> Mapping[str, Verb]:
    """Two jobs; changing places is more than a small transaction takes."""
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION, gap=1))
    await _put_in_turn(store, clock, "a", "b", "c")
    await take(store)
    b = await job_of(store, _id("b"))
    return {
        "swap": _moving(b, Anchor.SWAP, "c"),
        "renumber": lambda store: store.renumber("default"),
        "add": _adding("x"),
    }


SMALL: Mapping[str, MakeWorld] = {
    "a chain that is over": _chain_over,
    "a plan": _planned,
}


@pytest.mark.parametrize("name", SMALL)
async def test_the_same_where_transactions_are_small(name: str) -> None:
    pairs = await InterleavingCheck.of(SMALL[name], most_writes=SMALLEST)

    assert await pairs.all_anomalies() == []


async def test_group_is_not_shown_before_the_entries_of_its_members_are_written() -> None:
    pairs = await InterleavingCheck.of(_group_at_work(GroupMode.SEQUENTIAL), most_writes=SMALLEST)

    assert await pairs.anomalies("fail", "look") == []
    assert await pairs.anomalies("look", "fail") == []
