"""The schedule manager: save, edit, pause, preview, run and backfill schedules."""

import builtins
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Unpack

from outlast.core.declaration import declared_twice
from outlast.core.delivery import Delivery
from outlast.core.duration import Duration
from outlast.core.limits import check_name, repr_short
from outlast.core.schedule import JobBlueprint, Plan, Schedule, SlotRecord, TimeRule
from outlast.core.suggestion import did_you_mean
from outlast.errors import (
    CallerError,
    InvalidSchedule,
    ScheduleChanged,
    ScheduleNotFound,
)
from outlast.jobs.client import Client
from outlast.jobs.handle import Handle
from outlast.jobs.registry import Registry
from outlast.jobs.templates import template_record
from outlast.scheduler import manual_run
from outlast.scheduler.manual_run import BackfillLine, SlotChoice
from outlast.scheduler.plan_builder import (
    IntervalOptions,
    JobSource,
    RuleOptions,
    ScheduleEdits,
    ScheduleOptions,
    Target,
    digest,
    edited_plan,
    new_plan,
    rule_of,
    source_from_template,
    source_from_type,
    with_next_slot,
)
from outlast.scheduler.plan_envelopes import PlanEnvelopes
from outlast.scheduler.preview import SlotChange, Upcoming, diff, preview

_MAX_WRITE_ATTEMPTS: Final = 100
_MAX_SUGGESTIONS: Final = 3
PAGE_SIZE: Final = 500
MAX_LIMIT: Final = 1000
_ANY_JOB: Final = JobBlueprint(
    type="any", name="any", delivery=Delivery.LEASE, queue="any", priority=0, max_attempts=None
)
"""Stands for the job of a declaration, whose type may be registered later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDeclaration:
    """A schedule declared in code."""

    name: str
    options: Mapping[str, Any]
    place: str = ""  # where the code is, for messages


def declare(
    name: str,
    options: Mapping[str, Any],
    known: Mapping[str, ScheduleDeclaration],
    *,
    place: str = "",
) -> ScheduleDeclaration:
    """Return a validated declaration; a template is looked up when a worker writes it.

    Raises InvalidSchedule if the rule or an option is invalid, no job is given, or the name is
    declared already.
    """
    check_name(name, what="the name of a schedule")
    if name in known:
        raise InvalidSchedule(declared_twice("schedule", name, known[name].place, place))
    check_options(name, options)
    if options.get("job_type") is None and options.get("template") is None:
        raise InvalidSchedule(
            f"schedule {name} has no job to run; give a job type (job_type=…) or a template"
        )
    try:
        rule_of(options)
    except InvalidSchedule as error:
        raise InvalidSchedule(f"schedule {name}: {error}") from None  # names the field already
    new_plan(name, options, JobSource(_ANY_JOB, None, "{}"))  # its other settings are valid
    return ScheduleDeclaration(name=name, options=options, place=place)


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise InvalidSchedule for the first option that no schedule has."""
    known = ScheduleEdits.__annotations__.keys() | ScheduleOptions.__annotations__.keys()
    for option in options.keys() - known:
        raise InvalidSchedule(
            f"schedule {name} has an unknown option {option!r}; {did_you_mean(option, known)}"
        )


class ScheduleManager:
    """Stored schedules by name: `await app.schedules.pause("nightly")`."""

    def __init__(
        self,
        client: Client,
        registry: Registry,
        declared: Mapping[str, ScheduleDeclaration] | None = None,
    ) -> None:
        self._client = client
        self._registry = registry
        self._declared = declared or {}
        self._envelopes = PlanEnvelopes(client.envelopes)

    async def save(
        self,
        name: str,
        cron: str | None = None,
        job_type: Target | None = None,
        *,
        coalesce: bool,
        misfire_grace: Duration,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Create or replace a schedule. Raises InvalidSchedule if an option is invalid."""
        given: dict[str, Any] = {
            **options,
            "cron": cron,
            "job_type": job_type,
            "coalesce": coalesce,
            "misfire_grace": misfire_grace,
        }
        plan = self._envelopes.encoded(await self._plan(name, given))
        return self._envelopes.revealed(await self._write(name, lambda _: plan, creates=True))

    async def edit(
        self, name: str, *, expected: int | None = None, **edits: Unpack[ScheduleEdits]
    ) -> Schedule:
        """Change the given settings and keep the rest.

        Raises ScheduleChanged if `expected` is given and is not the schedule version.
        """
        given: Mapping[str, Any] = edits
        check_options(name, given)
        schedule = await self._stored(name)
        source = await self._source(given, schedule.plan)
        written = await self._write(
            schedule.id,
            lambda old: edited_plan(old or schedule.plan, given, source),
            expected=expected,
        )
        return self._envelopes.revealed(written)

    async def get(self, name: str) -> Schedule:
        """Return the schedule with a name or id. Raises ScheduleNotFound if there is none."""
        return self._envelopes.revealed(await self._stored(name))

    async def _stored(self, name: str) -> Schedule:
        store = await self._client.store()
        found = await store.schedule(name)
        if found is None:
            raise _unknown(name, [each.name for each in await store.schedules(limit=PAGE_SIZE)])
        return found

    async def list(self) -> builtins.list[Schedule]:
        """Return all schedules, ordered by name."""
        store = await self._client.store()
        found: list[Schedule] = []
        while page := await store.schedules(after=found[-1].name if found else "", limit=PAGE_SIZE):
            found += page
        return [self._envelopes.revealed(each) for each in found]

    async def remove(self, name: str) -> Schedule:
        """Delete a schedule and return it. Its slot records stay, so that no slot is repeated."""
        for _ in range(_MAX_WRITE_ATTEMPTS):
            schedule = await self._stored(name)
            store = await self._client.store()
            removed = await store.set_schedule(schedule.id, expected=schedule.version, value=None)
            if removed is not None:
                return self._envelopes.revealed(removed)
        raise _changed(name)

    async def pause(self, name: str) -> Schedule:
        """Stop triggering until `resume`. Slots in between are not recorded as missed."""
        return await self.edit(name, enabled=False)

    async def resume(self, name: str) -> Schedule:
        """Continue with the next slot after now."""
        return await self.edit(name, enabled=True)

    async def next(self, name: str, *, limit: int = 10) -> builtins.list[Upcoming]:
        """Return its next occurrences, with the effect of clock changes."""
        store = await self._client.store()
        stored = await store.schedule(name)
        if stored is None and name in self._declared:
            rule = self.declared_rule(name)
        else:
            rule = (stored or await self.get(name)).plan.rule
        return preview(rule, await store.now(), limit=_bounded(limit))

    @property
    def declared_names(self) -> set[str]:
        """Names of the schedules that this app declares, stored or not."""
        return set(self._declared)

    def declared_rule(self, name: str) -> TimeRule:
        """Return the rule of a schedule that this app declares, stored or not."""
        return rule_of(self._declared[name].options)

    async def check_declared(self) -> dict[str, Plan | str]:
        """Return the plan of each declared schedule, or why it cannot be written."""
        return {name: await self._plan_or_reason(each) for name, each in self._declared.items()}

    async def _plan_or_reason(self, declared: ScheduleDeclaration) -> Plan | str:
        try:
            return await self._plan(declared.name, declared.options)
        except CallerError as error:
            return str(error)

    async def test(
        self,
        cron: str | None = None,
        *,
        after: datetime | None = None,
        limit: int = 10,
        **when: Unpack[IntervalOptions],
    ) -> builtins.list[Upcoming]:
        """Return the next occurrences of a rule: `test("0 2 * * *", timezone=…)`.

        They follow `after`, or the present time.
        """
        start = after or await (await self._client.store()).now()
        return preview(rule_of({"cron": cron, **when}), start, limit=_bounded(limit))

    async def diff(
        self, name: str, *, limit: int = 10, **when: Unpack[RuleOptions]
    ) -> builtins.list[tuple[datetime, SlotChange]]:
        """Return how an edit would change its next slots."""
        rule = (await self.get(name)).plan.rule
        now = await (await self._client.store()).now()
        return diff(rule, rule_of(when, rule), now, limit=_bounded(limit))

    async def history(
        self, name: str, *, before: datetime | None = None, limit: int = 50
    ) -> builtins.list[SlotRecord]:
        """Return its past slots and outcomes, latest first; `before` selects the next page."""
        schedule = await self.get(name)
        store = await self._client.store()
        return await store.slots(schedule.series, before=before, limit=_bounded(limit))

    async def run(
        self, name: str, slot: datetime | SlotChoice, *, any_time: bool = False
    ) -> Handle[Any]:
        """Run one slot manually: a time, `"next"`, or `"missed"` for the latest missed slot.

        With `any_time` the time need not be an occurrence: the run has a slot of its own.
        Raises InvalidSchedule, with the nearest slots, if the time is no slot of the schedule.
        Raises SlotTaken if the slot was claimed before, whatever its outcome, or if the job is
        running.
        """
        schedule = await self._stored(name)
        job_id = await manual_run.run(
            await self._client.store(), schedule, slot, self._client.ids.job, any_time=any_time
        )
        return Handle(job_id, self._client, created=True)

    async def backfill(
        self, name: str, since: datetime, until: datetime, *, dry_run: bool = False
    ) -> builtins.list[BackfillLine]:
        """Run every unclaimed slot of a time range; with `dry_run` only return them."""
        schedule = await self._stored(name)
        store = await self._client.store()
        return await manual_run.backfill(
            store, schedule, since, until, new_id=self._client.ids.job, dry_run=dry_run
        )

    async def sync(
        self, declared: Mapping[str, ScheduleDeclaration], *, app: str
    ) -> builtins.list[Schedule]:
        """Write the schedules that an app declares; return those written. Idempotent.

        A schedule that was edited at run time is kept until its declaration changes. A paused
        schedule stays paused; one that was disabled as undeclared is enabled. One that is invalid
        keeps no other from being written: InvalidSchedule names all of those at the end.
        """
        written: list[Schedule | None] = []
        wrong: list[str] = []
        for each in declared.values():
            try:
                written.append(await self._declare(each, app))
            except CallerError as error:
                wrong.append(f"schedule {each.name}: {error}")
        if wrong:
            raise InvalidSchedule("; ".join(wrong))
        return [each for each in written if each is not None]

    async def _declare(self, declared: ScheduleDeclaration, app: str) -> Schedule | None:
        plan = await self._plan(declared.name, declared.options)
        # The digest is that of the plain params, so that a new nonce is no change.
        plan = self._envelopes.encoded(replace(plan, declared=digest(plan), declared_by=app))
        stored = await (await self._client.store()).schedule(declared.name)
        if stored is not None and self._envelopes.declared_again(stored.plan, plan) == stored.plan:
            return None
        written = await self._write(
            declared.name,
            lambda old: plan if old is None else self._envelopes.declared_again(old, plan),
            creates=True,
        )
        return self._envelopes.revealed(written)

    async def _plan(self, name: str, given: Mapping[str, Any]) -> Plan:
        check_name(name, what="the name of a schedule")
        check_options(name, given)
        source = await self._source(given, None)
        return new_plan(name, given, source.with_name(given.get("job_name")))

    async def _source(self, given: Mapping[str, Any], old: Plan | None) -> JobSource:
        target, template = given.get("job_type"), given.get("template")
        if target is not None and template is not None:
            raise InvalidSchedule("give either a job type or a template, not both")
        params = given.get("params")
        if template is None and target is None:
            if old is None:
                raise InvalidSchedule("no job to run was given; give a job type or a template")
            if "params" not in given and "job_name" not in given:
                return JobSource(old.making, old.template, old.params)
            target, template = old.making.type, old.template
            params = params if "params" in given else self._params(old)
        source = await self._source_of(target, template, params)
        name = given.get("job_name", old.job_name if old else None)
        source = source.with_name(name)
        if old is None:  # the caller encodes the plan
            return source
        return self._envelopes.encoded_source(source)

    def _params(self, plan: Plan) -> Mapping[str, Any]:
        """Return the params of a stored plan as values."""
        text = self._registry.get(plan.making.type).plain_params(plan.params)
        params: Mapping[str, Any] = json.loads(text)
        return params

    async def _source_of(
        self, target: Target | None, template: str | None, params: Mapping[str, Any] | None
    ) -> JobSource:
        if template is None:
            assert target is not None
            return source_from_type(self._registry, target, params)
        record = await template_record(await self._client.store(), template)
        return source_from_template(self._registry, record, params)

    async def _write(
        self,
        name: str,
        change: Callable[[Plan | None], Plan],
        *,
        expected: int | None = None,
        creates: bool = False,
    ) -> Schedule:
        store = await self._client.store()
        for _ in range(_MAX_WRITE_ATTEMPTS):
            current = await store.schedule(name)
            if current is None and not creates:
                raise _unknown(name, [])
            if expected is not None and (current is None or current.version != expected):
                raise _changed(name)
            plan = change(None if current is None else current.plan)
            own_id = current.id if current else str(self._client.ids.job())
            value = with_next_slot(plan, own_id, await store.now(), current)
            version = None if current is None else current.version
            written = await store.set_schedule(own_id, expected=version, value=value)
            if written is not None:
                return written
            if (taken := await store.schedule(plan.name)) is not None and taken.id != own_id:
                raise InvalidSchedule(
                    f"another schedule has the name {plan.name}; choose another name"
                )
        raise _changed(name)


def _bounded(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidSchedule(f"limit is {repr_short(limit)}; use 1 to {MAX_LIMIT:,}")
    return limit


def _changed(name: str) -> ScheduleChanged:
    return ScheduleChanged(
        f"schedule {name} was changed meanwhile; read it again and repeat the edit"
    )


def _unknown(name: str, known: list[str]) -> ScheduleNotFound:
    near = get_close_matches(str(name), known, n=_MAX_SUGGESTIONS) or known[:_MAX_SUGGESTIONS]
    hint = f"near it: {', '.join(near)}" if near else "there are none; save one first"
    return ScheduleNotFound(f"no schedule {repr_short(name)} is in this store; {hint}")
