"""Manual runs and backfills of slots, through the same slot claim as the trigger."""

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
from outlast.scheduler.cron import is_slot, next_slot, previous_slot, slots
from outlast.scheduler.slot_job_factory import SlotJobFactories, SlotJobFactory
from outlast.store.contract import Store

SlotChoice = Literal["next", "missed"]

MAX_BACKFILL_SLOTS: Final = 1000
"""Slots in one backfill at most."""

MISSED_SCAN_LIMIT: Final = 1000
"""Past slots among which the latest missed one is searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillLine:
    """One slot of a backfill: its previous outcome and its job, if it has one."""

    at: datetime
    was: SlotOutcome | None  # None: no record of the slot exists
    job_id: JobId | None
    runs: bool


async def run(
    store: Store,
    schedule: Schedule,
    slot: datetime | SlotChoice,
    new_id: Callable[[], JobId],
    *,
    any_time: bool = False,
) -> JobId:
    """Claim a slot and add its job, due now; return the job id.

    With `any_time`, a time that is no occurrence of the schedule is a slot too.

    Raises SlotTaken if the slot was claimed before, the job is running, or `max_instances` jobs
    have not ended.
    """
    at = await _choose_slot(store, schedule, slot, any_time=any_time)
    factory = await SlotJobFactories(store).factory_for(schedule)
    name = factory.blueprint.name
    if factory.blueprint.delivery is Delivery.ONCE and await store.running_names([name]):
        raise SlotTaken(
            f"{name} is running; slot {at} was not claimed, so try again when it has ended"
        )
    keys: list[str | None] = [*instance_keys(schedule)] or [None]
    for key in keys:
        job = factory.job(
            new_id(), at, start_within=await _start_within(store, schedule, at), key=key
        )
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
        f"max_instances; slot {at} was not claimed, so run it again when one has ended"
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
    """Add a job, due now, for every unclaimed slot from `since` to `until`.

    These jobs do not count towards `max_instances`; the concurrency of their queue limits them.
    Returns one line per slot. With `dry_run` nothing is written.
    """
    moments = await _range(store, schedule, since, until)
    rows = await store.slot_rows(schedule.series, moments)
    lines = [_line(at, row) for at, row in zip(moments, rows, strict=True)]
    if dry_run:
        return lines
    factory = await SlotJobFactories(store).factory_for(schedule)
    return [await _fill(store, factory, line, new_id) for line in lines]


async def _fill(
    store: Store, factory: SlotJobFactory, line: BackfillLine, new_id: Callable[[], JobId]
) -> BackfillLine:
    if not line.runs:
        return line
    job = factory.job(new_id(), line.at, start_within=None)
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
        raise InvalidSchedule(f"until is {last}, which is yet to come; give a time in the past")
    before = first - timedelta(microseconds=1)
    found = list(slots(schedule.plan.rule, before, until=last, limit=MAX_BACKFILL_SLOTS + 1))
    if len(found) > MAX_BACKFILL_SLOTS:
        raise InvalidSchedule(
            f"schedule {schedule.name} has more than {MAX_BACKFILL_SLOTS:,} slots in that time; "
            "backfill it in parts"
        )
    return found


async def _choose_slot(
    store: Store, schedule: Schedule, slot: datetime | SlotChoice, *, any_time: bool
) -> datetime:
    if slot == "next":
        if schedule.next_slot is None:
            raise SlotTaken(f"schedule {schedule.name} has no slot left; give an explicit time")
        return schedule.next_slot
    if slot == "missed":
        return await _latest_missed(store, schedule)
    at = _moment(slot, "slot")
    if not any_time and not is_slot(schedule.plan.rule, at):
        await _require_stored(store, schedule, at)
    return at


async def _require_stored(store: Store, schedule: Schedule, at: datetime) -> None:
    """Raise InvalidSchedule unless the schedule had that slot under an earlier rule."""
    [row] = await store.slot_rows(schedule.series, [at])
    if row is not None and row.schedule_id == schedule.id:
        return
    rule = schedule.plan.rule
    near = [found for found in (previous_slot(rule, at), next_slot(rule, at)) if found is not None]
    hint = "it has none near that time"
    if near:
        hint = (
            f"the nearest are {' and '.join(map(_utc, near))}: `outlast schedule run "
            f"{schedule.name} --slot {_utc(near[0])}`"
        )
    raise InvalidSchedule(f"schedule {schedule.name} ({rule}) has no slot at {_utc(at)}; {hint}")


async def _latest_missed(store: Store, schedule: Schedule) -> datetime:
    for row in await store.slots(schedule.series, limit=MISSED_SCAN_LIMIT):
        if row.outcome not in CLAIMED:
            return row.slot.at
    raise SlotTaken(
        f"schedule {schedule.name} has no slot that was missed lately; give an explicit time"
    )


async def _start_within(store: Store, schedule: Schedule, at: datetime) -> timedelta:
    """Return the start deadline, counted from the slot; for a past slot the grace starts now."""
    return max(ZERO, await store.now() - at) + schedule.plan.misfire_grace


def _utc(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _moment(value: object, what: str) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidSchedule(
            f"{what} is {repr_short(value)}; give a datetime with a time zone"
            + (', "next" or "missed"' if what == "slot" else "")
        )
    return value.astimezone(UTC)
