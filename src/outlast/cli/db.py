"""`outlast db`: create, inspect and prune the store."""

from datetime import timedelta

import click

from outlast.cli import values
from outlast.cli.command import CommandContext, command, exit_on_error
from outlast.cli.confirm import confirm
from outlast.cli.db_copy import db_copy_command
from outlast.cli.output import CommandOutput, count
from outlast.cli.target import Target, find
from outlast.core.duration import format_exact
from outlast.errors import InvalidArgument
from outlast.store.contract import Migratable
from outlast.store.contract.transfer import TransferStage, TransferStatus
from outlast.store.open import KEYVALUE, POSTGRES
from outlast.worker.command_logs import logs_of_stored_jobs, remove_logs_of_pruned_jobs
from outlast.worker.maintenance.pruner import Retentions, prune_all


@click.group("db")
def db_group() -> None:
    """Create, inspect, copy and prune the store."""


@command("migrate", creates=True)
async def migrate(ctx: CommandContext, /) -> None:
    """Create the store, or bring its schema up to date. Idempotent."""
    if isinstance(ctx.app.store, Migratable):
        await ctx.app.store.migrate()
    await _status(ctx)


@command("status")
async def status(ctx: CommandContext, /) -> None:
    """Show the address, the schema version and the size of the store."""
    await _status(ctx)


@command("prune")
@click.option(
    "--older-than",
    required=True,
    callback=values.duration,
    help="Age of the finished jobs, such as 30d.",
)
@click.option("--batch", type=click.IntRange(1, 10_000), default=500, show_default=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def prune(ctx: CommandContext, /, older_than: timedelta, batch: int, yes: bool) -> None:
    """Delete finished jobs with their runs, events and log files on this machine.

    Dead letters, keys and slots are kept. With --app, jobs of a type whose own retention is longer
    are kept for that time; with --url alone, all types are treated alike.
    """
    age = format_exact(older_than)
    if not yes and not confirm(f"delete jobs that finished more than {age} ago?"):
        return
    deleted, store = 0, ctx.app.store
    logs = await logs_of_stored_jobs(store, ctx.app.settings.logs)
    with ctx.out.progress("prune", None) as advance:
        async for some in prune_all(store, older_than, _longer(ctx, older_than), batch):
            deleted += some
            advance(some)
    await remove_logs_of_pruned_jobs(store, logs)
    ctx.out.done(f"{count(deleted, 'job')} deleted", {"deleted": deleted})


def _longer(ctx: CommandContext, older_than: timedelta) -> Retentions:
    """Return the retention of the types that keep their jobs for longer; None is for ever."""
    own = ctx.app.registry.retentions()
    return {name: span for name, span in own.items() if span is None or span > older_than}


def _describe_status(transfer: TransferStatus) -> str:
    other = {
        TransferStage.FILLING: "is being filled from",
        TransferStage.READY: "is ready to replace",
        TransferStage.SEALED: "is being moved to",
        TransferStage.MOVED: "was moved to",
    }
    if transfer.stage is TransferStage.OPEN:
        return "none"
    return f"{transfer.stage}: {other[transfer.stage]} {transfer.other}"


for each in (migrate, status, prune):
    db_group.add_command(each)


db_group.add_command(db_copy_command)


@db_group.command("sql")
@click.option("-a", "--app", help="The app, as module:attribute.")
@click.option("--url", help="URL of a store, without an app: postgresql://user@host/database.")
def sql(app: str | None, url: str | None) -> None:
    """Print the SQL that creates the schema, for the store of the app or the URL.

    Without an app or a URL it prints the schema for SQLite.
    """
    with exit_on_error():
        click.echo(_script(find(app, url).enter()), nl=False)


def _script(where: Target) -> str:
    """Return the schema as a script for `sqlite3` or `psql`."""
    url = None if where == Target(None, None) else CommandContext(where, CommandOutput()).app.url
    if url is not None and url.startswith(POSTGRES):
        from outlast.store.postgres.migrate import script  # noqa: PLC0415 - needs its driver

        return script(url)
    if url is not None and url.startswith(KEYVALUE):
        raise InvalidArgument(
            f"{url.partition(':')[0]} has no SQL schema; create the store with `outlast db migrate`"
        )
    from outlast.store.sqlite.migrate import migrations  # noqa: PLC0415 - one store's own module

    return "".join(f"{text}\n" for _, text in sorted(migrations().items()))


async def _status(ctx: CommandContext) -> None:
    transfer = await ctx.app.store.transfer_status()
    facts = await ctx.app.store.describe()
    if ctx.out.as_json:
        ctx.out.record({**facts, "transfer": transfer})
        return
    for name, value in {**facts, "transfer": _describe_status(transfer)}.items():
        ctx.out.line(f"{name:<12} {value}")
