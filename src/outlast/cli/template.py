"""`outlast template`: list, save, remove and enqueue stored job definitions."""

from typing import Any

import click

from outlast.cli.command import CommandContext, command
from outlast.cli.enqueue import parse_params
from outlast.cli.queue_names import CREATE, CREATE_HINT, require_queue
from outlast.core.envelope import readable


@click.group("template")
def template_group() -> None:
    """List, save, remove and enqueue stored job definitions."""


@command("list")
async def ls(ctx: CommandContext, /) -> None:
    """List all templates."""
    templates = await ctx.app.templates.list()
    if ctx.out.as_json:
        for each in templates:
            ctx.out.record(each)
        return
    ctx.out.table(
        ("NAME", "TYPE", "QUEUE", ">PRIORITY", "UPDATED", "PARAMS"),
        [
            (
                t.name,
                t.type,
                t.queue or "",
                "" if t.priority is None else str(t.priority),
                f"{t.updated_at:%F %T}",
                readable(t.params) or "",
            )
            for t in templates
        ],
    )


@command("save", creates=True)
@click.argument("name")
@click.argument("type_name", metavar="TYPE")
@click.argument("params", default="{}")
@click.option("--queue", help="Queue, instead of the type's own.")
@CREATE
@click.option("--priority", type=int, help="Priority, instead of the type's own.")
@click.option("--max-attempts", type=int, help="Attempts, instead of the type's own number.")
async def save(
    ctx: CommandContext, /, name: str, type_name: str, params: str, create: bool, **options: Any
) -> None:
    """Save a template of TYPE with PARAMS, a JSON object that may omit some."""
    ctx.require_types()
    job_type = ctx.app.registry.get(type_name)
    if options["queue"] is not None and not create:
        await require_queue(ctx, options["queue"], CREATE_HINT)
    saved = await ctx.app.templates.save(name, job_type, params=parse_params(params), **options)
    if ctx.out.as_json:
        ctx.out.record(saved)
    else:
        ctx.out.line(f"template {name} saved: type {saved.type}, params {readable(saved.params)}")


@command("remove")
@click.argument("name")
async def rm(ctx: CommandContext, /, name: str) -> None:
    """Remove a template; jobs made from it stay."""
    await ctx.app.templates.remove(name)
    ctx.out.done(f"template {name} removed", {"name": name, "removed": True})


@command("enqueue")
@click.argument("name")
@click.argument("params", default="{}")
async def enqueue(ctx: CommandContext, /, name: str, params: str) -> None:
    """Enqueue a job from a template; PARAMS, a JSON object, override the template's own."""
    ctx.require_types()
    handle = await ctx.app.templates.enqueue(name, **parse_params(params))
    if ctx.out.as_json:
        ctx.out.record({"id": handle.id})
    else:
        ctx.out.line(handle.id)


for each in (ls, save, rm, enqueue):
    template_group.add_command(each)
