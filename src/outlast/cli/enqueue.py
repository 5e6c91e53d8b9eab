"""`outlast enqueue`: validate the params and store a job."""

import json
from typing import Any

import click

from outlast.cli.command import CommandContext, Exit, command
from outlast.core.job import Job
from outlast.core.limits import MAX_DEPTH
from outlast.core.state import State
from outlast.errors import InvalidArgument, WaitTimeout
from outlast.jobs.handle import Handle

POLL_INTERVAL = "200ms"
"""How often `--wait` reads the progress."""


@command("enqueue", creates=True)
@click.argument("type_name", metavar="TYPE")
@click.argument("params", default="{}")
@click.option("--in", "delay", help="Delay before the job is due, such as 5m.")
@click.option(
    "--at",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z"]),
    help="Time when the job is due, such as 2026-11-16T08:00:00+00:00.",
)
@click.option("--key", help="Unique key: at most one job ever has it.")
@click.option("--queue", help="Queue, instead of the type's own.")
@click.option("--priority", type=int, help="Priority, instead of the type's own.")
@click.option("--wait", is_flag=True, help="Wait for the end, show progress, exit 1 on failure.")
async def enqueue_command(
    ctx: CommandContext, /, type_name: str, params: str, wait: bool, **options: Any
) -> int:
    """Enqueue a job of TYPE with PARAMS, a JSON object, such as '{"invoice_id": 3}'.

    The params are validated against the handler's signature before the job is stored.
    """
    ctx.require_types()
    job_type = ctx.app.registry.get(type_name)
    handle = await job_type.options(**options).enqueue(**parse_params(params))
    if not handle.created:
        ctx.out.message("the key is taken; this is the job that has it")
    if ctx.out.as_json:
        ctx.out.record({"id": handle.id, "created": handle.created})
    else:
        ctx.out.line(handle.id)
    return await _follow(ctx, handle) if wait else Exit.OK


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


async def _follow(ctx: CommandContext, handle: Handle[Any]) -> int:
    job = await _wait_for_end(ctx, handle)
    ctx.out.message(f"{job.state} {job.reason or ''}".rstrip())
    if job.state is not State.SUCCEEDED:
        return Exit.FAILED
    result = (await ctx.app.runs(job.id))[-1].result
    if result is not None:
        ctx.out.line(result)
    return Exit.OK


async def _wait_for_end(ctx: CommandContext, handle: Handle[Any]) -> Job:
    """Wait until the job has ended and return it; print its progress meanwhile."""
    shown: str | None = None
    while True:
        try:
            return await handle.wait(POLL_INTERVAL)
        except WaitTimeout:
            now = (await handle.read()).progress
        if now is not None and now != shown:
            ctx.out.message(f"progress {now}")
            shown = now
