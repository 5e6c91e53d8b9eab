"""From what a caller says of a schedule to a plan that is all right."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, TypedDict

from outlast.core.document import Document
from outlast.core.duration import Duration, parse_duration
from outlast.core.limits import check_name, repr_short
from outlast.core.schedule import JobBlueprint, Plan, Schedule, TimeRule, check_plan, planned_at
from outlast.core.schedule_codec import to_text
from outlast.core.template import blueprint_of, from_record
from outlast.errors import InvalidArgument, InvalidSchedule
from outlast.jobs.jobtype import JobType
from outlast.jobs.registry import Registry
from outlast.jobs.templates import blueprint_for
from outlast.scheduler.cron import make_rule, next_slot
from outlast.store.contract.schedules import SetSchedule

Target = JobType[..., Any] | str


class Options(TypedDict, total=False):
    """What may be said of a schedule besides what must be."""

    every: Duration | None
    timezone: str
    gap: str | None
    fold: str | None
    start: datetime | None
    end: datetime | None
    template: str | None
    params: Mapping[str, Any] | None
    job_name: str | None
    max_instances: int | None
    jitter: Duration | None
    enabled: bool


class Edits(Options, total=False):
    """What may be changed of a schedule; what is left out stays as it is."""

    cron: str | None
    job_type: Target | None
    coalesce: bool
    misfire_grace: Duration
    new_name: str


class When(TypedDict, total=False):
    """When a schedule's slots are."""

    cron: str | None
    every: Duration | None
    timezone: str
    gap: str | None
    fold: str | None
    start: datetime | None
    end: datetime | None


RULE = frozenset({"cron", "every", "timezone", "gap", "fold", "start", "end"})


def rule_of(wishes: Mapping[str, Any], old: TimeRule | None = None) -> TimeRule:
    """The rule that is wished for; of an old one, what is not said otherwise."""
    said = {name: value for name, value in wishes.items() if name in RULE}
    if old is None:
        return make_rule(**said)
    kept: dict[str, Any] = {"timezone": old.timezone, "start": old.start, "end": old.end}
    if "cron" not in said and "every" not in said:
        kept |= {"cron": old.cron, "every": old.every, "gap": old.gap, "fold": old.fold}
    return make_rule(**{**kept, **said})


def new_plan(name: str, wishes: Mapping[str, Any], target: "JobSource") -> Plan:
    """A plan of its own; `coalesce` and `misfire_grace` have no default."""
    return check_plan(
        Plan(
            name=name,
            rule=rule_of(wishes),
            making=target.making,
            template=target.template,
            params=target.params,
            job_name=wishes.get("job_name"),
            coalesce=wishes["coalesce"],
            misfire_grace=_span(wishes["misfire_grace"], "misfire_grace", name),
            max_instances=wishes.get("max_instances"),
            jitter=_span(wishes.get("jitter") or timedelta(0), "jitter", name),
            enabled=wishes.get("enabled", True),
        )
    )


def edited_plan(old: Plan, wishes: Mapping[str, Any], target: "JobSource") -> Plan:
    """The plan with what is wished otherwise."""
    name = wishes.get("new_name", old.name)
    said: dict[str, Any] = {
        key: wishes[key]
        for key in ("coalesce", "max_instances", "enabled", "job_name")
        if key in wishes
    }
    for key in ("misfire_grace", "jitter"):
        if key in wishes:
            said[key] = _span(wishes[key] or timedelta(0), key, name)
    return check_plan(
        replace(
            old,
            name=name,
            rule=rule_of(wishes, old.rule),
            making=target.making,
            template=target.template,
            params=target.params,
            **said,
        )
    )


class JobSource:
    """What a schedule's jobs are made of: a type or a template, and params of its own."""

    def __init__(self, making: JobBlueprint, template: str | None, params: str) -> None:
        self.making = making
        self.template = template
        self.params = params

    def named(self, name: str | None) -> "JobSource":
        """The same under a name of the schedule's own."""
        if name is None:
            return self
        check_name(name, what="job_name")
        return JobSource(replace(self.making, name=name), self.template, self.params)


def of_type(registry: Registry, target: Target, params: Mapping[str, Any] | None) -> JobSource:
    """Jobs of a type this app knows, with all of its params; InvalidParams if they do not fit."""
    kind = registry.get(target) if isinstance(target, str) else target
    if not isinstance(kind, JobType):
        raise InvalidArgument(f"{kind!r:.80} is no job type of this app; give one, or its name")
    return JobSource(blueprint_for(kind), None, kind.encode_params((), dict(params or {})))


def source_from_type(
    registry: Registry, record: Document, params: Mapping[str, Any] | None
) -> JobSource:
    """Jobs of a template; its params and these must together be complete."""
    template, made_of = from_record(record), blueprint_of(record)
    kind = registry.get(template.type)
    text = kind.codec.partial().dump(dict(params or {}))
    kind.codec.load(json.dumps({**json.loads(template.params), **json.loads(text)}))
    return JobSource(made_of or blueprint_for(kind), template.name, text)


def with_next_slot(
    plan: Plan, schedule_id: str, now: datetime, old: Schedule | None = None
) -> SetSchedule:
    """The plan with the slot that comes next by it.

    That is the first after now, unless the rule stays: then slots that are due stay due.
    """
    stays = old is not None and old.plan.rule == plan.rule and old.plan.enabled
    following = old.next_slot if old is not None and stays else next_slot(plan.rule, now)
    at = None if following is None else planned_at(schedule_id, plan.jitter, following)
    return SetSchedule(plan=plan, next_slot=following, next_trigger_at=at)


def digest(plan: Plan) -> str:
    """Tells one declaration from the next."""
    return sha256(f"{plan.name} {to_text(replace(plan, declared=None))}".encode()).hexdigest()[:32]


def _span(value: Duration, what: str, name: str) -> timedelta:
    try:
        return parse_duration(value, what=what)
    except ValueError as error:
        raise InvalidSchedule(f"schedule {repr_short(name)}: {error}") from error
