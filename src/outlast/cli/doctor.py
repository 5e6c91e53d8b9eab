"""`outlast doctor`: check everything, and say how to mend it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from outlast.cli.command import CommandContext, Exit, verb
from outlast.clock import SystemClock
from outlast.core.duration import format_short
from outlast.core.overview import Overview
from outlast.core.worker import WorkerRecord
from outlast.store.open import without_password

DAY: Final = timedelta(days=1)
SKEW: Final = timedelta(seconds=1)
MUCH: Final = 10_000_000
"""So many finished jobs kept are worth a word."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    verdict: Literal["ok", "warn", "FAIL"]
    text: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What the checks look at."""

    desk: CommandContext
    overview: Overview
    workers: list[WorkerRecord]


@verb("doctor")
async def command(desk: CommandContext, /) -> int:
    """Check store, schema, clock, code, workers, leases, growth and security.

    Exit 0: nothing is broken (there may be warnings). Exit 1: something is.
    """
    overview = await desk.app.store.overview(span=DAY)
    workers = [worker for worker in await desk.app.store.workers() if worker.is_alive]
    look = CheckContext(desk, overview, workers)
    findings = [finding for check in CHECKS async for finding in check(look)]
    for finding in findings:
        if desk.out.as_json:
            desk.out.record(finding)
            continue
        desk.out.line(f"{finding.check:<10} {finding.verdict:<4}  {finding.text}")
        if finding.fix:
            desk.out.line(f"{'':<16}  fix: {finding.fix}")
    warned = sum(finding.verdict == "warn" for finding in findings)
    failed = sum(finding.verdict == "FAIL" for finding in findings)
    desk.out.message(f"{len(findings)} checks, {warned} warnings, {failed} failures")
    return Exit.FAILED if failed else Exit.OK


Check = Callable[[CheckContext], AsyncIterator[Finding]]


async def _settings(look: CheckContext) -> AsyncIterator[Finding]:
    where = look.desk.where
    setting = where.app or where.url
    assert setting is not None
    what = "app" if where.app else "store"
    yield Finding(
        "Settings", "ok", f"{what} {without_password(setting.value)}, said by {setting.source}"
    )


async def _store(look: CheckContext) -> AsyncIterator[Finding]:
    facts = await look.desk.app.store.describe()
    yield Finding("Store", "ok", ", ".join(f"{name} {value}" for name, value in facts.items()))
    for concern in await look.desk.app.store.health_warnings():
        yield Finding("Store", "warn", concern)


async def _clock(look: CheckContext) -> AsyncIterator[Finding]:
    skew = abs(SystemClock().now() - look.overview.now)
    verdict: Literal["ok", "warn"] = "ok" if skew < SKEW else "warn"
    fix = None if verdict == "ok" else "let both machines keep their clocks by NTP"
    yield Finding("Clock", verdict, f"skew to the store {format_short(skew)}", fix)


async def _code(look: CheckContext) -> AsyncIterator[Finding]:
    if not look.desk.knows_types:
        yield Finding("Code", "warn", "not looked at: only a store was given", "give --app")
        return
    known = set(look.desk.app.registry.names())
    unknown = {row.type for row in look.overview.backlog} - known
    for name in sorted(unknown):
        jobs = sum(row.jobs for row in look.overview.backlog if row.type == name)
        text = f'type "{name}" has no code here; {jobs:,} jobs wait'
        fix = f"start a worker that has it, or `outlast cancel type:{name}`"
        yield Finding("Code", "warn", text, fix)
    if not unknown:
        yield Finding("Code", "ok", f"{len(known)} types, all that wait are known")


async def _workers(look: CheckContext) -> AsyncIterator[Finding]:
    served = {queue for worker in look.workers for queue in worker.queues}
    lonely = False
    for queue in look.overview.queues:
        due = sum(row.due for row in look.overview.backlog if row.queue == queue)
        if due and queue not in served:
            lonely = True
            text = f'queue "{queue}" has {due:,} due jobs and no worker'
            yield Finding("Workers", "FAIL", text, f"outlast worker -q {queue}")
    if not lonely:
        yield Finding(
            "Workers", "ok", f"{len(look.workers)} alive; every queue with due jobs is served"
        )


async def _leases(look: CheckContext) -> AsyncIterator[Finding]:
    lapsed = sum(row.lapsed for row in look.overview.running)
    running = sum(row.jobs for row in look.overview.running)
    if lapsed:
        text = f"{lapsed:,} of {running:,} running jobs have a lease that is over"
        yield Finding("Leases", "FAIL", text, "start any worker: it takes them over")
    else:
        yield Finding("Leases", "ok", f"{running:,} running, none lapsed")


async def _pauses(look: CheckContext) -> AsyncIterator[Finding]:
    for queue in await look.desk.app.queues.list():
        if queue.pause is not None:
            why = queue.pause.reason or "no reason given"
            fix = f"outlast queue resume {queue.name}"
            yield Finding("Pauses", "warn", f'queue "{queue.name}" is paused: {why}', fix)


async def _growth(look: CheckContext) -> AsyncIterator[Finding]:
    kept = look.desk.app.settings.retention
    a_day = sum(look.overview.ended.values())
    if kept is None:
        text = f"{a_day:,} jobs ended in a day, and nothing is ever pruned"
        yield Finding("Growth", "warn" if a_day else "ok", text, "set retention" if a_day else None)
        return
    all_kept = int(a_day * (kept / DAY))
    verdict: Literal["ok", "warn"] = "warn" if all_kept > MUCH else "ok"
    text = f"{a_day:,} jobs ended in a day; kept for {kept.days} days, that makes {all_kept:,}"
    yield Finding("Growth", verdict, text, "shorten retention" if verdict == "warn" else None)


async def _dead(look: CheckContext) -> AsyncIterator[Finding]:
    bad = sum(
        n for (_, state), n in look.overview.ended.items() if state in {"dead_letter", "failed"}
    )
    if bad:
        text = f"{bad:,} jobs failed for good in a day"
        yield Finding("Failures", "warn", text, "outlast jobs state:dead_letter,failed since:1d")
    else:
        yield Finding("Failures", "ok", "none in a day")


CHECKS: Final[tuple[Check, ...]] = (
    _settings, _store, _clock, _code, _workers, _leases, _pauses, _dead, _growth,
)  # fmt: skip
