"""Disables the schedules that no live worker declares any more, and enables them again."""

import logging
from collections.abc import AsyncIterator
from typing import Final

from outlast.core.declaration import UNDECLARED_AFTER, Declarations
from outlast.core.duration import format_exact
from outlast.core.schedule import Plan, Schedule
from outlast.scheduler.plan_builder import with_next_slot
from outlast.store.contract import Store

log = logging.getLogger("outlast.scheduler")

PAGE_SIZE: Final = 500


class DeclarationCheck:
    """Compares the stored schedules with those that workers declare. Any process may run it.

    A schedule is written only if it changes, by its version: an edit at the same time wins.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> list[Schedule]:
        """Disable and enable schedules; return those that were changed."""
        declarations = await read_declarations(self._store)
        changed: list[tuple[Schedule, Schedule]] = []
        async for schedule in _all_schedules(self._store):
            plan = declarations.judge(schedule)
            written = None if plan is None else await self._write(schedule, plan)
            if written is not None:
                changed.append((schedule, written))
        if any(not written.plan.enabled for _, written in changed):
            await self._restore_declared(changed)
        return [written for _, written in changed]

    async def _restore_declared(self, changed: list[tuple[Schedule, Schedule]]) -> None:
        """Enable what a worker declares that registered while this check ran."""
        declarations = await read_declarations(self._store)
        for before, written in changed:
            if not written.plan.enabled and declarations.judge(before) is None:
                await self._write(written, before.plan)

    async def _write(self, schedule: Schedule, plan: Plan) -> Schedule | None:
        value = with_next_slot(plan, schedule.id, await self._store.now(), schedule)
        written = await self._store.set_schedule(
            schedule.id, expected=schedule.version, value=value
        )
        if written is not None:
            _log(written)
        return written


async def read_declarations(store: Store) -> Declarations:
    """Return what the registered workers declare."""
    workers = await store.workers()
    return Declarations(workers, await store.now())


async def _all_schedules(store: Store) -> AsyncIterator[Schedule]:
    after = ""
    while page := await store.schedules(after=after, limit=PAGE_SIZE):
        for schedule in page:
            yield schedule
        after = page[-1].name


def _log(schedule: Schedule) -> None:
    if schedule.plan.enabled:
        log.info("schedule enabled, a worker declares it again schedule=%s", schedule.name)
        return
    log.warning(
        "schedule disabled, no worker of app %s declares it since %s schedule=%s; declare it "
        "again, keep it with `outlast schedule resume %s`, or remove it",
        schedule.plan.declared_by,
        format_exact(UNDECLARED_AFTER),
        schedule.name,
        schedule.name,
    )
