"""Running slots by hand: through the same claim as every other, never past it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from outlast.core.delivery import Delivery
from outlast.core.event import ZERO
from outlast.core.ids import JobId
from outlast.core.limits import repr_short
from outlast.core.schedule import CLAIMED, Schedule, SlotOutcome, SlotRecord, instance_keys
from outlast.errors import InvalidSchedule, SlotTaken
from outlast.scheduler.cron import slots
from outlast.scheduler.slot_job_factory import SlotJobFactories, SlotJobFactory
from outlast.store.contract import Store

SlotChoice = Literal["next", "missed"]

MAX_BACKFILL_SLOTS: Final = 1000
"""So many slots one backfill takes at most."""

MISSED_SCAN_LIMIT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillLine:
    """One slot of a backfill: what it was, and the job that runs it now, if one does."""

    at: datetime
    was: SlotOutcome | None  # None: it has no row
    job_id: JobId | None
    runs: bool


async def run(
    store: Store, schedule: Schedule, slot: datetime | SlotChoice, new_id: Callable[[], JobId]
) -> JobId:
    """Claim that slot and store its job, due at once; SlotTaken if that cannot be."""
    at = await _which(store, schedule, slot)
    mould = await SlotJobFactories(store).factory_for(schedule)
    name = mould.blueprint.name
    if mould.blueprint.delivery is Delivery.ONCE and await store.running_names([name]):
        raise SlotTaken(f"{name} is running; {at} was not claimed, so try again when it has ended")
    keys: list[str | None] = [*instance_keys(schedule)] or [None]
    for key in keys:
        job = mould.job(new_id(), at, start_within=await _within(store, schedule, at), key=key)
        [added] = await store.add([replace(job, delay=ZERO)])
        if added.refused is not None:
            raise InvalidSchedule(f"schedule {schedule.name}: {added.refused}")
        if added.created:
            return added.id
        [row] = await store.slot_rows(schedule.series, [at])
        if row is not None and row.outcome in CLAIMED:
            raise SlotTaken(
                f"slot {at} of {schedule.name} is {row.outcome}, by job {row.job_id}; a slot runs "
                "once, so take another"
            )
    raise SlotTaken(
        f"{schedule.plan.max_instances} jobs of {schedule.name} have not ended, which is its "
        f"max_instances; {at} was not claimed"
    )


async def backfill(
    store: Store,
    schedule: Schedule,
    since: datetime,
    until: datetime,
    *,
    new_id: Callable[[], JobId],
    dry_run: bool,
) -> list[BackfillLine]:
    """Every slot from `since` to `until` that nobody has claimed, as a job due at once.

    They hold no instance of `max_instances`: how many of them run at a time is their queue's.
    """
    moments = await _range(store, schedule, since, until)
    rows = await store.slot_rows(schedule.series, moments)
    shown_ = [_line(at, row) for at, row in zip(moments, rows, strict=True)]
    if dry_run:
        return shown_
    mould = await SlotJobFactories(store).factory_for(schedule)
    return [await _fill(store, mould, line, new_id) for line in shown_]


async def _fill(
    store: Store, mould: SlotJobFactory, line: BackfillLine, new_id: Callable[[], JobId]
) -> BackfillLine:
    if not line.runs:
        return line
    job = mould.job(new_id(), line.at, start_within=None)
    [added] = await store.add([replace(job, delay=ZERO)])
    return replace(line, job_id=added.id, runs=added.created)


def _line(at: datetime, row: SlotRecord | None) -> BackfillLine:
    if row is None:
        return BackfillLine(at=at, was=None, job_id=None, runs=True)
    return BackfillLine(at=at, was=row.outcome, job_id=row.job_id, runs=row.outcome not in CLAIMED)


async def _range(
    store: Store, schedule: Schedule, since: datetime, until: datetime
) -> Sequence[datetime]:
    first, last = _moment(since, "since"), _moment(until, "until")
    if last < first:
        raise InvalidSchedule(f"since is {first} and until {last}, which is earlier; swap them")
    now = await store.now()
    if last > now:
        raise InvalidSchedule(f"until is {last}, which is yet to come; a backfill is of the past")
    before = first - timedelta(microseconds=1)
    found = list(slots(schedule.plan.rule, before, until=last, limit=MAX_BACKFILL_SLOTS + 1))
    if len(found) > MAX_BACKFILL_SLOTS:
        raise InvalidSchedule(
            f"that time has more than {MAX_BACKFILL_SLOTS:,} slots of {schedule.name}; backfill it in parts"
        )
    return found


async def _which(store: Store, schedule: Schedule, slot: datetime | SlotChoice) -> datetime:
    if slot == "next":
        if schedule.next_slot is None:
            raise SlotTaken(f"schedule {schedule.name} has no slot left; give an explicit time")
        return schedule.next_slot
    if slot == "missed":
        return await _latest_missed(store, schedule)
    return _moment(slot, "slot")


async def _latest_missed(store: Store, schedule: Schedule) -> datetime:
    for row in await store.slots(schedule.series, limit=MISSED_SCAN_LIMIT):
        if row.outcome not in CLAIMED:
            return row.slot.at
    raise SlotTaken(f"no slot of {schedule.name} was missed lately; give an explicit time")


async def _within(store: Store, schedule: Schedule, at: datetime) -> timedelta:
    """Counted from the slot: the grace begins now for one that is past."""
    return max(ZERO, await store.now() - at) + schedule.plan.misfire_grace


def _moment(value: object, what: str) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidSchedule(
            f"{what} is {repr_short(value)}; give a datetime with a time zone"
            + (', "next" or "missed"' if what == "slot" else "")
        )
    return value.astimezone(UTC)
