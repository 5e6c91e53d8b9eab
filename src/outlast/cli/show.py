"""`outlast show`: everything about one job."""

import json
import re
from datetime import datetime

import click

from outlast.cli.command import CommandContext, verb
from outlast.cli.jobs import status_note
from outlast.cli.output import ago, plain
from outlast.clock import SystemClock
from outlast.core.duration import format_short
from outlast.core.event import EventRecord
from outlast.core.job import Job
from outlast.core.run import RunRecord
from outlast.errors import InvalidArgument
from outlast.store.contract.jobs import Filter


@verb("show")
@click.argument("job_id")
async def command(desk: CommandContext, /, job_id: str) -> None:
    """Show a job: what was asked, its runs, everything unusual, and its retry chain drawn."""
    job = await find(desk, job_id)
    store = desk.app.store
    runs, events = await store.runs(job.id), await store.events(job.id)
    chain = await store.chain(job.id)
    if desk.out.as_json:
        more = {"runs": plain(runs), "events": plain(events), "chain": [each.id for each in chain]}
        desk.out.record({**plain(job), **more})
        return
    now = SystemClock().now()
    _head(desk, job, now)
    if runs:
        desk.out.line("\nruns")
        desk.out.table((">TOKEN", "STATUS", "STARTED", "TOOK", "ON", "WHY"), map(_run, runs))
    if events:
        desk.out.line("\nevents")
        desk.out.table(("AT", "KIND", "REASON"), map(_event, events))
    if len(chain) > 1:
        desk.out.line("\nlineage")
        _draw(desk, chain, job)
    if error := next((run.error for run in reversed(runs) if run.error), None):
        desk.out.line(f"\nlast error\n{error.rstrip()}")


async def find(desk: CommandContext, text: str) -> Job:
    """The job of that id, or the only one whose id begins so."""
    begins = Filter(prefix=text) if re.fullmatch(r"[0-9a-f-]{2,35}", text) else None
    found = await desk.app.store.find(begins, limit=2) if begins else []
    if len(found) > 1:
        raise InvalidArgument(f"{text} begins the id of several jobs; write more of it")
    return found[0] if found else await desk.app.get(text)


def _head(desk: CommandContext, job: Job, now: datetime) -> None:
    desk.out.line(f"{job.type}  {job.id}  {job.state}  {status_note(job, now)}".rstrip())
    facts = {
        "queue": f"{job.queue}, priority {job.priority}, position {job.position}",
        "delivery": f"{job.delivery}, {job.max_attempts or 'unlimited'} attempts",
        "created": f"{job.created_at:%Y-%m-%d %H:%M:%S} UTC, {ago(job.created_at, now)} ago",
        "due": f"{job.available_at:%Y-%m-%d %H:%M:%S} UTC",
        "params": json.dumps(json.loads(job.params), ensure_ascii=False)[:2000],
        "group": job.group_id,
        "template": job.template_id,
        "progress": job.progress,
    }
    for name, value in facts.items():
        if value is not None:
            desk.out.line(f"  {name:<9} {value}")


def _run(run: RunRecord) -> tuple[str, ...]:
    took = "" if run.finished_at is None else format_short(run.finished_at - run.started_at)
    why = run.reason or (f"exit code {run.exit_code}" if run.exit_code is not None else "")
    return str(run.token), run.status, f"{run.started_at:%H:%M:%S.%f}"[:-3], took, run.holder, why


def _event(event: EventRecord) -> tuple[str, ...]:
    return f"{event.at:%Y-%m-%d %H:%M:%S}", event.kind, event.reason or ""


def _draw(desk: CommandContext, chain: list[Job], shown: Job) -> None:
    """Root to tip, one link a line."""
    for number, job in enumerate(chain):
        branch = "" if not number else "   " * (number - 1) + "└─ "
        here = "  ← this one" if job.id == shown.id else ""
        desk.out.line(f"  {branch}{job.id}  {job.state} ({job.reason or 'open'}){here}")
