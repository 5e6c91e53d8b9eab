"""Waiting for what only the server knows."""

import asyncio
from typing import Final

import asyncpg

from .kit import PATIENCE

_WAITING: Final = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
      AND backend_type = 'client backend'
"""


async def until_somebody_waits(dsn: str) -> None:
    """Return when a session of that database waits for a lock that another one has."""
    watcher = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(PATIENCE):
            while not await watcher.fetchval(_WAITING):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
    finally:
        await watcher.close()
