"""`outlast schedule`: manage schedules, preview and backfill slots, start manual runs."""

from collections import Counter
from datetime import datetime
from typing import Any, cast

import click

from outlast.cli import values
from outlast.cli.command import CommandContext, command, output_command
from outlast.cli.enqueue import parse_params
from outlast.cli.output import CommandOutput, count
from outlast.clock import SystemClock
from outlast.core.duration import format_short
from outlast.core.schedule import ADVISED_GRACE, Schedule, SlotOutcome, SlotRecord
from outlast.core.suggestion import did_you_mean
from outlast.errors import InvalidSchedule, ScheduleNotFound
from outlast.scheduler.plan_builder import RuleOptions, rule_of
from outlast.scheduler.preview import Upcoming, preview
from outlast.scheduler.timezones import load_zone

LIMIT = click.IntRange(1, 1000)

_ADVISED = f"{ADVISED_GRACE.seconds}s suits most frequent jobs"
_REQUIRED = {
    "coalesce": "--coalesce (one run for several late slots) or --no-coalesce (one run each)",
    "misfire_grace": f"--misfire-grace (how late a slot may still run; {_ADVISED})",
}


def _rule_options(function: Any) -> Any:
    """Add the options that define when a schedule runs."""
    for option in (
        click.option(
            "--every",
            callback=values.duration,
            help="Interval instead of a cron expression, such as 15m.",
        ),
        click.option("--timezone", "-z", help="Time zone, such as Europe/Berlin [UTC]."),
        click.option(
            "--gap",
            type=click.Choice(["skip", "run_after"]),
            help="What to do with a time that a clock change skips.",
        ),
        click.option(
            "--fold",
            type=click.Choice(["first", "second", "both"]),
            help="Which one to run of a time that a clock change repeats.",
        ),
    ):
        function = option(function)
    return function


def _plan_options(function: Any) -> Any:
    """Add the other options of a schedule."""
    for option in (
        click.option(
            "--coalesce/--no-coalesce", default=None, help="One run for several late slots."
        ),
        click.option(
            "--misfire-grace",
            callback=values.duration,
            help=f"How late a slot may still run; {_ADVISED}.",
        ),
        click.option(
            "--max-instances",
            type=click.IntRange(1, 100),
            help="How many of its jobs may be unfinished at a time.",
        ),
        click.option(
            "--jitter",
            callback=values.duration,
            help="Delay each trigger by a random time up to this, such as 30s.",
        ),
        click.option("--template", help="Template of the jobs, by name or id, instead of a type."),
        click.option("--label", help="Free text for people, shown by `schedule list`."),
    ):
        function = option(function)
    return function


@click.group("schedule")
def schedule_group() -> None:
    """Manage schedules: save, preview, pause, run and backfill."""


@command("list", needs_store=False)
async def ls(ctx: CommandContext, /) -> None:
    """List all schedules with their last and next trigger.

    Those that the app declares and no worker has written yet are "declared, not stored yet".
    """
    schedules = await ctx.app.schedules.list() if ctx.app.store.exists() else []
    declared = sorted(ctx.app.schedules.declared_names - {each.name for each in schedules})
    if ctx.out.as_json:
        for each in schedules:
            ctx.out.record(each)
        for name in declared:
            ctx.out.record({"id": None, "plan": {"name": name, **_rule_fields(ctx, name)}})
        return
    columns = ("NAME", "WHEN", "ZONE", "RUNS", "STATE", "LAST", "NEXT", "LABEL")
    rows = [_row(each) for each in schedules] + [_declared_row(ctx, name) for name in declared]
    shown = len(columns) - (not any(each.plan.label for each in schedules))
    ctx.out.table(columns[:shown], sorted(row[:shown] for row in rows))


def _rule_fields(ctx: CommandContext, name: str) -> dict[str, Any]:
    return {"rule": ctx.app.schedules.declared_rule(name), "enabled": None}


def _declared_row(ctx: CommandContext, name: str) -> tuple[str, ...]:
    rule = ctx.app.schedules.declared_rule(name)
    upcoming = preview(rule, SystemClock().now(), limit=1)
    following = _short(upcoming[0].at) if upcoming else "-"
    when = rule.cron or str(rule)
    return name, when, rule.timezone, "-", "declared, not stored yet", "-", following, ""


@command("next", needs_store=False)
@click.argument("name")
@click.option("-n", "--limit", type=LIMIT, default=10, show_default=True)
async def next_slots(ctx: CommandContext, /, name: str, limit: int) -> None:
    """Show the next slots in UTC and in the schedule's time zone, with clock changes."""
    if ctx.app.store.exists():
        _print_upcoming(ctx.out, await ctx.app.schedules.next(name, limit=limit))
        return
    if name not in ctx.app.schedules.declared_names:
        known = did_you_mean(name, ctx.app.schedules.declared_names)
        raise ScheduleNotFound(
            f"no schedule {name} is declared, and there is no store yet; {known}"
        )
    rule = ctx.app.schedules.declared_rule(name)
    _print_upcoming(ctx.out, preview(rule, SystemClock().now(), limit=limit))


@output_command("test")
@click.argument("cron", required=False)
@_rule_options
@click.option("--after", callback=values.time, help="Slots after this time [now].")
@click.option("-n", "--limit", type=LIMIT, default=10, show_default=True)
def test(out: CommandOutput, /, limit: int, after: datetime | None, **when: Any) -> None:
    """Show the next slots of a cron expression or an interval; needs no app and saves nothing."""
    rule = rule_of(cast("RuleOptions", _given(when)))
    _print_upcoming(out, preview(rule, after or SystemClock().now(), limit=limit))


@command("save", creates=True)
@click.argument("name")
@click.argument("cron", required=False)
@click.option("-t", "--type", "job_type", help="Job type to run.")
@click.option("--params", default="{}", help="Params of the job, a JSON object.")
@_rule_options
@_plan_options
async def save(ctx: CommandContext, /, name: str, params: str, **options: Any) -> None:
    """Create or replace a schedule: save nightly "0 2 * * *" -t report --coalesce ….

    --coalesce or --no-coalesce and --misfire-grace are required.
    """
    ctx.require_types()
    given = _given(options)
    for option, advice in _REQUIRED.items():
        if option not in given:
            raise InvalidSchedule(f"give {advice}; late slots have no default policy")
    _print_saved(ctx, await ctx.app.schedules.save(name, params=parse_params(params), **given))


@command("edit")
@click.argument("name")
@click.option("--cron", help="New cron expression.")
@click.option("--name", "new_name", help="New name; the schedule keeps its slots.")
@click.option(
    "--dry-run", is_flag=True, help="Only print the slots that would be added or removed."
)
@_rule_options
@_plan_options
async def edit(ctx: CommandContext, /, name: str, dry_run: bool, **options: Any) -> None:
    """Change a schedule; options left out stay as they are."""
    given = _given(options)
    if not dry_run:
        _print_saved(ctx, await ctx.app.schedules.edit(name, **given))
        return
    rule_options = ("cron", "every", "timezone", "gap", "fold")
    when = {key: given[key] for key in rule_options if key in given}
    for at, side in await ctx.app.schedules.diff(name, **when):
        if ctx.out.as_json:
            ctx.out.record({"at": at, "side": side})
        else:
            ctx.out.line(f"{_MARKS[side]} {_short(at)}")


@command("remove")
@click.argument("name")
async def rm(ctx: CommandContext, /, name: str) -> None:
    """Remove a schedule; the records of its past slots stay."""
    await ctx.app.schedules.remove(name)
    ctx.out.done(f"schedule {name} removed", {"name": name, "removed": True})


@command("run")
@click.argument("name")
@click.option("--slot", callback=values.time, help="This occurrence, such as 2026-03-29T02:00Z.")
@click.option("--next", "is_next", is_flag=True, help="The next slot.")
@click.option("--missed", is_flag=True, help="The latest missed slot.")
async def run(
    ctx: CommandContext, /, name: str, slot: datetime | None, is_next: bool, missed: bool
) -> None:
    """Start a manual run for one slot; the slot is then taken, as by a scheduled run."""
    if (slot is not None) + is_next + missed != 1:
        raise InvalidSchedule("give exactly one slot: --slot TIME, --next or --missed")
    try:
        handle = await ctx.app.schedules.run(name, slot or ("next" if is_next else "missed"))
    except InvalidSchedule as error:
        raise InvalidSchedule(ctx.with_target(str(error))) from error
    job = await ctx.app.get(handle.id)
    if ctx.out.as_json:
        ctx.out.record({"id": handle.id, "slot": job.slot_at})
    else:
        ctx.out.line(handle.id)
        ctx.out.message(f"schedule {name}: job enqueued for slot {_short(job.slot_at)}")


@command("pause")
@click.argument("name")
async def pause(ctx: CommandContext, /, name: str) -> None:
    """Pause a schedule; slots that pass while it is paused do not count as missed."""
    paused = await ctx.app.schedules.pause(name)
    ctx.out.done(f"schedule {name} paused", paused)


@command("resume")
@click.argument("name")
async def resume(ctx: CommandContext, /, name: str) -> None:
    """Resume a paused schedule with its next slot."""
    schedule = await ctx.app.schedules.resume(name)
    ctx.out.done(f"schedule {name} resumed; next slot {_short(schedule.next_slot)}", schedule)


@command("backfill")
@click.argument("name")
@click.option("--since", callback=values.time, required=True, help="Start of the time range.")
@click.option("--until", callback=values.time, required=True, help="End of the time range.")
@click.option("--dry-run", is_flag=True, help="Only print the slots that would run.")
async def backfill(
    ctx: CommandContext, /, name: str, since: datetime, until: datetime, dry_run: bool
) -> None:
    """Enqueue a job for every slot in a time range that has not run."""
    filled = await ctx.app.schedules.backfill(name, since, until, dry_run=dry_run)
    if ctx.out.as_json:
        for each in filled:
            ctx.out.record(each)
        return
    rows = [(_short(f.at), f.was or "-", "yes" if f.runs else "no", f.job_id or "") for f in filled]
    ctx.out.table(("SLOT", "WAS", "RUNS", "JOB"), rows)
    number = sum(each.runs for each in filled)
    outcome = "would be enqueued" if dry_run else "enqueued"
    ctx.out.message(f"{number} of {count(len(filled), 'slot')} {outcome}")


@command("history")
@click.argument("name")
@click.option("-n", "--limit", type=LIMIT, default=20, show_default=True)
@click.option("--before", callback=values.time, help="Only slots before that time.")
async def history(ctx: CommandContext, /, name: str, limit: int, before: datetime | None) -> None:
    """List past slots and their outcomes, latest first."""
    schedule = await ctx.app.schedules.get(name)
    rows = await ctx.app.schedules.history(name, before=before, limit=limit)
    jobs = await ctx.app.store.get([row.job_id for row in rows if row.job_id])
    states = {job.id: job.state for job in jobs if job}
    if ctx.out.as_json:
        for row in rows:
            ctx.out.record(row)
        return
    columns = ("SLOT", "LOCAL", "OUTCOME", ">LATE", "JOB", "STATE", "REASON")
    past = [
        _history_row(row, schedule, states.get(row.job_id) if row.job_id else None) for row in rows
    ]
    ctx.out.table(columns, past)
    counts = Counter(str(row.outcome) for row in rows)
    ctx.out.message(", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())))


_MARKS = {"kept": " ", "added": "+", "removed": "-"}


def _print_saved(ctx: CommandContext, schedule: Schedule) -> None:
    if ctx.out.as_json:
        ctx.out.record(schedule)
        return
    upcoming = f"next {_short(schedule.next_trigger_at)}" if schedule.plan.enabled else "paused"
    ctx.out.line(f"{schedule.name}: {schedule.plan.rule} runs {_job_of(schedule)}; {upcoming}")


def _job_of(schedule: Schedule) -> str:
    plan = schedule.plan
    return f"template {plan.template}" if plan.template else plan.making.type


def _row(schedule: Schedule) -> tuple[str, ...]:
    plan = schedule.plan
    when = plan.rule.cron or str(plan.rule)
    state = "on" if plan.enabled else plan.disabled_reason or "paused"
    if plan.enabled and schedule.next_slot is None:
        state = "ended"
    last = _short(schedule.last_triggered_at)
    upcoming = _short(schedule.next_trigger_at) if plan.enabled else "-"
    job, label = _job_of(schedule), plan.label or ""
    return schedule.name, when, plan.rule.timezone, job, state, last, upcoming, label


def _history_row(row: SlotRecord, schedule: Schedule, state: str | None) -> tuple[str, ...]:
    local = row.slot.at.astimezone(load_zone(schedule.plan.rule.timezone))
    late = "-" if row.outcome is SlotOutcome.MANUAL else format_short(row.actual - row.planned)
    return (
        _short(row.slot.at),
        f"{local:%a %H:%M %z}",
        row.outcome,
        late,
        row.job_id or "-",
        state or "-",
        row.reason or "",
    )


def _print_upcoming(out: CommandOutput, found: list[Upcoming]) -> None:
    if out.as_json:
        for each in found:
            out.record(each)
        return
    rows = [
        (
            _short(each.at) if each.runs else "-",
            f"{each.local:%a %F %H:%M %z}" if each.runs else f"{each.wanted} does not exist",
            each.note or "",
        )
        for each in found
    ]
    out.table(("UTC", "LOCAL", "NOTE"), rows)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _short(at: datetime | None) -> str:
    return "-" if at is None else f"{at:%F %H:%M:%SZ}"


for each in (ls, next_slots, test, save, edit, rm, run, pause, resume, backfill, history):
    schedule_group.add_command(each)
