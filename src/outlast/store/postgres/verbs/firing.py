"""What becomes of slots that are fired, given where their schedules stand and who has them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from outlast.clock import to_micros
from outlast.core.schedule import Firing
from outlast.store.contract.schedules import FireResult
from outlast.store.postgres.operations.add_plan import (
    ExistingRows,
    InsertPlan,
    Name,
    answer,
    moment,
)


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """Where an enabled schedule stands; `triggered` is the last slot given a job here, if any."""

    version: int
    next_slot: int | None
    next_trigger_at: int | None = None
    triggered: int | None = None


@dataclass(slots=True)
class FirePlan:
    """Each firing's answer, and what is to be written for those that count."""

    stands: dict[str, ScheduleState]
    fired: list[FireResult] = field(default_factory=list)
    jobs: InsertPlan = field(default_factory=InsertPlan)
    answered: list[tuple[Any, ...]] = field(default_factory=list)
    moved: set[str] = field(default_factory=set)

    def place(self, firing: Firing, *, triggers: bool) -> None:
        """Its schedule goes on to the next slot."""
        before = self.stands[firing.schedule_id]
        self.stands[firing.schedule_id] = replace(
            before,
            next_slot=moment(firing.next_slot),
            next_trigger_at=moment(firing.next_trigger_at),
            triggered=to_micros(firing.slot.at) if triggers else before.triggered,
        )
        self.moved.add(firing.schedule_id)


def plan_firings(
    firings: Sequence[Firing], stands: dict[str, ScheduleState], facts: ExistingRows, now: int
) -> FirePlan:
    """One after the other, as if each saw what those before it wrote."""
    made = FirePlan(dict(stands))
    for firing in firings:
        made.fired.append(_judge(firing, made, facts, now))
    # Their rows are written as they were answered, not as if somebody took them by hand.
    made.jobs.taken = [pair for pair in made.jobs.taken if pair[0][0] != "slot"]
    return made


def _judge(firing: Firing, made: FirePlan, facts: ExistingRows, now: int) -> FireResult:
    stand = made.stands.get(firing.schedule_id)
    at = to_micros(firing.slot.at)
    if stand is None or (stand.version, stand.next_slot) != (firing.version, at):
        return FireResult.STALE
    slot: Name = ("slot", firing.slot.series, str(at))
    if slot in facts.holders or slot in facts.answered:
        made.place(firing, triggers=False)
        return FireResult.TAKEN
    if firing.job is not None:
        added = answer(replace(firing.job, slot=firing.slot), facts, now, made.jobs)
        if not added.created:
            return FireResult.BUSY if added.refused is None else FireResult.REFUSED
    facts.answered.add(slot)
    made.answered.append(_row(firing, at))
    made.place(firing, triggers=firing.job is not None)
    return FireResult.WRITTEN


def _row(firing: Firing, at: int) -> tuple[Any, ...]:
    job = None if firing.job is None else firing.job.id
    what = (firing.slot.series, at, str(firing.outcome), to_micros(firing.planned))
    return *what, firing.schedule_id, job, firing.reason
