"""`outlast db`: the store itself."""

import click

from outlast.cli.command import CommandContext, exit_on_error, verb
from outlast.cli.confirm import confirm
from outlast.cli.db_copy import command as copy
from outlast.cli.output import Output
from outlast.cli.target import Target, find
from outlast.core.duration import parse_duration
from outlast.errors import InvalidArgument
from outlast.store.contract import Migratable
from outlast.store.contract.transfer import TransferStage, TransferStatus
from outlast.store.open import KEYVALUE, POSTGRES


@click.group("db")
def command() -> None:
    """Create, look at and prune the store."""


@verb("migrate", creates=True)
async def migrate(desk: CommandContext, /) -> None:
    """Create the store, or bring its schema up to date; harmless when it is."""
    if isinstance(desk.app.store, Migratable):
        await desk.app.store.migrate()
    await _status(desk)


@verb("status")
async def status(desk: CommandContext, /) -> None:
    """Address, schema version, size."""
    await _status(desk)


@verb("prune")
@click.option("--older-than", required=True, help="Jobs that ended so long ago, such as 30d.")
@click.option("--batch", type=click.IntRange(1, 10_000), default=500, show_default=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def prune(desk: CommandContext, /, older_than: str, batch: int, yes: bool) -> None:
    """Delete finished jobs with their runs and events; dead letters, keys and slots stay."""
    try:
        span = parse_duration(older_than, what="--older-than")
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if not yes and not confirm(f"delete what ended more than {older_than} ago?"):
        return
    gone = 0
    with desk.out.progress("prune", None) as advance:
        while some := await desk.app.store.prune(older_than=span, limit=batch):
            gone += some
            advance(some)
    desk.out.message(f"{gone:,} jobs are gone")


def _describe_status(footing: TransferStatus) -> str:
    other = {
        TransferStage.FILLING: "is being filled from",
        TransferStage.READY: "is ready to take the place of",
        TransferStage.SEALED: "is being moved to",
        TransferStage.MOVED: "was moved to",
    }
    if footing.stage is TransferStage.OPEN:
        return "open"
    return f"{footing.stage}: {other[footing.stage]} {footing.other}"


for each in (migrate, status, prune):
    command.add_command(each)


command.add_command(copy)


@command.command("sql")
@click.option("-a", "--app", help="The app, as module:attribute.")
@click.option("--url", help="A store alone, such as postgresql://user@host/database.")
def sql(app: str | None, url: str | None) -> None:
    """Print the SQL that makes the schema; it goes to stdout and nothing else does.

    For the store of that app or URL; without one, for a SQLite file.
    """
    with exit_on_error():
        click.echo(_script(find(app, url)), nl=False)


def _script(where: Target) -> str:
    """What an owner can give to `sqlite3` or `psql`."""
    url = None if where == Target(None, None) else CommandContext(where, Output()).app.url
    if url is not None and url.startswith(POSTGRES):
        from outlast.store.postgres.migrate import script  # noqa: PLC0415 - an adapter's own

        return script(url)
    if url is not None and url.startswith(KEYVALUE):
        raise InvalidArgument(
            f"{url.partition(':')[0]} knows no SQL, so there is none to print; "
            "`outlast db migrate` makes all that is needed"
        )
    from outlast.store.sqlite.migrate import migrations  # noqa: PLC0415 - an adapter's own

    return "".join(f"{text}\n" for _, text in sorted(migrations().items()))


async def _status(desk: CommandContext) -> None:
    footing = await desk.app.store.transfer_status()
    facts = {**await desk.app.store.describe(), "standing": _describe_status(footing)}
    if desk.out.as_json:
        desk.out.record(facts)
        return
    for name, value in facts.items():
        desk.out.line(f"{name:<12} {value}")
