"""Worlds and acts of schedules and slots, for the crash test."""

from dataclasses import replace
from datetime import timedelta

from outlast.core.delivery import Delivery
from outlast.core.event import Misfired
from outlast.core.ids import JobId
from outlast.core.job import Slot
from outlast.core.schedule import Firing, JobBlueprint, Plan, Schedule, SlotOutcome, TimeRule
from outlast.store.contract.schedules import SetSchedule
from outlast.testing.clock import START
from support.crash.world import SECOND, Scenario, World, deciding, nothing

HOUR = timedelta(hours=1)
PLAN = Plan(
    name="nightly",
    rule=TimeRule(every=HOUR),
    making=JobBlueprint(
        type="lease",
        name="lease",
        delivery=Delivery.LEASE,
        queue="default",
        priority=0,
        max_attempts=5,
    ),
    coalesce=True,
    misfire_grace=HOUR,
)


async def _write(w: World, name: str = "nightly") -> Schedule:
    value = SetSchedule(plan=replace(PLAN, name=name), next_slot=START, next_trigger_at=START)
    written = await w.store.set_schedule(w.new_id(), expected=None, value=value)
    assert written is not None
    return written


async def _two(w: World) -> list[Schedule]:
    return [await _write(w, "one"), await _write(w, "two")]


def _firing(w: World, schedule: Schedule, outcome: SlotOutcome = SlotOutcome.RAN) -> Firing:
    job = w.job(schedule_id=schedule.id, active_key="k") if outcome is SlotOutcome.RAN else None
    return Firing(
        schedule_id=schedule.id,
        version=schedule.version,
        slot=Slot(series=schedule.series, at=START),
        outcome=outcome,
        planned=START,
        job=job,
        next_slot=START + HOUR,
        next_trigger_at=START + HOUR,
    )


async def _create(w: World, _: None) -> None:
    await _write(w)


async def _edit(w: World, schedule: Schedule) -> None:
    value = SetSchedule(plan=replace(PLAN, name="other"), next_slot=START, next_trigger_at=START)
    await w.store.set_schedule(schedule.id, expected=schedule.version, value=value)


async def _remove(w: World, schedule: Schedule) -> None:
    await w.store.set_schedule(schedule.id, expected=schedule.version, value=None)


async def _fire(w: World, schedules: list[Schedule]) -> None:
    """The first with a job; the second finds its key taken, and is answered without one."""
    one, two = schedules
    await w.store.fire([_firing(w, one), _firing(w, two), _firing(w, two, SlotOutcome.OVERLAP)])


async def _fire_together(w: World, schedules: list[Schedule]) -> None:
    """Both with a job, and nothing in their way."""
    one, two = (_firing(w, each) for each in schedules)
    assert two.job is not None
    await w.store.fire([one, replace(two, job=replace(two.job, active_key=None))])


async def _taken(w: World) -> Schedule:
    schedule = await _write(w)
    await w.add(slot=Slot(series=schedule.series, at=START))
    return schedule


async def _pass_by(w: World, schedule: Schedule) -> None:
    await w.store.fire([_firing(w, schedule)])


async def _missed(w: World) -> Schedule:
    schedule = await _write(w)
    await w.store.fire([_firing(w, schedule, SlotOutcome.MISSED)])
    return schedule


async def _by_hand(w: World, schedule: Schedule) -> None:
    await w.add(slot=Slot(series=schedule.series, at=START), schedule_id=schedule.id)


async def _late(w: World) -> JobId:
    schedule = await _write(w)
    firing = _firing(w, schedule)
    assert firing.job is not None
    job = replace(firing.job, start_within=SECOND)
    await w.store.fire([replace(firing, job=job)])
    w.clock.advance(HOUR)
    return job.id


async def _read(w: World, schedule: Schedule) -> None:
    """No write that counts."""
    await w.store.now()
    await w.store.schedule(schedule.name)
    await w.store.schedules(limit=10)
    await w.store.due_schedules(limit=10)
    await w.store.slots(schedule.series, limit=10)
    await w.store.slot_rows(schedule.series, [START])
    await w.store.running_names(["lease"])
    await w.store.set_schedule(schedule.id, expected=0, value=None)


SCHEDULES: dict[str, Scenario] = {
    "schedule_create": Scenario(nothing, _create),
    "schedule_edit": Scenario(_write, _edit),
    "schedule_remove": Scenario(_write, _remove),
    "schedule_fire": Scenario(_two, _fire),
    "schedule_fire_together": Scenario(_two, _fire_together),
    "schedule_pass_by": Scenario(_taken, _pass_by),
    "schedule_read": Scenario(_missed, _read),
    "slot_by_hand": Scenario(_missed, _by_hand),
    "slot_misfires": deciding(_late, Misfired()),
}
"""Each verb of schedules and slots, in a world where it has something to do."""
