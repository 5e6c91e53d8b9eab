"""`outlast template`: stored job definitions."""

import json
from typing import Any

import click

from outlast.cli.command import CommandContext, verb
from outlast.cli.enqueue import parse_params


@click.group("template")
def command() -> None:
    """Stored job definitions: save, list, use."""


@verb("ls")
async def ls(desk: CommandContext, /) -> None:
    """Every template."""
    templates = await desk.app.templates.list()
    if desk.out.as_json:
        for each in templates:
            desk.out.record(each)
        return
    desk.out.table(
        ("NAME", "TYPE", "QUEUE", ">PRIORITY", "UPDATED", "PARAMS"),
        [
            (
                t.name,
                t.type,
                t.queue or "",
                "" if t.priority is None else str(t.priority),
                f"{t.updated_at:%F %T}",
                t.params,
            )
            for t in templates
        ],
    )


@verb("save", creates=True)
@click.argument("name")
@click.argument("type_name", metavar="TYPE")
@click.argument("params", default="{}")
@click.option("--queue")
@click.option("--priority", type=int)
@click.option("--max-attempts", type=int)
async def save(
    desk: CommandContext, /, name: str, type_name: str, params: str, **options: Any
) -> None:
    """Save a template of TYPE with PARAMS, a JSON object that may leave some out."""
    desk.require_types()
    job_type = desk.app.registry.get(type_name)
    desk.out.record(
        await desk.app.templates.save(name, job_type, params=parse_params(params), **options)
    )


@verb("rm")
@click.argument("name")
async def rm(desk: CommandContext, /, name: str) -> None:
    """Remove a template; jobs made from it stay as they are."""
    await desk.app.templates.remove(name)
    desk.out.message(f"{name} is gone")


@verb("enqueue")
@click.argument("name")
@click.argument("params", default="{}")
async def enqueue(desk: CommandContext, /, name: str, params: str) -> None:
    """Enqueue a job from a template; PARAMS, a JSON object, go over the template's own."""
    desk.require_types()
    handle = await desk.app.templates.enqueue(name, **parse_params(params))
    desk.out.line(json.dumps({"id": handle.id}) if desk.out.as_json else handle.id)


for each in (ls, save, rm, enqueue):
    command.add_command(each)
