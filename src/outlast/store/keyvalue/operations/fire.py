"""Fire slots: each firing is atomic; firings without conflicts share transactions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from outlast.core.job import NewJob
from outlast.core.limits import MAX_REASON, is_text
from outlast.core.schedule import Firing, SlotRecord
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification
from outlast.store.contract.schedules import FireResult
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_concurrently, run_halved
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, Limits
from outlast.store.keyvalue.operations import add
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.outcomes import FailedItem, each_of, require_all
from outlast.store.keyvalue.repositories import bodies, schedules, slots
from outlast.store.keyvalue.repositories.queues import register_queue
from outlast.store.keyvalue.repositories.schedules import TriggerState
from outlast.store.keyvalue.repositories.slots import is_name
from outlast.store.keyvalue.unit_of_work import UnitOfWork

SCHEDULE: Final = 3
"""Records of one schedule: its trigger state, and its old and new trigger entry."""

JOB: Final = 6
"""Records of one job beside its slot: itself, id, number, index entry, deadline, active key."""


class NumberedFiring(NamedTuple):
    """A firing, its index in the order given, and the number that its job gets."""

    at: int
    firing: Firing
    seq: int


Bundle = list[NumberedFiring]
"""Firings of one transaction."""


class KeyValueFireOperations(KeyValueOperations):
    """Fire slots."""

    @requires_open_store
    async def fire(self, context: StoreContext, firings: Sequence[Firing]) -> list[FireResult]:
        """Answer slots and return what became of each.

        Firings without conflicts go concurrently, all others in the order given.
        """
        names = {firing.job.queue for firing in firings if firing.job and is_name(firing.job.queue)}
        for name in names:
            await register_queue(context, name)
        first = await context.numbers(len(firings)) if any(firing.job for firing in firings) else 0
        items = [NumberedFiring(at, firing, first + at) for at, firing in enumerate(firings)]
        placed = await add.placed_among(context, names) if names and len(firings) > 1 else set()
        lines = pack_firings(items, placed=placed, limits=context.engine.limits)
        told = require_all(await run_concurrently(lines, partial(_fire_line, context)))
        outcome_of = dict(chain.from_iterable(told))
        fired = [outcome_of[at] for at in range(len(firings))]
        _wake(context, firings, fired)
        return require_all(fired)


def pack_firings(
    items: Sequence[NumberedFiring], *, placed: Collection[str], limits: Limits
) -> list[list[Bundle]]:
    """Return lists of bundles: one list goes in order, the lists go concurrently.

    Firings that conflict are in one list, in the order given. `placed` are the queues whose jobs
    have explicit positions. `limits` bound a bundle.
    """
    cut = [_packed([[item] for item in line], limits) for line in _lines(items, placed)]
    short = [pieces[0] for pieces in cut if len(pieces) == 1]
    return [[bundle] for bundle in _packed(short, limits)] + [line for line in cut if len(line) > 1]


def _lines(items: Sequence[NumberedFiring], placed: Collection[str]) -> list[Bundle]:
    """Return the firings in lines; two that share a conflict key are in the same line."""
    line_of: dict[object, Bundle] = {}
    for item in items:
        wishes = list(_conflict_keys(item.firing, placed))
        met = {id(line): line for wish in wishes if (line := line_of.get(wish)) is not None}
        own, *others = met.values() if met else [[]]
        for line in others:
            own += line
            line_of |= {wish: own for each in line for wish in _conflict_keys(each.firing, placed)}
        own.append(item)
        line_of |= dict.fromkeys(wishes, own)
    lines = {id(line): line for line in line_of.values()}.values()
    return [sorted(line, key=lambda item: item.at) for line in lines]


def _conflict_keys(firing: Firing, placed: Collection[str]) -> Iterator[object]:
    """Return everything that only one of several firings can have."""
    yield firing.schedule_id
    yield firing.slot
    job = firing.job
    if job is not None:
        yield "job", job.id
        yield from (key for key in (job.key, job.active_key and ("active", job.active_key)) if key)
        yield from [("group", job.group_id)] if job.member else []
        yield from [("queue", job.queue)] if job.queue in placed else []


def _packed(pieces: Sequence[Bundle], limits: Limits) -> list[Bundle]:
    """Join pieces, in order, as far as one transaction holds them by number and size."""
    packed: list[Bundle] = []
    for piece in pieces:
        if packed and _fits([*packed[-1], *piece], limits):
            packed[-1].extend(piece)
        else:
            packed.append(list(piece))
    return packed


def _fits(bundle: Bundle, limits: Limits) -> bool:
    jobs = [item.firing.job for item in bundle if item.firing.job is not None]
    known = {item.firing.schedule_id for item in bundle}
    records = SCHEDULE * len(known) + len(bundle) + JOB * len(jobs)
    records += sum((job.key is not None) + 2 * job.member for job in jobs)
    records += sum(bodies.is_long(job.params) for job in jobs)
    texts = sum(len(job.params) for job in jobs)
    return records <= limits.most_writes and texts <= limits.most_bytes


def _wake(
    context: StoreContext, firings: Sequence[Firing], fired: Sequence[FireResult | FailedItem]
) -> None:
    pairs = zip(firings, fired, strict=True)
    stored = {f.job.queue for f, answer in pairs if f.job and answer is FireResult.WRITTEN}
    if stored:
        context.notify(Notification(queues=frozenset(stored)))


async def _fire_line(
    context: StoreContext, line: Sequence[Bundle]
) -> list[tuple[int, FireResult | FailedItem]]:
    """Return what became of each firing, by its index; what follows a failed one is not sent."""
    fire = partial(run_halved, do=partial(_fire, context), refused=lambda _, __: FireResult.REFUSED)
    fired = await run_concurrently(line, fire, is_alone=lambda _: True)
    return [
        (item.at, outcome)
        for bundle, told in zip(line, fired, strict=True)
        for item, outcome in zip(bundle, each_of(bundle, told), strict=True)
    ]


async def _fire(context: StoreContext, bundle: Sequence[NumberedFiring]) -> list[FireResult]:
    async def work(unit: UnitOfWork) -> list[FireResult]:
        await unit.fetch([key for item in bundle for key in _looked_at(item.firing)])
        onward: dict[str, TriggerState] = {}
        fired = [await _answer(unit, item, onward, context.now()) for item in bundle]
        for schedule_id, state in onward.items():  # once per schedule
            schedules.save_trigger_state(
                unit, await schedules.load_trigger_state(unit, schedule_id), state
            )
        return fired

    return await context.run_unit(work)


def _looked_at(firing: Firing) -> list[Key]:
    if not _is_sound(firing):
        return []
    own = [schedules.trigger_state_key(firing.schedule_id), key_layout.slot_key(firing.slot)]
    job = _made(firing)
    return own if job is None else [*own, *add.looked_at(job)]


def _is_sound(firing: Firing) -> bool:
    return is_name(firing.schedule_id) and is_name(firing.slot.series)


def _made(firing: Firing) -> NewJob | None:
    return None if firing.job is None else replace(firing.job, slot=firing.slot)


async def _answer(
    unit: UnitOfWork, item: NumberedFiring, onward: dict[str, TriggerState], now: datetime
) -> FireResult:
    """Write all but the trigger state, which goes to `onward`."""
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
        record = await add.put(unit, job, item.seq, now)
        if isinstance(record, Added):
            return await _not_stored(unit, firing, record)
        gone_on = replace(gone_on, last_triggered_at=firing.slot.at)
    slots.save(unit, _row(firing, now))
    onward[there.id] = gone_on
    return FireResult.WRITTEN


async def _not_stored(unit: UnitOfWork, firing: Firing, record: Added) -> FireResult:
    """Return why the job was not added.

    What conflicts may have come with a firing that moved the schedule on, so check that.
    """
    if record.refused is not None:
        return FireResult.REFUSED
    await unit.require_unchanged([schedules.trigger_state_key(firing.schedule_id)])
    return FireResult.BUSY


async def _schedule_state(
    unit: UnitOfWork, firing: Firing, onward: Mapping[str, TriggerState]
) -> TriggerState | None:
    """Return the trigger state if it is as the firing expects, else None."""
    if not _is_sound(firing):
        return None  # no schedule has such an id
    there = onward.get(firing.schedule_id)
    there = there or await schedules.load_trigger_state(unit, firing.schedule_id)
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
