"""Schema migrations: numbered, forward only, in one transaction."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import resources
from typing import Final

import asyncpg

from outlast.errors import ForeignStore, OperatorError, SchemaTooNew
from outlast.store.postgres.placeholders import SCHEMA, in_schema, statements
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import PostgresUrl, parse_url

MIN_SERVER_VERSION: Final = 140000
"""The oldest server version that supports the statements."""


@cache
def migrations(schema: str = SCHEMA) -> Mapping[int, str]:
    """Return the migrations by number, as in `0001_initial.sql`, for that schema."""
    folder = resources.files(__package__) / "migrations"
    scripts = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    return {
        int(name[:4]): in_schema(scripts[name].read_text(encoding="utf-8"), schema)
        for name in sorted(scripts)
    }


async def migrate(runner: AsyncpgRunner, address: PostgresUrl) -> None:
    """Create or upgrade the tables in one transaction, and continue the ids of restored events.

    A schema that is up to date is only read: a role without the right to create can use it.
    """
    await _require_server(runner, address)
    if await _version(runner, address) != max(migrations()):
        await _locked(runner, address, partial(_upgrade, runner, address))
    if (await runner.fetch("schema.events_ahead", {}))[0][0]:
        await _raise_events(runner, address)


async def _raise_events(runner: AsyncpgRunner, address: PostgresUrl) -> None:
    """Continue the event ids of a restored dump, so that new events come after the old ones."""
    with suppress(asyncpg.ReadOnlySQLTransactionError):  # then no event is written either
        try:
            raise_events = partial(runner.fetch, "schema.raise_events", {})
            await _locked(runner, address, raise_events)
        except asyncpg.InsufficientPrivilegeError as error:
            raise OperatorError(
                f"{address.safe_text} was restored from a dump of another server, whose event ids "
                f"are higher; let the owner of schema {address.schema} run: outlast db migrate"
            ) from error


async def _locked(
    runner: AsyncpgRunner, address: PostgresUrl, step: Callable[[], Awaitable[object]]
) -> None:
    """Run a step in one transaction, under the lock of migrations."""
    await runner.change("unit_of_work.begin", {})
    try:
        await runner.change("schema.lock", {"name": address.schema})
        await step()
        await runner.change("unit_of_work.commit", {})
    except BaseException:
        if not runner.connection.is_closed():
            await runner.change("unit_of_work.rollback", {})
        raise


def script(url: str) -> str:
    """Return the whole schema as one transaction, for an owner to run with `psql`."""
    where = parse_url(url)
    named = statements(where.schema)
    created = [named[f"schema.{name}"].text for name in ("create", "create_meta", "init_meta")]
    steps = migrations(where.schema)
    set_version = named["schema.set_version"].text.replace("$1::integer", str(max(steps)))
    parts = ["BEGIN", *created, *steps.values(), set_version, "COMMIT"]
    return "\n\n".join(f"{part.strip().removesuffix(';')};" for part in parts) + "\n"


async def is_ours(runner: AsyncpgRunner, address: PostgresUrl) -> bool:
    """Return whether the schema holds Outlast tables."""
    found = await runner.fetch("schema.state", {"schema": address.schema})
    return bool(found[0][1])


async def _require_server(runner: AsyncpgRunner, address: PostgresUrl) -> None:
    number = int((await runner.fetch("schema.server", {}))[0][0])
    if number < MIN_SERVER_VERSION:
        raise OperatorError(
            f"{address.safe_text} is PostgreSQL {number // 10000}; Outlast needs "
            f"{MIN_SERVER_VERSION // 10000} or newer"
        )


async def _version(runner: AsyncpgRunner, address: PostgresUrl) -> int:
    """Return the version of the schema, 0 if it has no tables.

    Raises ForeignStore for tables of another program, SchemaTooNew for a newer version.
    """
    has_tables, is_own = (await runner.fetch("schema.state", {"schema": address.schema}))[0]
    if has_tables and not is_own:
        raise ForeignStore(
            f"{address.safe_text}: schema {address.schema} belongs to another program and has no "
            "Outlast tables; choose another with ?schema=…"
        )
    version = int((await runner.fetch("schema.version", {}))[0][0]) if is_own else 0
    newest = max(migrations())
    if version > newest:
        raise SchemaTooNew(
            f"{address.safe_text} has schema {version}, this Outlast knows up to {newest}; upgrade "
            "Outlast"
        )
    return version


async def _upgrade(runner: AsyncpgRunner, address: PostgresUrl) -> None:
    version = await _version(runner, address)
    if version == 0:
        await runner.change("schema.create", {})
        await runner.change("schema.create_meta", {})
        await runner.change("schema.init_meta", {})
    for number, script in migrations(address.schema).items():
        if number > version:
            await runner.script(f"migration.{number:04}", script)
            await runner.change("schema.set_version", {"version": number})
