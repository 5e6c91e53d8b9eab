"""`outlast enqueue`: store a job, checked before it is written."""

import json
from typing import Any

import click

from outlast.cli.command import CommandContext, Exit, verb
from outlast.core.job import Job
from outlast.core.state import State
from outlast.errors import InvalidArgument, WaitTimeout
from outlast.jobs.handle import Handle

POLL = "200ms"


@verb("enqueue", creates=True)
@click.argument("type_name", metavar="TYPE")
@click.argument("params", default="{}")
@click.option("--in", "delay", help="Due after a while, such as 5m.")
@click.option(
    "--at", type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z"]), help="2026-11-16T08:00:00+00:00"
)
@click.option("--key", help="One job for ever under this key.")
@click.option("--queue", help="Another queue than the type's.")
@click.option("--priority", type=int)
@click.option("--wait", is_flag=True, help="Wait for its end, show progress, exit by its outcome.")
async def command(
    desk: CommandContext, /, type_name: str, params: str, wait: bool, **options: Any
) -> int:
    """Enqueue a job of TYPE with PARAMS, a JSON object, such as '{"invoice_id": 3}'.

    They are checked against the handler's signature before anything is written.
    """
    desk.require_types()
    job_type = desk.app.registry.get(type_name)
    handle = await job_type.options(**options).enqueue(**parse_params(params))
    if not handle.created:
        desk.out.message("its key is taken; this is the job that holds it")
    if desk.out.as_json:
        desk.out.record({"id": handle.id, "created": handle.created})
    else:
        desk.out.line(handle.id)
    return await _follow(desk, handle) if wait else Exit.OK


def parse_params(text: str) -> dict[str, Any]:
    """The JSON object in that text; InvalidArgument says what it is instead."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(
            f"the params are not JSON ({error}); quote them: '{{\"n\": 1}}'"
        ) from error
    if not isinstance(value, dict):
        raise InvalidArgument(f"the params are a {type(value).__name__}; write a JSON object")
    return value


async def _follow(desk: CommandContext, handle: Handle[Any]) -> int:
    job = await _ended(desk, handle)
    desk.out.message(f"{job.state} {job.reason or ''}".rstrip())
    if job.state is not State.SUCCEEDED:
        return Exit.FAILED
    result = (await desk.app.runs(job.id))[-1].result
    if result is not None:
        desk.out.line(result)
    return Exit.OK


async def _ended(desk: CommandContext, handle: Handle[Any]) -> Job:
    """The job once it has ended; until then, its progress is told."""
    shown: str | None = None
    while True:
        try:
            return await handle.wait(POLL)
        except WaitTimeout:
            now = (await handle.read()).progress
        if now is not None and now != shown:
            desk.out.message(f"progress {now}")
            shown = now
