"""`outlast doctor`: health checks, each with a remedy."""

import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from shlex import quote
from typing import Final, Literal

from outlast.cli.command import CommandContext, Exit, command
from outlast.cli.output import ago, count
from outlast.clock import SystemClock
from outlast.core.address import shown_address
from outlast.core.declaration import UNDECLARED_AFTER, Declarations
from outlast.core.duration import format_exact, format_short
from outlast.core.overview import Overview
from outlast.core.schedule import UNDECLARED, Schedule
from outlast.core.state import State
from outlast.core.worker import WorkerRecord
from outlast.jobs.explanation import judged, refusals_of
from outlast.scheduler.declaration_check import read_declarations
from outlast.store.contract.jobs import Filter

DAY: Final = timedelta(days=1)
MAX_SKEW: Final = timedelta(seconds=1)
"""Difference to the clock of the store above which the check warns."""

REFUSABLE: Final = [
    Filter(states=frozenset({state})) for state in (State.RETRY_WAIT, State.SCHEDULED, State.QUEUED)
]
"""Where refused jobs wait."""

MAX_LOOKED_AT: Final = 200
"""Jobs of a waiting state, the newest, in which the check looks for refusals."""

MAX_KEPT_JOBS: Final = 10_000_000
"""Number of retained jobs above which the check warns."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    check: str
    verdict: Literal["ok", "warn", "FAIL"]
    text: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Input of the checks: the command context and one snapshot of the store."""

    ctx: CommandContext
    overview: Overview
    workers: list[WorkerRecord]


@command("doctor")
async def doctor_command(ctx: CommandContext, /) -> int:
    """Check settings, store, clock, code, workers, pauses, schedules, failures and growth.

    Exit 0: no check failed, though some may warn. Exit 1: at least one failed.
    """
    overview = await ctx.app.store.overview(span=DAY)
    workers = [each for each in judged(await ctx.app.store.workers()) if each.is_alive]
    context = CheckContext(ctx, overview, workers)
    findings = [finding for check in CHECKS async for finding in check(context)]
    for finding in findings:
        fix = finding.fix and ctx.with_target(finding.fix)
        if ctx.out.as_json:
            ctx.out.record(replace(finding, fix=fix))
            continue
        ctx.out.line(f"{finding.check:<10} {finding.verdict:<4}  {finding.text}")
        if fix:
            ctx.out.line(f"{'':<16}  fix: {fix}")
    warned = sum(finding.verdict == "warn" for finding in findings)
    failed = sum(finding.verdict == "FAIL" for finding in findings)
    ctx.out.message(
        f"{count(len(findings), 'check')}, {count(warned, 'warning')}, {count(failed, 'failure')}"
    )
    return Exit.FAILED if failed else Exit.OK


Check = Callable[[CheckContext], AsyncIterator[Finding]]


async def _settings(context: CheckContext) -> AsyncIterator[Finding]:
    where = context.ctx.where
    setting = where.app or where.url
    assert setting is not None
    what = f"app {setting.value}" if where.app else f"store {shown_address(setting.value)}"
    yield Finding("Settings", "ok", f"{what}, from {setting.source}")


async def _store(context: CheckContext) -> AsyncIterator[Finding]:
    facts = await context.ctx.app.store.describe()
    yield Finding("Store", "ok", ", ".join(f"{name} {value}" for name, value in facts.items()))
    for warning in await context.ctx.app.store.health_warnings():
        yield Finding("Store", "warn", warning)
    logs = context.ctx.app.settings.logs
    if logs.is_dir() and logs.stat().st_mode & stat.S_IROTH:
        text = f"every user of this machine may list {logs}, which has the output of commands"
        yield Finding("Store", "warn", text, f"chmod o-rwx {quote(str(logs))}")


async def _clock(context: CheckContext) -> AsyncIterator[Finding]:
    skew = abs(SystemClock().now() - context.overview.now)
    verdict: Literal["ok", "warn"] = "ok" if skew < MAX_SKEW else "warn"
    fix = None if verdict == "ok" else "synchronise the clocks of both machines with NTP"
    yield Finding("Clock", verdict, f"differs from the store by {format_short(skew)}", fix)


async def _code(context: CheckContext) -> AsyncIterator[Finding]:
    if not context.ctx.knows_types:
        yield Finding("Code", "warn", "not checked: only a store was given", "give --app")
        return
    known = set(context.ctx.app.registry.names())
    unknown = {row.type for row in context.overview.backlog} - known
    for name in sorted(unknown):
        jobs = sum(row.jobs for row in context.overview.backlog if row.type == name)
        text = f'type "{name}" is not defined in this app; waiting: {count(jobs, "job")}'
        fix = f"start a worker whose app defines it, or `outlast cancel {quote(f'type:{name}')}`"
        yield Finding("Code", "warn", text, fix)
    if not unknown:
        text = f"{count(len(known), 'type')}; every waiting job has a known type"
        yield Finding("Code", "ok", text)


async def _workers(context: CheckContext) -> AsyncIterator[Finding]:
    claiming = [worker for worker in context.workers if not worker.is_stopping]
    served = {queue for worker in claiming for queue in worker.queues}
    all_served = True
    for queue in context.overview.queues:
        due = sum(row.due for row in context.overview.backlog if row.queue == queue)
        if due and queue not in served:
            all_served = False
            text = f'queue "{queue}" has {count(due, "due job")} and no worker'
            yield Finding("Workers", "FAIL", text, f"`outlast worker -q {quote(queue)}`")
    running = sum(row.jobs for row in context.overview.running)
    if running and not context.workers:
        text = f"{count(running, 'running job')}, and no worker is alive"
        yield Finding("Workers", "FAIL", text, "start a worker: it takes them over")
    elif all_served:
        seen = min((worker.seen_at for worker in context.workers), default=None)
        last = "" if seen is None else f", last heartbeat {ago(seen, context.overview.now)} ago"
        text = f"{len(context.workers)} alive{last}; every queue with due jobs has a worker"
        yield Finding("Workers", "ok", text)


async def _leases(context: CheckContext) -> AsyncIterator[Finding]:
    expired = sum(row.lapsed for row in context.overview.running)
    running = sum(row.jobs for row in context.overview.running)
    if expired:
        text = f"the lease of {expired:,} of {count(running, 'running job')} has expired"
        yield Finding("Leases", "FAIL", text, "start a worker: it reclaims them")
    else:
        yield Finding("Leases", "ok", f"{running:,} running, no lease expired")


async def _pauses(context: CheckContext) -> AsyncIterator[Finding]:
    for queue in await context.ctx.app.queues.list():
        if queue.pause is not None:
            why = queue.pause.reason or "no reason given"
            fix = f"`outlast queue resume {quote(queue.name)}`"
            yield Finding("Pauses", "warn", f'queue "{queue.name}" is paused: {why}', fix)


async def _schedules(context: CheckContext) -> AsyncIterator[Finding]:
    declarations = await read_declarations(context.ctx.app.store)
    schedules = await context.ctx.app.schedules.list()
    all_declared = True
    for schedule in schedules:
        text = _undeclared(schedule, declarations)
        if text is not None:
            all_declared = False
            name = quote(schedule.name)
            fix = (
                f"declare it again, remove it with `outlast schedule remove {name}`, or keep it "
                f"with `outlast schedule resume {name}`"
            )
            yield Finding("Schedules", "warn", f'schedule "{schedule.name}" {text}', fix)
    for name, plan in (await context.ctx.app.schedules.check_declared()).items():
        if isinstance(plan, str):
            all_declared = False
            text = f'schedule "{name}" cannot be written: {plan}'
            yield Finding("Schedules", "FAIL", text, "correct its declaration")
    enabled = sum(each.plan.enabled for each in schedules)
    if enabled and not context.workers:
        text = f"{enabled} of {len(schedules)} stored are enabled, and no worker triggers them"
        yield Finding("Schedules", "warn", text, "start a worker")
    elif all_declared:
        yield Finding("Schedules", "ok", f"{len(schedules)} stored; none is undeclared")


def _undeclared(schedule: Schedule, declarations: Declarations) -> str | None:
    if schedule.plan.disabled_reason == UNDECLARED:
        return f"is disabled: no worker of app {schedule.plan.declared_by} declares it any more"
    since = declarations.undeclared_since(schedule) if schedule.plan.enabled else None
    if since is None:
        return None
    span, limit = format_short(declarations.now - since), format_exact(UNDECLARED_AFTER)
    return f"is declared by no live worker for {span}; after {limit} it is disabled"


async def _refused(context: CheckContext) -> AsyncIterator[Finding]:
    """Warn of jobs whose params fit the code of no worker that has claimed them."""
    store = context.ctx.app.store
    pages = [await store.find(what, limit=MAX_LOOKED_AT) for what in REFUSABLE]
    waiting = [job for page in pages for job in page]
    found = await refusals_of(store, waiting)
    for kind in sorted({job.type for job in waiting if job.id in found}):
        ids = [job.id for job in waiting if job.type == kind and job.id in found]
        jobs, one = count(len(ids), "job"), found[ids[0]].text
        text = f'type "{kind}": {jobs} with params that no worker could read; one was {one}'
        fix = f"deploy code that reads them, see `outlast explain {ids[0]}`"
        yield Finding("Params", "warn", text, fix)
    if not found:
        yield Finding("Params", "ok", "no waiting job is refused by workers")


async def _growth(context: CheckContext) -> AsyncIterator[Finding]:
    kept = context.ctx.app.settings.retention
    a_day = sum(context.overview.ended.values())
    if kept is None:
        text = f"{count(a_day, 'job')} finished in the last day; no retention is set"
        yield Finding("Growth", "warn" if a_day else "ok", text, "set retention" if a_day else None)
        return
    all_kept = int(a_day * (kept / DAY))
    verdict: Literal["ok", "warn"] = "warn" if all_kept > MAX_KEPT_JOBS else "ok"
    text = (
        f"{count(a_day, 'job')} finished in the last day; a retention of "
        f"{count(kept.days, 'day')} keeps {all_kept:,}"
    )
    yield Finding("Growth", verdict, text, "shorten retention" if verdict == "warn" else None)


async def _failures(context: CheckContext) -> AsyncIterator[Finding]:
    failed = sum(
        n for (_, state), n in context.overview.ended.items() if state in {"dead_letter", "failed"}
    )
    if failed:
        text = f"{count(failed, 'job')} failed permanently in the last day"
        yield Finding("Failures", "warn", text, "`outlast jobs state:dead_letter,failed since:1d`")
    else:
        yield Finding("Failures", "ok", "none in the last day")


CHECKS: Final[tuple[Check, ...]] = (
    _settings, _store, _clock, _code, _workers, _leases, _pauses, _schedules, _failures, _refused,
    _growth,
)  # fmt: skip
