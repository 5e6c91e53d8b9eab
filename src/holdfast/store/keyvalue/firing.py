"""Answering slots: each firing alone, all of it in one transaction or nothing."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from holdfast.core.job import NewJob
from holdfast.core.limits import MAX_REASON
from holdfast.core.schedule import Firing, SlotRecord
from holdfast.errors import PayloadTooLarge
from holdfast.store.around import Hint
from holdfast.store.base import Added
from holdfast.store.keyvalue import add, layout, schedules, slots
from holdfast.store.keyvalue.desk import Desk
from holdfast.store.keyvalue.known import remember_queue
from holdfast.store.keyvalue.port import Key
from holdfast.store.keyvalue.schedules import Standing
from holdfast.store.keyvalue.slots import is_name
from holdfast.store.keyvalue.texts import is_text
from holdfast.store.keyvalue.together import in_chunks
from holdfast.store.keyvalue.unit import Unit
from holdfast.store.schedules import Fired

RECORDS = 10
"""What a usual firing writes: slot, standing, two triggers, and a job with a key and a deadline."""

Numbered = tuple[Firing, int]
"""A firing, and the number that its job gets."""


async def fire(desk: Desk, firings: Sequence[Firing]) -> list[Fired]:
    """At the same time where nobody asks for what another does, else in the order given."""
    names = {firing.job.queue for firing in firings if firing.job and is_name(firing.job.queue)}
    for name in names:
        await remember_queue(desk, name)
    first = await desk.numbers(len(firings)) if any(firing.job for firing in firings) else 0
    in_turn = await _in_turn(desk, firings, names)
    fired = await in_chunks(
        desk,
        [(firing, first + number) for number, firing in enumerate(firings)],
        partial(_fire, desk),
        records=RECORDS,
        is_alone=lambda pair: pair[0].schedule_id in in_turn,
        size=lambda pair: len(pair[0].job.params) if pair[0].job else 0,
    )
    _wake(desk, firings, fired)
    return fired


async def _in_turn(desk: Desk, firings: Sequence[Firing], names: Collection[str]) -> set[str]:
    """The schedules whose firings must keep their order: who gets a slot, a key, a position."""
    if len(firings) == 1:
        return set()
    wanted = Counter(wish for firing in firings for wish in _wishes(firing))
    placed = await add.placed_among(desk, names) if names else set()
    return {
        firing.schedule_id
        for firing in firings
        if any(wanted[wish] > 1 for wish in _wishes(firing))
        or (firing.job and (firing.job.member or firing.job.queue in placed))
    }


def _wishes(firing: Firing) -> Iterator[object]:
    yield firing.schedule_id
    yield firing.slot
    if firing.job is not None:
        yield "job", firing.job.id
        yield from (("key", key) for key in (firing.job.key, firing.job.active_key) if key)


def _wake(desk: Desk, firings: Sequence[Firing], fired: Sequence[Fired]) -> None:
    pairs = zip(firings, fired, strict=True)
    stored = {f.job.queue for f, answer in pairs if f.job and answer is Fired.WRITTEN}
    if stored:
        desk.wake(Hint(queues=frozenset(stored)))


async def _fire(desk: Desk, numbered: Sequence[Numbered]) -> list[Fired]:
    async def work(unit: Unit) -> list[Fired]:
        await unit.fetch([key for firing, _ in numbered for key in _looked_at(firing)])
        return [await _answer(unit, firing, seq, desk.now()) for firing, seq in numbered]

    try:
        return await desk.do(work)
    except PayloadTooLarge:
        if len(numbered) > 1:  # one of them, or all together: each is asked alone
            return [fired for pair in numbered for fired in await _fire(desk, [pair])]
        return [Fired.REFUSED]


def _looked_at(firing: Firing) -> list[Key]:
    if not _is_sound(firing):
        return []
    own = [schedules.standing_key(firing.schedule_id), layout.slot_key(firing.slot)]
    job = _made(firing)
    return own if job is None else [*own, *add.looked_at(job)]


def _is_sound(firing: Firing) -> bool:
    return is_name(firing.schedule_id) and is_name(firing.slot.series)


def _made(firing: Firing) -> NewJob | None:
    return None if firing.job is None else replace(firing.job, slot=firing.slot)


async def _answer(unit: Unit, firing: Firing, seq: int, now: datetime) -> Fired:
    if not _is_sound(firing):
        return Fired.STALE  # there is no such schedule
    there = await schedules.load_standing(unit, firing.schedule_id)
    if there is None or not _is_expected(there, firing):
        return Fired.STALE
    if await unit.get(layout.slot_key(firing.slot)) is not None:
        _go_on(unit, there, firing)
        return Fired.TAKEN
    if not is_text(firing.reason, MAX_REASON):
        return Fired.REFUSED
    job = _made(firing)
    if job is not None:
        kept = await add.put(unit, job, seq, now)
        if isinstance(kept, Added):
            return Fired.BUSY if kept.refused is None else Fired.REFUSED
        there = replace(there, last_triggered_at=firing.slot.at)
    slots.save(unit, _row(firing, now))
    _go_on(unit, there, firing)
    return Fired.WRITTEN


def _is_expected(there: Standing, firing: Firing) -> bool:
    is_next = there.next_slot == firing.slot.at
    return there.enabled and there.version == firing.version and is_next


def _go_on(unit: Unit, there: Standing, firing: Firing) -> None:
    onward = replace(there, next_slot=firing.next_slot, next_trigger_at=firing.next_trigger_at)
    schedules.stand(unit, there, onward)


def _row(firing: Firing, now: datetime) -> SlotRecord:
    return SlotRecord(
        slot=firing.slot,
        outcome=firing.outcome,
        planned=firing.planned,
        actual=now,
        schedule_id=firing.schedule_id,
        job_id=firing.job.id if firing.job else None,
        reason=firing.reason,
    )
