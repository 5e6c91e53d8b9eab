"""Schedules: a time rule with a job to create, and the outcomes of its slots."""

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
from outlast.core.limits import MAX_PAYLOAD, check_name, is_storable, is_text, repr_short
from outlast.errors import InvalidSchedule

LATE: Final = timedelta(seconds=1)
"""A slot triggered more than this after its time counts as late."""

ADVISED_GRACE: Final = timedelta(seconds=300)
"""Suggested `misfire_grace` for a frequent job; a heavy one may need more. Not a default."""

SHORTEST: Final = timedelta(seconds=1)
"""Shortest interval and shortest `misfire_grace`."""

MOST_INSTANCES: Final = 100
"""Largest `max_instances`."""

MAX_LABEL: Final = 512
"""Longest label of a schedule, in bytes of UTF-8."""

MOST_DUE: Final = 10_000
"""Missed slots that are processed after an outage; if there are more, the latest ones."""

_UUID_LENGTH: Final = 36


UNDECLARED: Final = "undeclared"
"""Reason of a schedule that was disabled because no live worker declares it any more."""


class Gap(StrEnum):
    """What happens at a local time that does not exist because the clock goes forward."""

    SKIP = "skip"  # no slot that day
    RUN_AFTER = "run_after"  # a slot directly after the change


class Fold(StrEnum):
    """Which slots a local time has that occurs twice because the clock goes back."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class SlotOutcome(StrEnum):
    """Outcome of a slot."""

    RAN = "ran"  # its job was added in time
    LATE = "late"  # its job was added late, within the grace
    MANUAL = "manual"  # run by hand or by a backfill
    SKIPPED = "skipped"  # its job was added, and no worker started it in time
    MISSED = "missed"  # not triggered within the grace
    COALESCED = "coalesced"  # replaced by a later slot
    OVERLAP = "overlap"  # the jobs of earlier slots were still running


CLAIMED: Final = frozenset(
    {SlotOutcome.RAN, SlotOutcome.LATE, SlotOutcome.MANUAL, SlotOutcome.SKIPPED}
)
"""Outcomes that claim a slot for ever. Slots with another outcome can be run by hand, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRule:
    """When slots occur: a cron expression in a time zone, or an interval from `start` or 1970."""

    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"
    gap: Gap = Gap.RUN_AFTER
    fold: Fold = Fold.FIRST
    start: datetime | None = None  # first possible slot
    end: datetime | None = None  # last possible slot

    def __str__(self) -> str:
        if self.every is not None:
            return f"every {format_exact(self.every)}"
        return f"{self.cron} ({self.timezone})"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBlueprint:
    """The values of a job type that a schedule needs where the type is not registered."""

    type: str
    name: str
    delivery: Delivery
    queue: str
    priority: int
    max_attempts: int | None
    metadata: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All settings of a schedule.

    The job is created from `template` as it is at that time, or from `making`. `params` is the
    text of a JSON object, laid over the template's. `label` is free text for people. `declared` is
    a digest of the declaration if the schedule is declared in code, and `declared_by` the name of
    the app that declares it; None if an operator saved or kept it. `disabled_reason` is None if an
    operator disabled it.
    """

    name: str
    rule: TimeRule
    making: JobBlueprint
    template: str | None = None
    params: str = "{}"
    job_name: str | None = None  # None: the name of the type
    label: str | None = None
    coalesce: bool
    misfire_grace: timedelta
    max_instances: int | None = None  # None: unlimited
    jitter: timedelta = ZERO
    enabled: bool = True
    declared: str | None = None
    declared_by: str | None = None
    disabled_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as stored; `version` rises with every edit, not with its slots.

    `next_slot` is the next occurrence, `next_trigger_at` when it is triggered, which jitter may
    delay. Both are None if none follows. `last_triggered_at` is the last slot with a job.
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
        """Name of the schedule."""
        return self.plan.name

    @property
    def series(self) -> str:
        """Series of its slots: the job's name for `once`, else the schedule's id."""
        return series(self.id, self.plan.making)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """A slot as stored."""

    slot: Slot
    outcome: SlotOutcome
    planned: datetime  # planned trigger time
    actual: datetime  # when its outcome was written
    schedule_id: str | None
    job_id: JobId | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """The outcome of one slot, and the next slot of its schedule.

    A store writes it only while the schedule has that version, is enabled, and that slot is its
    next one.
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
    """The outcome decided for a due slot."""

    at: datetime
    planned: datetime
    outcome: SlotOutcome


def series(schedule_id: str, making: JobBlueprint) -> str:
    """Return the series of a schedule's slots.

    With delivery `once` it is the job's name, so that two schedules of one job share its slots.
    """
    return making.name if making.delivery is Delivery.ONCE else schedule_id


def decide_slots(schedule: Schedule, due: Sequence[datetime], now: datetime) -> list[SlotDecision]:
    """Return the outcomes of the due slots, in order.

    A slot past the grace is missed. Within it, `coalesce` runs only the last slot.
    """
    plan = schedule.plan
    return [
        SlotDecision(at, planned, _outcome(plan, now - planned, is_last=at == due[-1]))
        for at in due
        for planned in [planned_at(schedule.id, plan.jitter, at)]
    ]


def planned_at(schedule_id: str, jitter: timedelta, at: datetime) -> datetime:
    """Return when a slot is triggered; the jitter of a slot is the same in every process."""
    if not jitter:
        return at
    digest = hashlib.sha256(f"{schedule_id} {at.isoformat()}".encode()).digest()
    return at + (jitter // MICROSECOND * int.from_bytes(digest[:6], "big") >> 48) * MICROSECOND


def instance_keys(schedule: Schedule) -> list[str]:
    """Return the active keys of the schedule; each of its unfinished jobs holds one."""
    most = schedule.plan.max_instances
    if most is None or schedule.plan.making.delivery is Delivery.ONCE:
        return []
    return [f"schedule:{schedule.id}:{number}" for number in range(1, most + 1)]


def check_plan(plan: Plan) -> Plan:
    """Return the plan if its settings are valid together; InvalidSchedule otherwise."""
    check_name(plan.name, what="the name of a schedule")
    if len(plan.name) == _UUID_LENGTH and plan.name.count("-") == 4:  # noqa: PLR2004 - as a UUID
        raise InvalidSchedule(
            f"the name of a schedule is {plan.name}; use a name that is not an id"
        )
    _check_instances(plan)
    _check_spans(plan)
    if not is_text(plan.label, MAX_LABEL):
        raise _wrong(plan, f"its label is over {MAX_LABEL} bytes, or cannot be stored")
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
            plan, f'max_instances is {repr_short(most)}; "{plan.making.type}" is `once`, use 1'
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
            plan, f"it runs every {format_exact(every)}; {format_exact(SHORTEST)} is the shortest"
        )
    if not isinstance(plan.coalesce, bool):
        raise _wrong(plan, f"coalesce is {repr_short(plan.coalesce)}; use True or False")
    if plan.misfire_grace < SHORTEST:
        grace = format_exact(plan.misfire_grace)
        raise _wrong(plan, f"misfire_grace is {grace}; {format_exact(SHORTEST)} is the shortest")


def _wrong(plan: Plan, why: str) -> InvalidSchedule:
    return InvalidSchedule(f"schedule {plan.name}: {why}")
