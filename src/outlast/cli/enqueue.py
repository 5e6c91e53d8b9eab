"""`outlast enqueue`: validate the params and store a job."""

import asyncio
import json
from datetime import timedelta
from itertools import count
from typing import Any

import click

from outlast.cli import values
from outlast.cli.command import CommandContext, Exit, command
from outlast.cli.queue_names import CREATE, CREATE_HINT, require_queue
from outlast.core.explain import GateCode
from outlast.core.job import Job
from outlast.core.limits import MAX_DEPTH
from outlast.core.state import WAITING, State
from outlast.errors import InvalidArgument, WaitTimeout
from outlast.jobs.handle import Handle

POLL_INTERVAL = "200ms"
"""How often `--wait` reads the progress."""

POLLS_PER_EXPLANATION = 5
"""A job that waits is explained after the first second, and then once a second."""


@command("enqueue", creates=True)
@click.argument("type_name", metavar="TYPE")
@click.argument("params", default="{}")
@click.option(
    "--in", "delay", callback=values.duration, help="Delay before the job is due, such as 5m."
)
@click.option(
    "--at",
    callback=values.time,
    help="Time when the job is due, such as 2026-11-16T08:00Z.",
)
@click.option("--key", help="Unique key: at most one job ever has it.")
@click.option("--queue", help="Queue, instead of the type's own.")
@CREATE
@click.option("--priority", type=int, help="Priority, instead of the type's own.")
@click.option("--wait", is_flag=True, help="Wait for the end, show progress, exit 1 on failure.")
@click.option(
    "--timeout",
    "time_limit",
    callback=values.duration,
    help="With --wait: how long to wait, such as 5m; then exit 75. The job goes on.",
)
async def enqueue_command(
    ctx: CommandContext,
    /,
    type_name: str,
    params: str,
    wait: bool,
    time_limit: timedelta | None,
    create: bool,
    **options: Any,
) -> int:
    """Enqueue a job of TYPE with PARAMS, a JSON object, such as '{"invoice_id": 3}'.

    The params are validated against the handler's signature before the job is stored.
    """
    ctx.require_types()
    job_type = ctx.app.registry.get(type_name)
    if options["queue"] is not None and not create:
        await require_queue(ctx, options["queue"], CREATE_HINT)
    handle = await job_type.options(**options).enqueue(**parse_params(params))
    if not handle.created:
        ctx.out.message("the key is taken; this is the job that has it")
    if ctx.out.as_json:
        ctx.out.record({"id": handle.id, "created": handle.created})
    else:
        ctx.out.line(handle.id)
    return await _follow(ctx, handle, time_limit) if wait else Exit.OK


def parse_params(text: str) -> dict[str, Any]:
    """Parse the params of a job: a JSON object.

    Raises:
        InvalidArgument: The text is not JSON, not an object, or nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise InvalidArgument(
            f"the params are nested too deeply; at most {MAX_DEPTH} levels are allowed"
        ) from None
    except ValueError as error:
        raise InvalidArgument(
            f"the params are not valid JSON ({error}); quote them: '{{\"n\": 1}}'"
        ) from error
    if not isinstance(value, dict):
        raise InvalidArgument(
            f"the params are a JSON {type(value).__name__}; write an object: '{{\"n\": 1}}'"
        )
    return value


async def _follow(ctx: CommandContext, handle: Handle[Any], time_limit: timedelta | None) -> int:
    try:
        async with asyncio.timeout(None if time_limit is None else time_limit.total_seconds()):
            job = await _wait_for_end(ctx, handle)
    except TimeoutError:
        raise WaitTimeout(
            f"job {handle.id} has not ended yet; it goes on. See `outlast explain {handle.id}"
            f"{ctx.target_option}`"
        ) from None
    ctx.out.message(f"{job.state} {job.reason or ''}".rstrip())
    if job.state is not State.SUCCEEDED:
        return Exit.FAILED
    result = (await ctx.app.runs(job.id))[-1].result
    if result is not None:
        ctx.out.line(result)
    return Exit.OK


async def _wait_for_end(ctx: CommandContext, handle: Handle[Any]) -> Job:
    """Wait until the job has ended and return it; print its progress and why it waits."""
    shown: str | None = None
    for poll in count():
        try:
            return await handle.wait(POLL_INTERVAL)
        except WaitTimeout:
            job = await handle.read()
        now = job.progress and f"progress {job.progress}"
        if job.state in WAITING and poll % POLLS_PER_EXPLANATION == POLLS_PER_EXPLANATION - 1:
            now = await _why_it_waits(ctx, job)
        if now is not None and now != shown:
            ctx.out.message(now)
            shown = now
    raise AssertionError  # the loop is endless


async def _why_it_waits(ctx: CommandContext, job: Job) -> str | None:
    stop = (await ctx.app.explain(job.id)).stop
    if stop is None or stop.code in (GateCode.ENDED, GateCode.RUNNING):
        return None
    clears = f"; clears when: {stop.clears}" if stop.clears else ""
    return ctx.with_target(f"waiting: {stop.text}{clears}")
