"""Answering slots: each firing alone, all of it in one transaction or nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain

from outlast.core.job import NewJob
from outlast.core.limits import MAX_REASON
from outlast.core.schedule import Firing, SlotRecord
from outlast.errors import PayloadTooLarge
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification
from outlast.store.contract.schedules import FireResult
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_concurrently
from outlast.store.keyvalue.bundles import Bundle, NumberedFiring, pack_firings
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key
from outlast.store.keyvalue.known import register_queue
from outlast.store.keyvalue.operations import add
from outlast.store.keyvalue.repositories import schedules, slots
from outlast.store.keyvalue.repositories.schedules import TriggerState
from outlast.store.keyvalue.repositories.slots import is_name
from outlast.store.keyvalue.texts import is_text
from outlast.store.keyvalue.unit_of_work import UnitOfWork


async def answer_slots(desk: StoreContext, firings: Sequence[Firing]) -> list[FireResult]:
    """At the same time where nobody asks for what another does, else in the order given."""
    names = {firing.job.queue for firing in firings if firing.job and is_name(firing.job.queue)}
    for name in names:
        await register_queue(desk, name)
    first = await desk.numbers(len(firings)) if any(firing.job for firing in firings) else 0
    items = [NumberedFiring(at, firing, first + at) for at, firing in enumerate(firings)]
    placed = await add.placed_among(desk, names) if names and len(firings) > 1 else set()
    lines = pack_firings(items, placed=placed, most=desk.engine.limits.most_writes)
    told = dict(chain.from_iterable(await run_concurrently(lines, partial(_fire_line, desk))))
    fired = [told[at] for at in range(len(firings))]
    _wake(desk, firings, fired)
    return fired


def _wake(desk: StoreContext, firings: Sequence[Firing], fired: Sequence[FireResult]) -> None:
    pairs = zip(firings, fired, strict=True)
    stored = {f.job.queue for f, answer in pairs if f.job and answer is FireResult.WRITTEN}
    if stored:
        desk.notify(Notification(queues=frozenset(stored)))


async def _fire_line(desk: StoreContext, line: Sequence[Bundle]) -> list[tuple[int, FireResult]]:
    """What became of each, by its place."""
    fired = [(bundle, await _fire(desk, bundle)) for bundle in line]
    return [(n.at, each) for bundle, told in fired for n, each in zip(bundle, told, strict=True)]


async def _fire(desk: StoreContext, bundle: Bundle) -> list[FireResult]:
    async def work(unit: UnitOfWork) -> list[FireResult]:
        await unit.fetch([key for item in bundle for key in _looked_at(item.firing)])
        onward: dict[str, TriggerState] = {}
        fired = [await _answer(unit, item, onward, desk.now()) for item in bundle]
        for schedule_id, standing in onward.items():  # once, however many slots it went on by
            schedules.save_trigger_state(
                unit, await schedules.load_standing(unit, schedule_id), standing
            )
        return fired

    try:
        return await desk.run_unit(work)
    except PayloadTooLarge:
        if len(bundle) > 1:  # one of them, or all together: each is asked alone
            return [fired for item in bundle for fired in await _fire(desk, [item])]
        return [FireResult.REFUSED]


def _looked_at(firing: Firing) -> list[Key]:
    if not _is_sound(firing):
        return []
    own = [schedules.standing_key(firing.schedule_id), key_layout.slot_key(firing.slot)]
    job = _made(firing)
    return own if job is None else [*own, *add.looked_at(job)]


def _is_sound(firing: Firing) -> bool:
    return is_name(firing.schedule_id) and is_name(firing.slot.series)


def _made(firing: Firing) -> NewJob | None:
    return None if firing.job is None else replace(firing.job, slot=firing.slot)


async def _answer(
    unit: UnitOfWork, item: NumberedFiring, onward: dict[str, TriggerState], now: datetime
) -> FireResult:
    """Write all but where the schedule stands: that goes `onward`."""
    firing = item.firing
    there = await _schedule_state(unit, firing, onward)
    if there is None:
        return FireResult.STALE
    gone_on = replace(there, next_slot=firing.next_slot, next_trigger_at=firing.next_trigger_at)
    if await unit.get(key_layout.slot_key(firing.slot)) is not None:
        onward[there.id] = gone_on
        return FireResult.TAKEN
    if not is_text(firing.reason, MAX_REASON):
        return FireResult.REFUSED
    job = _made(firing)
    if job is not None:
        kept = await add.put(unit, job, item.seq, now)
        if isinstance(kept, Added):
            return await _not_stored(unit, firing, kept)
        gone_on = replace(gone_on, last_triggered_at=firing.slot.at)
    slots.save(unit, _row(firing, now))
    onward[there.id] = gone_on
    return FireResult.WRITTEN


async def _not_stored(unit: UnitOfWork, firing: Firing, kept: Added) -> FireResult:
    """Why not. What is in its way may have come with a firing that moved the schedule on."""
    if kept.refused is not None:
        return FireResult.REFUSED
    await unit.require_unchanged([schedules.standing_key(firing.schedule_id)])
    return FireResult.BUSY


async def _schedule_state(
    unit: UnitOfWork, firing: Firing, onward: Mapping[str, TriggerState]
) -> TriggerState | None:
    """Where the schedule stands, if that is as its firing expects."""
    if not _is_sound(firing):
        return None  # there is no such schedule
    there = onward.get(firing.schedule_id)
    there = there or await schedules.load_standing(unit, firing.schedule_id)
    if there is None or not there.enabled or there.version != firing.version:
        return None
    return there if there.next_slot == firing.slot.at else None


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
