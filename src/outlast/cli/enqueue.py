"""`outlast enqueue`: validate the params and store a job."""

import asyncio
import json
import re
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from shlex import quote
from typing import Any

import click

from outlast.cli import values
from outlast.cli.command import CommandContext, Exit, command
from outlast.cli.json_values import error_value, stored_json
from outlast.cli.queue_names import CREATE, CREATE_HINT, require_queue
from outlast.clock import SystemClock
from outlast.core.delivery import Delivery
from outlast.core.explain import GateCode
from outlast.core.job import Job
from outlast.core.limits import MAX_DEPTH
from outlast.core.progress import describe_progress
from outlast.core.state import WAITING, State
from outlast.errors import InvalidArgument, WaitTimeout
from outlast.jobs.handle import Handle

POLL_INTERVAL = "200ms"
"""How often `--wait` reads the progress."""

POLLS_PER_EXPLANATION = 5
"""A job that waits is explained after the first second, and then once a second."""


@command("enqueue", creates=True)
@click.argument("type_name", metavar="TYPE")
@click.argument("params", nargs=-1)
@click.option(
    "--in", "delay", callback=values.duration, help="Delay before the job is due, such as 5m."
)
@click.option(
    "--at",
    callback=values.time,
    help="Time when the job is due, such as 2026-11-16T08:00Z.",
)
@click.option(
    "--slot",
    callback=values.time,
    help="Slot of a type with delivery once, such as 2026-11-16T08:00Z; each runs once.",
)
@click.option("--key", help="Unique key: at most one job ever has it.")
@click.option("--queue", help="Queue, instead of the type's own.")
@CREATE
@click.option("--priority", type=int, help="Priority, instead of the type's own.")
@click.option("--tag", "tags", multiple=True, help="Tag to find the job by; may be repeated.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=values.pairs,
    metavar="NAME=TEXT",
    help="Header for middleware and other programs; may be repeated.",
)
@click.option(
    "--meta",
    callback=values.json_pairs,
    multiple=True,
    metavar="NAME=VALUE",
    help="Meta value to find the job by, JSON or text, such as tenant=acme; may be repeated.",
)
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
    params: tuple[str, ...],
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
    given = parse_params(*params)
    if job_type.policy.delivery is Delivery.ONCE and options["slot"] is None:
        raise InvalidArgument(
            f'"{type_name}" is delivered once per slot; give one that has not run, such as '
            f"--slot {SystemClock().now():%Y-%m-%dT%H:%MZ}"
        )
    if options["queue"] is not None and not create:
        await require_queue(ctx, options["queue"], CREATE_HINT)
    handle = await job_type.options(**options).enqueue(**given)
    if not handle.created:
        taken = "key" if options["slot"] is None else "slot"
        ctx.out.message(f"the {taken} is taken; this is the job that has it")
    if ctx.out.as_json:
        ctx.out.record({"id": handle.id, "created": handle.created})
    else:
        ctx.out.line(handle.id)
    return await _follow(ctx, handle, time_limit) if wait else Exit.OK


def parse_params(*texts: str) -> dict[str, Any]:
    """Parse the params of a job: a JSON object in one argument, or no argument at all.

    Raises:
        InvalidArgument: The text is not JSON, not an object, or nested too deeply.
    """
    text = " ".join(texts) if texts else "{}"
    try:
        value = json.loads(text)
    except RecursionError:
        raise InvalidArgument(
            f"the params are nested too deeply; at most {MAX_DEPTH} levels are allowed"
        ) from None
    except ValueError as error:
        raise InvalidArgument(
            f"the params are not valid JSON ({error}); {_as_json(texts)}"
        ) from error
    if not isinstance(value, dict):
        raise InvalidArgument(
            f"the params are a JSON {type(value).__name__}; write an object: '{{\"n\": 1}}'"
        )
    return value


_PAIR = re.compile(r"(?:--)?([A-Za-z_]\w*)[=:](.*)", re.DOTALL)
"""A param as other tools take it: `name=Ada`."""


def _as_json(words: Sequence[str]) -> str:
    """Return how to write params that were given as `name=value`."""
    pairs = [_PAIR.fullmatch(word) for word in words]
    found = {pair[1]: _value(pair[2]) for pair in pairs if pair is not None}
    if len(found) != len(words):
        return "quote them: '{\"n\": 1}'"
    return f"did you mean {quote(json.dumps(found, ensure_ascii=False))}?"


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict | list) else value


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
    runs = await ctx.app.runs(job.id)
    result, error = (runs[-1].result, runs[-1].error) if runs else (None, None)
    if ctx.out.as_json:
        end = {"id": job.id, "state": job.state, "reason": job.reason}
        ctx.out.record({**end, "result": stored_json(result), "error": error_value(error)})
    elif job.state is State.SUCCEEDED and result is not None:
        ctx.out.line(result)
    return Exit.OK if job.state is State.SUCCEEDED else Exit.FAILED


async def _wait_for_end(ctx: CommandContext, handle: Handle[Any]) -> Job:
    """Wait until the job has ended and return it; print its progress and why it waits."""
    shown: str | None = None
    for poll in count():
        try:
            return await handle.wait(POLL_INTERVAL)
        except WaitTimeout:
            job = await handle.read()
        now = job.progress and f"progress {describe_progress(job.progress)}"
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
