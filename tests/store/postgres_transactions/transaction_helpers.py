"""Statements and counts that the tests of PostgreSQL transactions share."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg

from outlast.core.decide import Change, decide
from outlast.core.run import Claim
from outlast.testing.conformance.factories import SUCCEEDED, new_id

LONG = timedelta(seconds=120)
INVOICE = "INSERT INTO effects VALUES ('invoice')"

Ask = Callable[..., Awaitable[Any]]
"""Run a statement on a connection as its handler would: awaited, or in a thread."""


def success_of(claim: Claim) -> list[Change]:
    return [decide(claim, SUCCEEDED, new_id=new_id)]


async def effects(outside: asyncpg.Connection) -> int:
    number: int = await outside.fetchval("SELECT count(*) FROM effects")
    return number


async def left(outside: asyncpg.Connection) -> int:
    """How many connections of handlers the server still has, once they have had time to go."""
    for _ in range(12_000):
        number: int = await outside.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outlast handler' "
            "AND datname = current_database()"
        )
        if number == 0:
            break
        await asyncio.sleep(0.01)
    return number
