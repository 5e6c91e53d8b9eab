"""Waiting for what only the server knows."""

import asyncio
from typing import Final

import asyncpg

from .sqlite_helpers import PATIENCE

_WAITING: Final = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
      AND backend_type = 'client backend'
"""


async def until_somebody_waits(dsn: str, sessions: int = 1) -> None:
    """Return when that many sessions of the database wait for a lock that another one has."""
    watcher = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(PATIENCE):
            while await watcher.fetchval(_WAITING) < sessions:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
    finally:
        await watcher.close()
