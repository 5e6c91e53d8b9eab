"""Builds a validated schedule plan from a caller's options."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, TypedDict

from outlast.core.document import Document
from outlast.core.duration import Duration, parse_duration
from outlast.core.envelope import escape, merge_plain, plain
from outlast.core.limits import check_name, repr_short
from outlast.core.schedule import (
    UNDECLARED,
    JobBlueprint,
    Plan,
    Schedule,
    TimeRule,
    check_plan,
    planned_at,
)
from outlast.core.schedule_codec import to_text
from outlast.core.template import blueprint_of, from_record
from outlast.errors import InvalidArgument, InvalidSchedule
from outlast.jobs.jobtype import Bound, JobType, definition_of
from outlast.jobs.options import new_job
from outlast.jobs.registry import Registry
from outlast.jobs.templates import blueprint_for
from outlast.scheduler.cron import make_rule, next_slot
from outlast.store.contract.schedules import SetSchedule

Target = JobType[..., Any] | Bound[Any] | str


class ScheduleOptions(TypedDict, total=False):
    """The optional settings of a schedule."""

    every: Duration | None
    timezone: str
    gap: str | None
    fold: str | None
    start: datetime | None
    end: datetime | None
    template: str | None
    params: Mapping[str, Any] | None
    job_name: str | None
    label: str | None
    max_instances: int | None
    jitter: Duration | None
    enabled: bool


class ScheduleEdits(ScheduleOptions, total=False):
    """The settings of a schedule that an edit may change; missing keys stay as they are."""

    cron: str | None
    job_type: Target | None
    coalesce: bool
    misfire_grace: Duration
    new_name: str


class IntervalOptions(TypedDict, total=False):
    """The settings that make up a time rule, without its cron expression."""

    every: Duration | None
    timezone: str
    gap: str | None
    fold: str | None
    start: datetime | None
    end: datetime | None


class RuleOptions(IntervalOptions, total=False):
    """The settings that make up a time rule."""

    cron: str | None


RULE_FIELDS = frozenset({"cron", "every", "timezone", "gap", "fold", "start", "end"})


def rule_of(options: Mapping[str, Any], old: TimeRule | None = None) -> TimeRule:
    """Return the rule of these options; missing ones come from the old rule, if there is one."""
    given = {name: value for name, value in options.items() if name in RULE_FIELDS}
    if old is None:
        return make_rule(**given)
    kept: dict[str, Any] = {"timezone": old.timezone, "start": old.start, "end": old.end}
    if "cron" not in given and "every" not in given:
        kept |= {"cron": old.cron, "every": old.every, "gap": old.gap, "fold": old.fold}
    return make_rule(**{**kept, **given})


def new_plan(name: str, options: Mapping[str, Any], source: "JobSource") -> Plan:
    """Return a new plan; `coalesce` and `misfire_grace` have no default."""
    return check_plan(
        Plan(
            name=name,
            rule=rule_of(options),
            making=source.blueprint,
            template=source.template,
            params=source.params,
            job_name=options.get("job_name"),
            label=options.get("label"),
            coalesce=options["coalesce"],
            misfire_grace=_duration(options["misfire_grace"], "misfire_grace", name),
            max_instances=options.get("max_instances"),
            jitter=_duration(options.get("jitter") or timedelta(0), "jitter", name),
            enabled=options.get("enabled", True),
        )
    )


def edited_plan(old: Plan, options: Mapping[str, Any], source: "JobSource") -> Plan:
    """Return the plan with these options changed."""
    name = options.get("new_name", old.name)
    changed: dict[str, Any] = {
        key: options[key]
        for key in ("coalesce", "max_instances", "enabled", "job_name", "label")
        if key in options
    }
    for key in ("misfire_grace", "jitter"):
        if key in options:
            changed[key] = _duration(options[key] or timedelta(0), key, name)
    return check_plan(
        replace(
            _kept_by_operator(old, options),
            name=name,
            rule=rule_of(options, old.rule),
            making=source.blueprint,
            template=source.template,
            params=source.params,
            **changed,
        )
    )


def _kept_by_operator(old: Plan, options: Mapping[str, Any]) -> Plan:
    """Return the plan without the marks of its declaration that an operator overrules.

    A schedule that an operator enables though it is undeclared, or renames, stays as it is.
    """
    is_enabled = options.get("enabled", False) and old.disabled_reason == UNDECLARED
    if is_enabled or options.get("new_name", old.name) != old.name:
        old = replace(old, declared_by=None)
    return replace(old, disabled_reason=None) if "enabled" in options else old


class JobSource:
    """Where the jobs of a schedule come from: a type or a template, and the schedule's params."""

    def __init__(self, blueprint: JobBlueprint, template: str | None, params: str) -> None:
        self.blueprint = blueprint
        self.template = template
        self.params = params

    def with_name(self, name: str | None) -> "JobSource":
        """Return the source with a job name of the schedule; unchanged if the name is None."""
        if name is None:
            return self
        check_name(name, what="job_name")
        return JobSource(replace(self.blueprint, name=name), self.template, self.params)


def source_from_type(
    registry: Registry, target: Target, params: Mapping[str, Any] | None
) -> JobSource:
    """Return a source of jobs of a registered type.

    Raises InvalidParams if the params are incomplete or invalid.
    """
    if isinstance(target, Bound):
        return _source_from_bound(registry, target, params)
    kind = registry.get(target) if isinstance(target, str) else target
    if not isinstance(kind, JobType):
        raise InvalidArgument(
            f"{kind!r:.80} is no job type of this app; give a job type or its name"
        )
    return JobSource(blueprint_for(kind), None, kind.codec.dump(dict(params or {})))


def _source_from_bound(
    registry: Registry, bound: Bound[Any], params: Mapping[str, Any] | None
) -> JobSource:
    """Return a source of jobs with these params and with its queue, priority and attempts."""
    plan, payload = definition_of(bound)
    like = plan.like
    if params is not None:
        raise InvalidSchedule(
            f"params were given twice for {plan.type_name}, bound and as params=; give them once"
        )
    kept: dict[str, Any] = {
        "queue": like.queue,
        "priority": like.priority,
        "max_attempts": like.max_attempts,
        "metadata": like.metadata,
    }
    kind = registry.get(plan.type_name)
    if replace(new_job(kind.policy), **kept) != like or plan.tx is not None:
        raise InvalidSchedule(
            f"a schedule of {plan.type_name} can have the options queue, priority, max_attempts, "
            "tags, headers and meta alone; leave the others out, for its slots decide when a job "
            "is due"
        )
    return JobSource(replace(blueprint_for(kind), **kept), None, payload)


def source_from_template(
    registry: Registry, record: Document, params: Mapping[str, Any] | None
) -> JobSource:
    """Return a source of jobs of a template, whose params these complete or override."""
    template, made_of = from_record(record), blueprint_of(record)
    kind = registry.get(template.type)
    text = kind.codec.partial().dump(dict(params or {}))
    whole = merge_plain([kind.plain_params(template.params), plain(text, "params")])
    kind.codec.load(escape(whole))
    return JobSource(made_of or blueprint_for(kind), template.name, text)


def with_next_slot(
    plan: Plan, schedule_id: str, now: datetime, old: Schedule | None = None
) -> SetSchedule:
    """Return the plan with its next slot.

    That is the first slot after now. If the rule of an enabled schedule does not change, its next
    slot stays, so that due slots stay due.
    """
    is_unchanged = old is not None and old.plan.rule == plan.rule and old.plan.enabled
    following = old.next_slot if old is not None and is_unchanged else next_slot(plan.rule, now)
    at = None if following is None else planned_at(schedule_id, plan.jitter, following)
    return SetSchedule(plan=plan, next_slot=following, next_trigger_at=at)


def digest(plan: Plan) -> str:
    """Return a digest by which a changed declaration is recognised."""
    return sha256(f"{plan.name} {to_text(replace(plan, declared=None))}".encode()).hexdigest()[:32]


def declared_again(old: Plan, new: Plan) -> Plan:
    """Return the plan of a stored schedule that an app declares as `new`.

    Edits at run time stay until the declaration changes, and so does the pause of an operator. A
    schedule that was disabled as undeclared is enabled.
    """
    is_on = old.enabled or old.disabled_reason == UNDECLARED
    if old.declared != new.declared:
        return replace(new, enabled=new.enabled and is_on)
    reason = None if is_on else old.disabled_reason
    return replace(old, declared_by=new.declared_by, enabled=is_on, disabled_reason=reason)


def _duration(value: Duration, what: str, name: str) -> timedelta:
    try:
        return parse_duration(value, what=what)
    except ValueError as error:
        raise InvalidSchedule(f"schedule {repr_short(name)}: {error}") from error
