"""`outlast show`: one job with its runs, events and retry chain."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from outlast.cli.command import CommandContext, command
from outlast.cli.job_notes import (
    kept_note,
    kept_until,
    status_note,
)
from outlast.cli.json_values import error_value, is_unreadable, plain, stored_json
from outlast.cli.output import ago
from outlast.clock import SystemClock
from outlast.core.duration import format_short
from outlast.core.event import EventRecord
from outlast.core.failure import split_error
from outlast.core.job import Job
from outlast.core.progress import describe_progress
from outlast.core.refusals import Refusals
from outlast.core.run import RunRecord, loss_text
from outlast.core.state import RunStatus, State
from outlast.errors import InvalidArgument
from outlast.jobs.explanation import judged, refusals_of
from outlast.store.contract.jobs import Filter

PARAMS_SHOWN: Final = 2000
"""Characters of the params that are shown; `--json` shows all."""

RESULT_SHOWN: Final = 10_000
"""Characters of the result that are shown; `--json` shows all."""


@command("show")
@click.argument("job_id")
async def show_command(ctx: CommandContext, /, job_id: str) -> None:
    """Show a job with its params, runs, events and retry chain."""
    job = await find(ctx, job_id)
    store = ctx.app.store
    runs, events = await store.runs(job.id), await store.events(job.id)
    chain = await store.chain(job.id)
    refusals = (await refusals_of(store, [job])).get(job.id)
    if ctx.out.as_json:
        ctx.out.record({**_to_record(ctx, job, runs, events, chain), "refusals": refusals})
        return
    last, worker = chain[-1] if chain else job, await _worker_note(ctx, job)
    _head(ctx, job, runs, last, worker, refusals)
    _result(ctx, job, runs)
    _table(ctx, "runs", (">TOKEN", "STATUS", "STARTED", "TOOK", "ON", "WHY"), map(_run, runs))
    _table(ctx, "events", ("AT", "KIND", "REASON"), map(_event, events))
    if len(chain) > 1:
        _title(ctx, "retry chain")
        _draw(ctx, chain, job)
    if failed := _last_failed(runs):
        _title(ctx, "last error" if failed is runs[-1] else f"last error, of run {failed.token}")
        ctx.out.block(_error_of(failed) or "")


def _to_record(
    ctx: CommandContext,
    job: Job,
    runs: list[RunRecord],
    events: list[EventRecord],
    chain: list[Job],
) -> dict[str, Any]:
    failed = _last_failed(runs)
    more = {
        "attempt": job.attempt,
        "kept_until": kept_until(chain[-1] if chain else job, ctx.retention),
        "result": stored_json(runs[-1].result) if runs else None,
        "error": error_value(_error_of(failed)) if failed else None,
        "runs": runs,
        "events": events,
        "chain": [each.id for each in chain],
    }
    return {**plain(job), "progress": stored_json(_last_progress(job, runs)), **more}


def _last_failed(runs: Sequence[RunRecord]) -> RunRecord | None:
    return next((run for run in reversed(runs) if _error_of(run)), None)


def _error_of(run: RunRecord) -> str | None:
    """Return the error of a run; why it was lost, if it was lost without an error text."""
    is_lost = run.error is None and run.status is RunStatus.LOST
    return loss_text(run.reason, run.holder, run.boot_id) if is_lost else run.error


def _last_progress(job: Job, runs: Sequence[RunRecord]) -> str | None:
    """Return the progress of the open run, or of the last one if the job has ended."""
    return job.progress or (runs[-1].progress if runs and job.is_final else None)


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


async def _worker_note(ctx: CommandContext, job: Job) -> str | None:
    """Return the worker of a running job, and what is known of its life; None if none runs it."""
    if job.state is not State.RUNNING:
        return None
    now, workers = await ctx.app.store.now(), await ctx.app.store.workers()
    for worker in judged(workers):
        if worker.boot_id == job.boot_id:
            dead = "" if worker.is_alive else "not alive, "
            return f"{worker.instance_id}, {dead}last heartbeat {ago(worker.seen_at, now)} ago"
    return None


def _head(
    ctx: CommandContext,
    job: Job,
    runs: list[RunRecord],
    last: Job,
    worker: str | None,
    refusals: Refusals | None,
) -> None:
    now = SystemClock().now()
    ctx.out.line(f"{job.type}  {job.id}  {job.state}  {status_note(job, now)}".rstrip())
    progress = _last_progress(job, runs)
    facts = {
        "queue": f"{job.queue}, priority {job.priority}, position {job.position}",
        "delivery": f"{job.delivery}, {job.attempt_text}",
        "created": f"{job.created_at:%Y-%m-%d %H:%M:%S} UTC, {ago(job.created_at, now)} ago",
        "due": f"{job.available_at:%Y-%m-%d %H:%M:%S} UTC",
        "worker": worker,
        "unfit": None if refusals is None else refusals.text,
        "params": _mark(job.params) + job.params[:PARAMS_SHOWN],
        "group": job.group_id,
        **_metadata(job),
        "template": job.template_id,
        "progress": None if progress is None else describe_progress(progress),
        "kept": kept_note(last, ctx.retention) if ctx.knows_types else None,
    }
    for name, value in facts.items():
        if value is not None:
            ctx.out.line(f"  {name:<9} {value}")


def _metadata(job: Job) -> dict[str, str]:
    """Return the parts of the metadata that the job has; the stored text if it cannot be read."""
    try:
        parts = {"tags": job.tags, "headers": job.headers, "meta": job.meta}
    except InvalidArgument:
        return {"metadata": f"(not readable) {job.metadata}"}
    return {name: json.dumps(part, ensure_ascii=False) for name, part in parts.items() if part}


def _result(ctx: CommandContext, job: Job, runs: list[RunRecord]) -> None:
    """Print the result of a job that succeeded, as JSON with indentation."""
    if job.state is not State.SUCCEEDED or not runs or runs[-1].result is None:
        return
    value = stored_json(runs[-1].result)
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    _title(ctx, f"result {_mark(runs[-1].result)}".rstrip())
    shown = f"{text[:RESULT_SHOWN]}\n… {len(text):,} characters; --json shows all"
    ctx.out.block(text if len(text) <= RESULT_SHOWN else shown)


def _mark(text: str | None) -> str:
    """Return the mark of a stored text that is shown as it is, because it cannot be read."""
    return "(not readable as JSON) " if is_unreadable(text) else ""


def _title(ctx: CommandContext, name: str) -> None:
    ctx.out.line()
    ctx.out.line(name)


def _table(
    ctx: CommandContext, name: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    if found := list(rows):
        _title(ctx, name)
        ctx.out.table(columns, found)


def _run(run: RunRecord) -> tuple[str, ...]:
    took = "" if run.finished_at is None else format_short(run.finished_at - run.started_at)
    why = run.reason or (f"exit code {run.exit_code}" if run.exit_code is not None else "")
    if error := _error_of(run):
        why = split_error(error).summary
    return str(run.token), run.status, f"{run.started_at:%H:%M:%S.%f}"[:-3], took, run.holder, why


def _event(event: EventRecord) -> tuple[str, ...]:
    return f"{event.at:%Y-%m-%d %H:%M:%S}", event.kind, event.reason or ""


def _draw(ctx: CommandContext, chain: list[Job], shown: Job) -> None:
    """Draw the retry chain, from the first job to the last, one per line."""
    for number, job in enumerate(chain):
        branch = "" if not number else "   " * (number - 1) + "└─ "
        here = "  ← this one" if job.id == shown.id else ""
        ctx.out.line(f"  {branch}{job.id}  {job.state}{_why(job)}{here}")


def _why(job: Job) -> str:
    return f" ({job.reason})" if job.reason else ""
