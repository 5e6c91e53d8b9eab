"""`outlast db`: the store itself."""

import click

from outlast.cli.command import Desk, telling, verb
from outlast.cli.confirm import agreed
from outlast.cli.db_copy import command as copy
from outlast.cli.output import Output
from outlast.cli.target import Where, find
from outlast.core.duration import to_span
from outlast.errors import InvalidJob
from outlast.store.contract.transfer import Footing, Stage
from outlast.store.migrating import Migrates
from outlast.store.open import KEYVALUE, POSTGRES


@click.group("db")
def command() -> None:
    """Create, look at and prune the store."""


@verb("migrate", creates=True)
async def migrate(desk: Desk, /) -> None:
    """Create the store, or bring its schema up to date; harmless when it is."""
    if isinstance(desk.app.store, Migrates):
        await desk.app.store.migrate()
    await _status(desk)


@verb("status")
async def status(desk: Desk, /) -> None:
    """Address, schema version, size."""
    await _status(desk)


@verb("prune")
@click.option("--older-than", required=True, help="Jobs that ended so long ago, such as 30d.")
@click.option("--batch", type=click.IntRange(1, 10_000), default=500, show_default=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def prune(desk: Desk, /, older_than: str, batch: int, yes: bool) -> None:
    """Delete finished jobs with their runs and events; dead letters, keys and slots stay."""
    try:
        span = to_span(older_than, what="--older-than")
    except ValueError as error:
        raise InvalidJob(str(error)) from error
    if not yes and not agreed(f"delete what ended more than {older_than} ago?"):
        return
    gone = 0
    with desk.out.progress("prune", None) as advance:
        while some := await desk.app.store.prune(older_than=span, limit=batch):
            gone += some
            advance(some)
    desk.out.say(f"{gone:,} jobs are gone")


def _told(footing: Footing) -> str:
    other = {
        Stage.FILLING: "is being filled from",
        Stage.READY: "is ready to take the place of",
        Stage.SEALED: "is being moved to",
        Stage.MOVED: "was moved to",
    }
    if footing.stage is Stage.OPEN:
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
    with telling():
        click.echo(_script(find(app, url)), nl=False)


def _script(where: Where) -> str:
    """What an owner can give to `sqlite3` or `psql`."""
    url = None if where == Where(None, None) else Desk(where, Output()).app.url
    if url is not None and url.startswith(POSTGRES):
        from outlast.store.postgres.migrate import script  # noqa: PLC0415 - an adapter's own

        return script(url)
    if url is not None and url.startswith(KEYVALUE):
        raise InvalidJob(
            f"{url.partition(':')[0]} knows no SQL, so there is none to print; "
            "`outlast db migrate` makes all that is needed"
        )
    from outlast.store.sqlite.migrate import migrations  # noqa: PLC0415 - an adapter's own

    return "".join(f"{text}\n" for _, text in sorted(migrations().items()))


async def _status(desk: Desk) -> None:
    footing = await desk.app.store.footing()
    facts = {**await desk.app.store.facts(), "standing": _told(footing)}
    if desk.out.as_json:
        desk.out.record(facts)
        return
    for name, value in facts.items():
        desk.out.line(f"{name:<12} {value}")
