"""Schedules: rules of time with a job to make, and the slots they are answered by."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from outlast.core.delivery import Delivery
from outlast.core.duration import MICROSECOND, format_exact
from outlast.core.event import ZERO
from outlast.core.ids import JobId
from outlast.core.job import NewJob, Slot
from outlast.core.limits import MAX_PAYLOAD, check_name, is_storable, repr_short
from outlast.errors import InvalidSchedule

LATE: Final = timedelta(seconds=1)
"""A slot that is triggered more than this after its time counts as late."""

ADVISED_GRACE: Final = timedelta(seconds=300)
"""A `misfire_grace` to begin with for a frequent job; a heavy one may want more. No default."""

SHORTEST: Final = timedelta(seconds=1)
MOST_INSTANCES: Final = 100
MOST_DUE: Final = 10_000
"""So many slots are caught up with after an outage; of more, the latest."""

_UUID_LENGTH: Final = 36


class Gap(StrEnum):
    """What becomes of a local time that does not exist, because the clock goes forward."""

    SKIP = "skip"  # nothing: there is no such time that day
    RUN_AFTER = "run_after"  # it runs at once after the clock went forward


class Fold(StrEnum):
    """What becomes of a local time that comes twice, because the clock goes back."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class SlotOutcome(StrEnum):
    """What became of a slot."""

    RAN = "ran"  # its job was stored in time
    LATE = "late"  # its job was stored late, within the grace
    MANUAL = "manual"  # somebody had it run by hand, or by a backfill
    SKIPPED = "skipped"  # its job was stored, and nobody could start it in time
    MISSED = "missed"  # nobody was there to trigger it within the grace
    COALESCED = "coalesced"  # a later one ran for it
    OVERLAP = "overlap"  # an earlier one still ran


CLAIMED: Final = frozenset(
    {SlotOutcome.RAN, SlotOutcome.LATE, SlotOutcome.MANUAL, SlotOutcome.SKIPPED}
)
"""Taken for ever. The others have no job, and may be run by hand, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRule:
    """When: a cron expression in a time zone, or an interval counted from `start` or 1970."""

    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"
    gap: Gap = Gap.RUN_AFTER
    fold: Fold = Fold.FIRST
    start: datetime | None = None  # no slot before it
    end: datetime | None = None  # and none after it

    def __str__(self) -> str:
        if self.every is not None:
            return f"every {format_exact(self.every)}"
        return f"{self.cron} ({self.timezone})"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBlueprint:
    """What a schedule needs to know of a type to make a job of it where the type is not known."""

    type: str
    name: str
    delivery: Delivery
    queue: str
    priority: int
    max_attempts: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that somebody sets of a schedule.

    The job is made of a template as it then stands, or of `making`. `params` is the text of a JSON
    object, laid over the template's. `declared` is there if the code declares it: a digest of what
    it declared last.
    """

    name: str
    rule: TimeRule
    making: JobBlueprint
    template: str | None = None
    params: str = "{}"
    job_name: str | None = None  # None: the type's
    coalesce: bool
    misfire_grace: timedelta
    max_instances: int | None = None  # None: any number
    jitter: timedelta = ZERO
    enabled: bool = True
    declared: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as the store has it; its `version` rises with every edit, not with its triggers.

    `next_slot` is the occurrence that comes next, `next_trigger_at` when it is triggered (which
    jitter puts off); both None where none follows. `last_triggered_at` is the last slot that was
    given a job.
    """

    id: str
    plan: Plan
    version: int
    created_at: datetime
    updated_at: datetime
    next_slot: datetime | None
    next_trigger_at: datetime | None
    last_triggered_at: datetime | None

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def series(self) -> str:
        """What its slots are unique in: the job's name for `once`, else the schedule itself."""
        return series(self.id, self.plan.making)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """A slot as the store has it."""

    slot: Slot
    outcome: SlotOutcome
    planned: datetime  # when it was to be triggered
    actual: datetime  # when it was answered
    schedule_id: str | None
    job_id: JobId | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One slot's answer, and where its schedule stands from then on.

    Written only while the schedule has that version, is enabled, and that slot is its next.
    """

    schedule_id: str
    version: int
    slot: Slot
    outcome: SlotOutcome
    planned: datetime
    job: NewJob | None = None
    reason: str | None = None
    next_slot: datetime | None
    next_trigger_at: datetime | None


@dataclass(frozen=True, slots=True)
class SlotDecision:
    """What is to become of a due slot."""

    at: datetime
    planned: datetime
    outcome: SlotOutcome


def series(schedule_id: str, making: JobBlueprint) -> str:
    """`once` is claimed by name, so that two schedules of one job share its slots."""
    return making.name if making.delivery is Delivery.ONCE else schedule_id


def decide_slots(schedule: Schedule, due: Sequence[datetime], now: datetime) -> list[SlotDecision]:
    """What becomes of the slots that are due, in their order.

    Over the grace: missed. Within it, with `coalesce`, only the last one runs.
    """
    plan = schedule.plan
    return [
        SlotDecision(at, planned, _outcome(plan, now - planned, is_last=at == due[-1]))
        for at in due
        for planned in [planned_at(schedule.id, plan.jitter, at)]
    ]


def planned_at(schedule_id: str, jitter: timedelta, at: datetime) -> datetime:
    """When a slot is triggered. Every process puts one slot off by the same part of the jitter."""
    if not jitter:
        return at
    digest = hashlib.sha256(f"{schedule_id} {at.isoformat()}".encode()).digest()
    return at + (jitter // MICROSECOND * int.from_bytes(digest[:6], "big") >> 48) * MICROSECOND


def instance_keys(schedule: Schedule) -> list[str]:
    """The active keys of which each unfinished job of the schedule holds one."""
    most = schedule.plan.max_instances
    if most is None or schedule.plan.making.delivery is Delivery.ONCE:
        return []
    return [f"schedule:{schedule.id}:{number}" for number in range(1, most + 1)]


def check_plan(plan: Plan) -> Plan:
    """`plan`, if its settings are within bounds and go together; InvalidSchedule otherwise."""
    check_name(plan.name, what="the name of a schedule")
    if len(plan.name) == _UUID_LENGTH and plan.name.count("-") == 4:  # noqa: PLR2004 - as a UUID
        raise InvalidSchedule(f"the name of a schedule is {plan.name}; an id is no name")
    _check_instances(plan)
    _check_spans(plan)
    if len(plan.params.encode("utf-8", "replace")) > MAX_PAYLOAD or not is_storable(plan.params):
        raise _wrong(plan, f"its params are over {MAX_PAYLOAD // 1024} KiB, or cannot be stored")
    start, end = plan.rule.start, plan.rule.end
    if start is not None and end is not None and end < start:
        raise _wrong(plan, f"its end {end} is before its start {start}")
    return plan


def _outcome(plan: Plan, lateness: timedelta, *, is_last: bool) -> SlotOutcome:
    if lateness > plan.misfire_grace:
        return SlotOutcome.MISSED
    if plan.coalesce and not is_last:
        return SlotOutcome.COALESCED
    return SlotOutcome.LATE if lateness > LATE else SlotOutcome.RAN


def _check_instances(plan: Plan) -> None:
    most = plan.max_instances
    is_once = plan.making.delivery is Delivery.ONCE
    if is_once and most not in (None, 1):
        raise _wrong(
            plan, f'max_instances is {repr_short(most)}; "{plan.making.type}" is `once`: 1'
        )
    if most is None:
        return
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_INSTANCES:
        raise _wrong(
            plan, f"max_instances is {repr_short(most)}; use 1 to {MOST_INSTANCES}, or None"
        )


def _check_spans(plan: Plan) -> None:
    every = plan.rule.every
    if every is not None and every < SHORTEST:
        raise _wrong(
            plan, f"it comes every {format_exact(every)}; {format_exact(SHORTEST)} is the shortest"
        )
    if not isinstance(plan.coalesce, bool):
        raise _wrong(plan, f"coalesce is {repr_short(plan.coalesce)}; say True or False")
    if plan.misfire_grace < SHORTEST:
        grace = format_exact(plan.misfire_grace)
        raise _wrong(plan, f"misfire_grace is {grace}; {format_exact(SHORTEST)} is the shortest")


def _wrong(plan: Plan, why: str) -> InvalidSchedule:
    return InvalidSchedule(f"schedule {plan.name}: {why}")
