"""S1's tables as views in the database of the studio: the example's own migration."""

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from outlast.store.contract import Store
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore

HERE: Final = Path(__file__).parent
VIEWS: Final = ("jobs", "job_runs", "job_templates", "schedules", "direct_reservations")


async def install(store: Store) -> None:
    """Create the views in an open store that speaks SQL. Idempotent."""
    match store:
        case SqliteStore():
            await asyncio.to_thread(_in_sqlite, store.path)
        case PostgresStore():
            await _in_postgresql(store)
        case _:
            pass  # the words are in words.py


def schema_of(store: PostgresStore) -> str:
    """Return the schema of the views: `studio`, or `NAME_studio` beside Outlast's schema NAME."""
    own = store.address.schema
    return "studio" if own == "outlast" else f"{own}_studio"


def _in_sqlite(path: Path) -> None:
    script = _read("views_sqlite.sql")
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN IMMEDIATE; {script} COMMIT;")


async def _in_postgresql(store: PostgresStore) -> None:
    import asyncpg  # noqa: PLC0415 - the driver is an extra

    script = _read("views_postgresql.sql")
    for name, given in (("outlast", store.address.schema), ("studio", schema_of(store))):
        script = re.sub(rf"(?<![\w.]){name}(?=[.;])", given, script)
    connection = await asyncpg.connect(store.address.dsn)
    try:
        async with connection.transaction():  # one process at a time; the others find the views
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", schema_of(store))
            await connection.execute(script)
    finally:
        await connection.close()


def _read(name: str) -> str:
    return HERE.joinpath(name).read_text("utf-8")
