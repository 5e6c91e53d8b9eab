"""Brings a schema to what this code knows: numbered steps, forward only, all or nothing."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

from outlast.errors import ForeignStore, OperatorError, SchemaTooNew
from outlast.store.postgres.statements import SCHEMA, in_schema, statements
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import PostgresUrl, address

OLDEST: Final = 140000
"""The oldest server whose words the statements use."""


@cache
def migrations(schema: str = SCHEMA) -> Mapping[int, str]:
    """The steps by number, as in `0001_initial.sql`, for tables in that schema."""
    folder = resources.files(__package__) / "migrations"
    scripts = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    return {
        int(name[:4]): in_schema(scripts[name].read_text(encoding="utf-8"), schema)
        for name in sorted(scripts)
    }


async def migrate(lane: AsyncpgRunner, address: PostgresUrl) -> None:
    """Create or upgrade our tables in one transaction; killed half-way, nothing has happened.

    A schema that is up to date is only read, so that a role that may not create can work in it.
    """
    await _require_server(lane, address)
    if await _version(lane, address) == max(migrations()):
        return
    await lane.change("unit_of_work.begin", {})
    try:
        await lane.change("schema.lock", {"name": address.schema})
        await _upgrade(lane, address)
        await lane.change("unit_of_work.commit", {})
    except BaseException:
        if not lane.connection.is_closed():
            await lane.change("unit_of_work.rollback", {})
        raise


def script(url: str) -> str:
    """All of it as one transaction, for an owner to give to `psql` in our stead."""
    where = address(url)
    ours = statements(where.schema)
    made = [ours[f"schema.{name}"].text for name in ("create", "create_meta", "init_meta")]
    steps = migrations(where.schema)
    known = ours["schema.set_version"].text.replace("$1::integer", str(max(steps)))
    parts = ["BEGIN", *made, *steps.values(), known, "COMMIT"]
    return "\n\n".join(f"{part.strip().removesuffix(';')};" for part in parts) + "\n"


async def is_ours(lane: AsyncpgRunner, address: PostgresUrl) -> bool:
    """Whether our tables are there."""
    found = await lane.fetch("schema.state", {"schema": address.schema})
    return bool(found[0][1])


async def _require_server(lane: AsyncpgRunner, address: PostgresUrl) -> None:
    number = int((await lane.fetch("schema.server", {}))[0][0])
    if number < OLDEST:
        raise OperatorError(
            f"{address.safe_text} is PostgreSQL {number // 10000}; Outlast needs "
            f"{OLDEST // 10000} or newer"
        )


async def _version(lane: AsyncpgRunner, address: PostgresUrl) -> int:
    """The schema's number, 0 if there is none; ForeignStore, SchemaTooNew."""
    is_there, ours = (await lane.fetch("schema.state", {"schema": address.schema}))[0]
    if is_there and not ours:
        raise ForeignStore(
            f"{address.safe_text}: schema {address.schema} belongs to something else and has no "
            "Outlast tables; choose another with ?schema=…"
        )
    version = int((await lane.fetch("schema.version", {}))[0][0]) if ours else 0
    newest = max(migrations())
    if version > newest:
        raise SchemaTooNew(
            f"{address.safe_text} has schema {version}, this Outlast knows up to {newest}; upgrade "
            "Outlast"
        )
    return version


async def _upgrade(lane: AsyncpgRunner, address: PostgresUrl) -> None:
    version = await _version(lane, address)
    if version == 0:
        await lane.change("schema.create", {})
        await lane.change("schema.create_meta", {})
        await lane.change("schema.init_meta", {})
    for number, script in migrations(address.schema).items():
        if number > version:
            await lane.script(f"migration.{number:04}", script)
            await lane.change("schema.set_version", {"version": number})
