"""A dedicated connection: closed in forked children, with TCP keepalive."""

import os
import socket
from contextlib import suppress
from typing import Any, Final

import asyncpg

from outlast.store.fork_safety import close_in_children, forks
from outlast.store.postgres.connection import connect
from outlast.store.postgres.url import PostgresUrl

KEEPALIVE_IDLE_S: Final = 10
"""Seconds without traffic after which TCP probes the other end."""


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
                _keep_alive(connection)
                return session
            await session.close()

    def drop(self) -> None:
        """Replace the socket by /dev/null in a child, so that the descriptor is not reused."""
        with suppress(Exception):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, _socket(self.connection).fileno())
            os.close(null)

    async def close(self) -> None:
        """Close the connection; idempotent, also if the server is unavailable."""
        with suppress(Exception):
            await self.connection.close(timeout=1)


def _socket(connection: asyncpg.Connection) -> Any:
    return connection._transport.get_extra_info("socket")  # noqa: SLF001 - asyncpg has no public access


def _keep_alive(connection: asyncpg.Connection) -> None:
    sock = _socket(connection)
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
    ):
        if hasattr(socket, name):  # not every system has them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
