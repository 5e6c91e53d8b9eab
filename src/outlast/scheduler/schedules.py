"""Schedules as an app uses them: saved, edited, paused, looked at, and run by hand."""

import builtins
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Unpack

from outlast.core.duration import Duration
from outlast.core.limits import check_name, repr_short
from outlast.core.schedule import Plan, Schedule, SlotRecord
from outlast.core.template import KIND
from outlast.errors import InvalidSchedule, ScheduleChanged, ScheduleNotFound, TemplateNotFound
from outlast.jobs.client import Client
from outlast.jobs.handle import Handle
from outlast.jobs.registry import Registry
from outlast.scheduler import manual_run
from outlast.scheduler.manual_run import BackfillLine, Which
from outlast.scheduler.plan_builder import (
    Edits,
    JobSource,
    Options,
    Target,
    When,
    digest,
    edited_plan,
    new_plan,
    of_type,
    rule_of,
    source_from_type,
    with_next_slot,
)
from outlast.scheduler.preview import Side, Upcoming, diff, preview

_TRIES: Final = 100
_NEAR: Final = 3
PAGE: Final = 500
MOST_SHOWN: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDeclaration:
    """A schedule that the code declares."""

    name: str
    wishes: Mapping[str, Any]


def declare(
    name: str, wishes: Mapping[str, Any], known: Mapping[str, ScheduleDeclaration]
) -> ScheduleDeclaration:
    """A declaration whose own words are all right; its template, if any, is looked for later."""
    check_name(name, what="the name of a schedule")
    if name in known:
        raise InvalidSchedule(f"schedule {name} is declared already; give one another name")
    rule_of(wishes)
    return ScheduleDeclaration(name=name, wishes=wishes)


class ScheduleManager:
    """Stored schedules by name: `await app.schedules.pause("nightly")`."""

    def __init__(self, client: Client, registry: Registry) -> None:
        self._client = client
        self._registry = registry

    async def save(
        self,
        name: str,
        cron: str | None = None,
        job_type: Target | None = None,
        *,
        coalesce: bool,
        misfire_grace: Duration,
        **options: Unpack[Options],
    ) -> Schedule:
        """Create the schedule, or write over it; what is wrong with it, InvalidSchedule says."""
        asked: dict[str, Any] = {
            **options,
            "cron": cron,
            "job_type": job_type,
            "coalesce": coalesce,
            "misfire_grace": misfire_grace,
        }
        plan = await self._plan(name, asked)
        return await self._write(name, lambda _: plan, creates=True)

    async def edit(
        self, name: str, *, expected: int | None = None, **edits: Unpack[Edits]
    ) -> Schedule:
        """Change what is given and leave the rest.

        With `expected`, the version you know, ScheduleChanged if it is no longer that one.
        """
        asked: Mapping[str, Any] = edits
        there = await self.get(name)
        made = await self._made(asked, there.plan)
        return await self._write(
            there.id, lambda old: edited_plan(old or there.plan, asked, made), expected=expected
        )

    async def get(self, name: str) -> Schedule:
        """The schedule of that name, or of that id; ScheduleNotFound if there is none."""
        store = await self._client.store()
        found = await store.schedule(name)
        if found is None:
            raise _unknown(name, [each.name for each in await store.schedules(limit=PAGE)])
        return found

    async def list(self) -> builtins.list[Schedule]:
        """Every schedule, by name."""
        store = await self._client.store()
        found: list[Schedule] = []
        while page := await store.schedules(after=found[-1].name if found else "", limit=PAGE):
            found += page
        return found

    async def remove(self, name: str) -> Schedule:
        """Delete it; its slots stay, so that none is ever repeated."""
        for _ in range(_TRIES):
            there = await self.get(name)
            store = await self._client.store()
            gone = await store.set_schedule(there.id, expected=there.version, value=None)
            if gone is not None:
                return gone
        raise _changed(name)

    async def pause(self, name: str) -> Schedule:
        """Trigger nothing until it is resumed; slots that pass meanwhile are not missed."""
        return await self.edit(name, enabled=False)

    async def resume(self, name: str) -> Schedule:
        """Go on with the next slot from now."""
        return await self.edit(name, enabled=True)

    async def next(self, name: str, *, limit: int = 10) -> builtins.list[Upcoming]:
        """Its next occurrences, with what a change of the clock does to them."""
        there = await self.get(name)
        now = await (await self._client.store()).now()
        return preview(there.plan.rule, now, limit=_bounded(limit))

    async def test(self, *, limit: int = 10, **when: Unpack[When]) -> builtins.list[Upcoming]:
        """The same for a rule that nobody has saved: `test(cron="0 2 * * *", timezone=…)`."""
        now = await (await self._client.store()).now()
        return preview(rule_of(when), now, limit=_bounded(limit))

    async def diff(
        self, name: str, *, limit: int = 10, **when: Unpack[When]
    ) -> builtins.list[tuple[datetime, Side]]:
        """What an edit would change about its next slots."""
        rule = (await self.get(name)).plan.rule
        now = await (await self._client.store()).now()
        return diff(rule, rule_of(when, rule), now, limit=_bounded(limit))

    async def history(
        self, name: str, *, before: datetime | None = None, limit: int = 50
    ) -> builtins.list[SlotRecord]:
        """Its past slots and what became of them, the latest first; `before` pages on."""
        there = await self.get(name)
        store = await self._client.store()
        return await store.slots(there.series, before=before, limit=_bounded(limit))

    async def run(self, name: str, slot: datetime | Which) -> Handle[Any]:
        """Run it by hand for one slot: a time, `"next"`, or `"missed"`, the latest missed one.

        The slot is claimed as any other: SlotTaken if it was claimed before, whatever became of
        it, or if the job runs already.
        """
        there = await self.get(name)
        job_id = await manual_run.run(await self._client.store(), there, slot, self._client.ids.job)
        return Handle(job_id, self._client, created=True)

    async def backfill(
        self, name: str, since: datetime, until: datetime, *, dry_run: bool = False
    ) -> builtins.list[BackfillLine]:
        """Run every slot of that time that nobody has claimed; with `dry_run`, only say which."""
        there = await self.get(name)
        store = await self._client.store()
        return await manual_run.backfill(
            store, there, since, until, new_id=self._client.ids.job, dry_run=dry_run
        )

    async def sync(self, declared: Mapping[str, ScheduleDeclaration]) -> builtins.list[Schedule]:
        """Bring what the code declares into the store; those written. Repeating it is harmless.

        A schedule edited since at run time stays as it is until its declaration changes. One that
        was paused stays paused.
        """
        written = [await self._declare(each) for each in declared.values()]
        return [each for each in written if each is not None]

    async def _declare(self, declared: ScheduleDeclaration) -> Schedule | None:
        plan = await self._plan(declared.name, declared.wishes)
        plan = replace(plan, declared=digest(plan))
        there = await (await self._client.store()).schedule(declared.name)
        if there is not None and there.plan.declared == plan.declared:
            return None

        def adopt(old: Plan | None) -> Plan:
            return plan if old is None else replace(plan, enabled=plan.enabled and old.enabled)

        return await self._write(declared.name, adopt, creates=True)

    async def _plan(self, name: str, asked: Mapping[str, Any]) -> Plan:
        check_name(name, what="the name of a schedule")
        made = await self._made(asked, None)
        return new_plan(name, asked, made.named(asked.get("job_name")))

    async def _made(self, asked: Mapping[str, Any], old: Plan | None) -> JobSource:
        target, template = asked.get("job_type"), asked.get("template")
        if target is not None and template is not None:
            raise InvalidSchedule("say what to run: a job type or a template, and not both")
        params = asked.get("params")
        if template is None and target is None:
            if old is None:
                raise InvalidSchedule("say what to run: a job type or a template")
            if "params" not in asked and "job_name" not in asked:
                return JobSource(old.making, old.template, old.params)
            target, template = old.making.type, old.template
            params = params if "params" in asked else _params(old)
        made = await self._from(target, template, params)
        name = asked.get("job_name", old.job_name if old else None)
        return made.named(name)

    async def _from(
        self, target: Target | None, template: str | None, params: Mapping[str, Any] | None
    ) -> JobSource:
        if template is None:
            assert target is not None
            return of_type(self._registry, target, params)
        record = await (await self._client.store()).document(KIND, template)
        if record is None:
            raise TemplateNotFound(
                f"no template {repr_short(template)} is in this store; save one first"
            )
        return source_from_type(self._registry, record, params)

    async def _write(
        self,
        name: str,
        change: Callable[[Plan | None], Plan],
        *,
        expected: int | None = None,
        creates: bool = False,
    ) -> Schedule:
        store = await self._client.store()
        for _ in range(_TRIES):
            there = await store.schedule(name)
            if there is None and not creates:
                raise _unknown(name, [])
            if expected is not None and (there is None or there.version != expected):
                raise _changed(name)
            plan = change(None if there is None else there.plan)
            own_id = there.id if there else str(self._client.ids.job())
            value = with_next_slot(plan, own_id, await store.now(), there)
            version = None if there is None else there.version
            written = await store.set_schedule(own_id, expected=version, value=value)
            if written is not None:
                return written
            if (taken := await store.schedule(plan.name)) is not None and taken.id != own_id:
                raise InvalidSchedule(f"another schedule is called {plan.name}; choose another")
        raise _changed(name)


def _params(plan: Plan) -> Mapping[str, Any]:
    params: Mapping[str, Any] = json.loads(plan.params)
    return params


def _bounded(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_SHOWN:
        raise InvalidSchedule(f"limit is {repr_short(limit)}; use 1 to {MOST_SHOWN:,}")
    return limit


def _changed(name: str) -> ScheduleChanged:
    return ScheduleChanged(f"schedule {name} was changed meanwhile; read it again, and edit that")


def _unknown(name: str, known: list[str]) -> ScheduleNotFound:
    near = get_close_matches(str(name), known, n=_NEAR) or known[:_NEAR]
    there = f"near it: {', '.join(near)}" if near else "there are none; save one first"
    return ScheduleNotFound(f"no schedule {repr_short(name)} is in this store; {there}")
