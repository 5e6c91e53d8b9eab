"""Cost of a trigger on etcd and DynamoDB, and of a query for due schedules."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from bench.metered import Spent
from outlast.core.delivery import Delivery
from outlast.core.job import Slot
from outlast.core.schedule import Firing, JobBlueprint, Plan, Schedule, SlotOutcome, TimeRule
from outlast.store.contract.schedules import FireResult, SetSchedule

if TYPE_CHECKING:
    from bench.keyvalue import Bench

EVERY: Final = timedelta(hours=1)
SCHEDULE_ID: Final = "00000000-0000-7000-8000-00000000beef"


async def slots(bench: "Bench") -> list[tuple[str, Spent]]:
    """Measure a trigger with its job, a query without due schedules, and a missed slot."""
    store = bench.store
    await _save(bench, await store.now())

    async def trigger() -> None:
        [standing] = await store.schedules(limit=1)
        assert await store.fire([_firing(bench, standing, SlotOutcome.RAN)]) == [FireResult.WRITTEN]

    triggered = await bench.cost(trigger)
    read = await bench.cost(lambda: store.schedules(limit=1))
    look = await bench.cost(lambda: store.due_schedules(limit=1000))
    missed = []
    [schedule] = await store.schedules(limit=1)
    for _ in range(20):
        missed.append(_firing(bench, schedule, SlotOutcome.MISSED))
        schedule = replace(schedule, next_slot=missed[-1].next_slot)
    caught_up = (await bench.cost(lambda: store.fire(missed), 1)).over(len(missed))
    return [
        ("trigger", triggered.plus(read.times(-1))),
        ("missed slot", caught_up),
        ("query for due schedules", look),
    ]


async def _save(bench: "Bench", at: datetime) -> None:
    making = JobBlueprint(
        type="bench",
        name="bench",
        delivery=Delivery.LEASE,
        queue="default",
        priority=0,
        max_attempts=5,
    )
    plan = Plan(
        name="bench", rule=TimeRule(every=EVERY), making=making, coalesce=True, misfire_grace=EVERY
    )
    value = SetSchedule(plan=plan, next_slot=at, next_trigger_at=at)
    assert await bench.store.set_schedule(SCHEDULE_ID, expected=None, value=value)


def _firing(bench: "Bench", schedule: Schedule, outcome: SlotOutcome) -> Firing:
    assert schedule.next_slot is not None
    following = schedule.next_slot + EVERY
    return Firing(
        schedule_id=schedule.id,
        version=schedule.version,
        slot=Slot(series=schedule.series, at=schedule.next_slot),
        outcome=outcome,
        planned=schedule.next_slot,
        job=bench.job() if outcome is SlotOutcome.RAN else None,
        next_slot=following,
        next_trigger_at=following,
    )
