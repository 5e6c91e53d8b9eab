"""A dedicated connection, closed in forked children."""

import os
from contextlib import suppress

import asyncpg

from outlast.store.fork_safety import close_in_children, forks
from outlast.store.postgres.connection import connect, socket_of
from outlast.store.postgres.url import PostgresUrl


class DedicatedConnection:
    """A connection whose socket no forked child keeps open."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection

    @classmethod
    async def open(cls, address: PostgresUrl) -> "DedicatedConnection":
        """Open a connection; open another one if the process forked before it was registered."""
        while True:
            before = forks()
            connection = await connect(address)
            session = close_in_children(lambda made=connection: cls(made))  # type: ignore[misc]  # bound in this iteration
            if forks() == before:
                return session
            await session.close()

    def drop(self) -> None:
        """Replace the socket by /dev/null in a child, so that the descriptor is not reused."""
        with suppress(Exception):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, socket_of(self.connection).fileno())
            os.close(null)

    async def close(self) -> None:
        """Close the connection; idempotent, also if the server is unavailable."""
        with suppress(Exception):
            await self.connection.close(timeout=1)
