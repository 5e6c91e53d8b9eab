"""`outlast schedule`: what runs when, what became of it, and running it by hand."""

from collections import Counter
from datetime import datetime
from typing import Any

import click

from outlast.cli.command import CommandContext, verb
from outlast.cli.enqueue import parse_params
from outlast.core.duration import format_short
from outlast.core.schedule import ADVISED_GRACE, Schedule, SlotOutcome, SlotRecord
from outlast.errors import InvalidSchedule
from outlast.scheduler.preview import Upcoming
from outlast.scheduler.timezones import load_zone

LIMIT = click.IntRange(1, 1000)

_ADVISED = f"{ADVISED_GRACE.seconds}s suits most frequent jobs"
_MUST_BE_SAID = {
    "coalesce": "--coalesce (one run for several late slots) or --no-coalesce (each runs)",
    "misfire_grace": f"--misfire-grace (how late a slot may still run; {_ADVISED})",
}


def _moment(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time; write 2026-03-29T02:00+01:00") from None
    if at.tzinfo is None:
        raise click.BadParameter(f"{value!r} has no time zone; write {value}Z or {value}+02:00")
    return at


def _when(function: Any) -> Any:
    """What says when."""
    for option in (
        click.option("--every", help="An interval instead of an expression, such as 15m."),
        click.option("--timezone", "-z", help="Such as Europe/Berlin [UTC]."),
        click.option("--gap", type=click.Choice(["skip", "run_after"]), help="Times left out."),
        click.option("--fold", type=click.Choice(["first", "second", "both"]), help="Times twice."),
    ):
        function = option(function)
    return function


def _settings(function: Any) -> Any:
    """What else may be said of a schedule."""
    for option in (
        click.option("--coalesce/--no-coalesce", default=None, help="One run for many missed."),
        click.option("--misfire-grace", help=f"How late a slot may still run; {_ADVISED}."),
        click.option("--max-instances", type=click.IntRange(1, 100), help="Unfinished at a time."),
        click.option("--jitter", help="Put triggers off by up to so much."),
        click.option("--template", help="Make its jobs of a template."),
    ):
        function = option(function)
    return function


@click.group("schedule")
def command() -> None:
    """What runs when: look, try, run by hand, pause, fill in."""


@verb("ls")
async def ls(desk: CommandContext, /) -> None:
    """Every schedule, and when it is triggered next."""
    schedules = await desk.app.schedules.list()
    if desk.out.as_json:
        for each in schedules:
            desk.out.record(each)
        return
    columns = ("NAME", "WHEN", "ZONE", "RUNS", "STATE", "LAST", "NEXT")
    desk.out.table(columns, [_row(each) for each in schedules])


@verb("next")
@click.argument("name")
@click.option("-n", "--limit", type=LIMIT, default=10, show_default=True)
async def next_slots(desk: CommandContext, /, name: str, limit: int) -> None:
    """The next slots in the schedule's own zone, with what a change of the clock does."""
    _upcoming(desk, await desk.app.schedules.next(name, limit=limit))


@verb("test", creates=True)
@click.argument("cron", required=False)
@_when
@click.option("-n", "--limit", type=LIMIT, default=10, show_default=True)
async def test(desk: CommandContext, /, cron: str | None, limit: int, **when: Any) -> None:
    """Try an expression: its next slots, before anybody saves it."""
    _upcoming(desk, await desk.app.schedules.test(limit=limit, cron=cron, **_given(when)))


@verb("save", creates=True)
@click.argument("name")
@click.argument("cron", required=False)
@click.option("-t", "--type", "job_type", help="The job type to run.")
@click.option("--params", default="{}", help="Its params, a JSON object.")
@_when
@_settings
async def save(desk: CommandContext, /, name: str, params: str, **said: Any) -> None:
    """Create a schedule, or write over it: save nightly "0 2 * * *" -t report --coalesce …"""
    desk.require_types()
    wished = _given(said)
    for what, advice in _MUST_BE_SAID.items():
        if what not in wished:
            raise InvalidSchedule(f"say {advice}; what becomes of late slots has no default")
    _written(desk, await desk.app.schedules.save(name, params=parse_params(params), **wished))


@verb("edit")
@click.argument("name")
@click.option("--cron", help="Another expression.")
@click.option("--name", "new_name", help="Another name; its slots stay its own.")
@click.option("--dry-run", is_flag=True, help="Only say which slots would come and go.")
@_when
@_settings
async def edit(desk: CommandContext, /, name: str, dry_run: bool, **said: Any) -> None:
    """Change what is given and leave the rest."""
    wished = _given(said)
    if not dry_run:
        _written(desk, await desk.app.schedules.edit(name, **wished))
        return
    when = {
        key: wished[key] for key in ("cron", "every", "timezone", "gap", "fold") if key in wished
    }
    for at, side in await desk.app.schedules.diff(name, **when):
        if desk.out.as_json:
            desk.out.record({"at": at, "side": side})
        else:
            desk.out.line(f"{_MARKS[side]} {_short(at)}")


@verb("rm")
@click.argument("name")
async def rm(desk: CommandContext, /, name: str) -> None:
    """Remove a schedule; its past slots stay."""
    await desk.app.schedules.remove(name)
    desk.out.message(f"{name} is gone")


@verb("run")
@click.argument("name")
@click.option("--slot", callback=_moment, help="The slot it takes, such as 2026-03-29T02:00Z.")
@click.option("--next", "is_next", is_flag=True, help="The slot that comes next.")
@click.option("--missed", is_flag=True, help="The latest that was missed.")
async def run(
    desk: CommandContext, /, name: str, slot: datetime | None, is_next: bool, missed: bool
) -> None:
    """Run it by hand for one slot, which is then claimed as any other."""
    if (slot is not None) + is_next + missed != 1:
        raise InvalidSchedule("say which slot it takes: --slot TIME, --next or --missed")
    handle = await desk.app.schedules.run(name, slot or ("next" if is_next else "missed"))
    job = await desk.app.get(handle.id)
    if desk.out.as_json:
        desk.out.record({"id": handle.id, "slot": job.slot_at})
    else:
        desk.out.line(handle.id)
        desk.out.message(f"{name}: {_short(job.slot_at)} is claimed; a worker runs it")


@verb("pause")
@click.argument("name")
async def pause(desk: CommandContext, /, name: str) -> None:
    """Trigger nothing until it is resumed; slots that pass meanwhile are not missed."""
    await desk.app.schedules.pause(name)
    desk.out.message(f"{name} is paused")


@verb("resume")
@click.argument("name")
async def resume(desk: CommandContext, /, name: str) -> None:
    """Go on with the next slot from now."""
    schedule = await desk.app.schedules.resume(name)
    desk.out.message(f"{name} is resumed; next {_short(schedule.next_slot)}")


@verb("backfill")
@click.argument("name")
@click.option("--since", callback=_moment, required=True, help="The first slot, or before it.")
@click.option("--until", callback=_moment, required=True, help="The last slot, or after it.")
@click.option("--dry-run", is_flag=True, help="Only say which slots would run.")
async def backfill(
    desk: CommandContext, /, name: str, since: datetime, until: datetime, dry_run: bool
) -> None:
    """Run every slot of a time that nobody has claimed."""
    filled = await desk.app.schedules.backfill(name, since, until, dry_run=dry_run)
    if desk.out.as_json:
        for each in filled:
            desk.out.record(each)
        return
    rows = [(_short(f.at), f.was or "-", "yes" if f.runs else "no", f.job_id or "") for f in filled]
    desk.out.table(("SLOT", "WAS", "RUNS", "JOB"), rows)
    number = sum(each.runs for each in filled)
    desk.out.message(f"{number} of {len(filled)} slots {'would run' if dry_run else 'run now'}")


@verb("history")
@click.argument("name")
@click.option("-n", "--limit", type=LIMIT, default=20, show_default=True)
@click.option("--before", callback=_moment, help="Only slots before that time.")
async def history(desk: CommandContext, /, name: str, limit: int, before: datetime | None) -> None:
    """What became of past slots, the latest first."""
    schedule = await desk.app.schedules.get(name)
    rows = await desk.app.schedules.history(name, before=before, limit=limit)
    jobs = await desk.app.store.get([row.job_id for row in rows if row.job_id])
    states = {job.id: job.state for job in jobs if job}
    if desk.out.as_json:
        for row in rows:
            desk.out.record(row)
        return
    columns = ("SLOT", "LOCAL", "OUTCOME", ">LATE", "JOB", "STATE", "REASON")
    past = [_past(row, schedule, states.get(row.job_id) if row.job_id else None) for row in rows]
    desk.out.table(columns, past)
    counts = Counter(str(row.outcome) for row in rows)
    desk.out.message(", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())))


_MARKS = {"kept": " ", "added": "+", "removed": "-"}


def _written(desk: CommandContext, schedule: Schedule) -> None:
    if desk.out.as_json:
        desk.out.record(schedule)
        return
    comes = f"next {_short(schedule.next_trigger_at)}" if schedule.plan.enabled else "it is paused"
    desk.out.line(f"{schedule.name}: {schedule.plan.rule} runs {_runs(schedule)}; {comes}")


def _runs(schedule: Schedule) -> str:
    plan = schedule.plan
    return f"template {plan.template}" if plan.template else plan.making.type


def _row(schedule: Schedule) -> tuple[str, ...]:
    plan = schedule.plan
    when = plan.rule.cron or str(plan.rule)
    runs = _runs(schedule)
    state = "on" if plan.enabled else "paused"
    if plan.enabled and schedule.next_slot is None:
        state = "over"
    last, following = schedule.last_triggered_at, schedule.next_trigger_at
    shown = _short(following) if plan.enabled else "-"
    return schedule.name, when, plan.rule.timezone, runs, state, _short(last), shown


def _past(row: SlotRecord, schedule: Schedule, state: str | None) -> tuple[str, ...]:
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


def _upcoming(desk: CommandContext, found: list[Upcoming]) -> None:
    if desk.out.as_json:
        for each in found:
            desk.out.record(each)
        return
    rows = [
        (
            _short(each.at) if each.runs else "-",
            f"{each.local:%a %F %H:%M %z}" if each.runs else f"{each.wanted} does not exist",
            each.note or "",
        )
        for each in found
    ]
    desk.out.table(("UTC", "LOCAL", "NOTE"), rows)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _short(at: datetime | None) -> str:
    return "-" if at is None else f"{at:%F %H:%M:%SZ}"


for each in (ls, next_slots, test, save, edit, rm, run, pause, resume, backfill, history):
    command.add_command(each)
