"""`outlast show`: one job with its runs, events and retry chain."""

import re
from datetime import datetime
from typing import Final

import click

from outlast.cli.command import CommandContext, command
from outlast.cli.jobs import status_note
from outlast.cli.json_values import plain
from outlast.cli.output import ago
from outlast.clock import SystemClock
from outlast.core.duration import format_short
from outlast.core.event import EventRecord
from outlast.core.job import Job
from outlast.core.run import RunRecord
from outlast.errors import InvalidArgument
from outlast.store.contract.jobs import Filter

PARAMS_SHOWN: Final = 2000
"""Characters of the params that are shown; `--json` shows all."""


@command("show")
@click.argument("job_id")
async def show_command(ctx: CommandContext, /, job_id: str) -> None:
    """Show a job with its params, runs, events and retry chain."""
    job = await find(ctx, job_id)
    store = ctx.app.store
    runs, events = await store.runs(job.id), await store.events(job.id)
    chain = await store.chain(job.id)
    if ctx.out.as_json:
        more = {"runs": plain(runs), "events": plain(events), "chain": [each.id for each in chain]}
        ctx.out.record({**plain(job), **more})
        return
    now = SystemClock().now()
    _head(ctx, job, now)
    if runs:
        ctx.out.line()
        ctx.out.line("runs")
        ctx.out.table((">TOKEN", "STATUS", "STARTED", "TOOK", "ON", "WHY"), map(_run, runs))
    if events:
        ctx.out.line()
        ctx.out.line("events")
        ctx.out.table(("AT", "KIND", "REASON"), map(_event, events))
    if len(chain) > 1:
        ctx.out.line()
        ctx.out.line("retry chain")
        _draw(ctx, chain, job)
    if error := next((run.error for run in reversed(runs) if run.error), None):
        ctx.out.line()
        ctx.out.line("last error")
        ctx.out.block(error)


async def find(ctx: CommandContext, text: str) -> Job:
    """Return the job with this id, or the only job whose id starts with it.

    Raises:
        InvalidArgument: Several ids start with the text.
        LookupError: There is no such job.
    """
    prefix = Filter(prefix=text) if re.fullmatch(r"[0-9a-f-]{2,35}", text) else None
    found = await ctx.app.store.find(prefix, limit=2) if prefix else []
    if len(found) > 1:
        raise InvalidArgument(f"several job ids start with {text}; give more of the id")
    return found[0] if found else await ctx.app.get(text)


def _head(ctx: CommandContext, job: Job, now: datetime) -> None:
    ctx.out.line(f"{job.type}  {job.id}  {job.state}  {status_note(job, now)}".rstrip())
    facts = {
        "queue": f"{job.queue}, priority {job.priority}, position {job.position}",
        "delivery": f"{job.delivery}, {job.max_attempts or 'unlimited'} attempts",
        "created": f"{job.created_at:%Y-%m-%d %H:%M:%S} UTC, {ago(job.created_at, now)} ago",
        "due": f"{job.available_at:%Y-%m-%d %H:%M:%S} UTC",
        "params": job.params[:PARAMS_SHOWN],
        "group": job.group_id,
        "template": job.template_id,
        "progress": job.progress,
    }
    for name, value in facts.items():
        if value is not None:
            ctx.out.line(f"  {name:<9} {value}")


def _run(run: RunRecord) -> tuple[str, ...]:
    took = "" if run.finished_at is None else format_short(run.finished_at - run.started_at)
    why = run.reason or (f"exit code {run.exit_code}" if run.exit_code is not None else "")
    return str(run.token), run.status, f"{run.started_at:%H:%M:%S.%f}"[:-3], took, run.holder, why


def _event(event: EventRecord) -> tuple[str, ...]:
    return f"{event.at:%Y-%m-%d %H:%M:%S}", event.kind, event.reason or ""


def _draw(ctx: CommandContext, chain: list[Job], shown: Job) -> None:
    """Draw the retry chain, from the first job to the last, one per line."""
    for number, job in enumerate(chain):
        branch = "" if not number else "   " * (number - 1) + "└─ "
        here = "  ← this one" if job.id == shown.id else ""
        ctx.out.line(f"  {branch}{job.id}  {job.state} ({job.reason or 'open'}){here}")
