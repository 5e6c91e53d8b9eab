"""Store factory for one test, and its deterministic ids."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import parse_qsl, urlencode

from outlast.clock import Clock
from outlast.core.ids import Ids
from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.testing.loops import in_own_loop
from outlast.testing.model.store import ModelStore

POSTGRES: Final = ("postgresql://", "postgres://")

DROP_TIMEOUT_S: Final = 10
"""Seconds to wait for the locks of transactions that a test left open."""


def ids_for_test(clock: Clock, seed: int = 1) -> Ids:
    """Return an id generator that yields the same ids in every run of a test."""
    return Ids(clock.now, Random(seed).getrandbits)


@contextmanager
def store_for_test(kind: str, folder: Path, clock: Clock) -> Iterator[Store]:
    """Return a store: `sqlite` is a file in the folder, `model` in memory without transactions."""
    ids = ids_for_test(clock, seed=2)
    store: Store = ModelStore(clock, ids)
    if kind == "sqlite":
        store = open_store(f"sqlite:///{folder}/jobs.db", clock=clock, ids=ids)
    try:
        yield store
    finally:
        in_own_loop(store.close())


@contextmanager
def store_in_database(url: str, clock: Clock) -> Iterator[Store]:
    """Return a store in the database of the code under test, beside its own tables.

    On PostgreSQL it gets a new schema, which is dropped at the end, unless the URL names one. A
    SQLite file is adopted and left as it is.
    """
    with ExitStack() as stack:
        if url.startswith("sqlite:"):
            url = _with_options(url, adopt="true")
        elif url.startswith(POSTGRES) and "schema=" not in url:
            url = _with_options(url, schema=f"outlast_test_{secrets.token_hex(8)}")
            stack.callback(lambda: in_own_loop(_drop_schema(url)))
        store = open_store(url, clock=clock, ids=ids_for_test(clock, seed=2))
        stack.callback(lambda: in_own_loop(store.close()))
        in_own_loop(store.open())  # before a transaction of the test locks the file
        yield store


def _with_options(url: str, **options: str) -> str:
    address, _, query = url.partition("?")
    return f"{address}?{urlencode({**options, **dict(parse_qsl(query))})}"


async def _drop_schema(url: str) -> None:
    """Drop the schema of a test; an open transaction of the test must not block it for ever."""
    import asyncpg  # noqa: PLC0415 - an optional dependency

    from outlast.store.postgres.url import parse_url  # noqa: PLC0415 - same

    address = parse_url(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        await connection.execute(f"SET lock_timeout = '{DROP_TIMEOUT_S}s'")
        await connection.execute(f'DROP SCHEMA IF EXISTS "{address.schema}" CASCADE')
    except asyncpg.LockNotAvailableError as error:
        raise RuntimeError(
            f"schema {address.schema} of this test is not dropped: a transaction of the test is "
            f'still open. End it in the test, then: DROP SCHEMA "{address.schema}" CASCADE'
        ) from error
    finally:
        await connection.close()
