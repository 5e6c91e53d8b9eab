"""A connection that says that its process lives: closed in whatever that forks, kept from sleep."""

import os
import socket
from contextlib import suppress
from typing import Any, Final

import asyncpg

from outlast.store.fork_safety import close_in_children, forks
from outlast.store.postgres.connection import connect
from outlast.store.postgres.url import PostgresUrl

IDLE: Final = 10
"""Seconds of silence after which the system asks whether the other end is there."""


class DedicatedConnection:
    """A connection of which no child process keeps a share."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection

    @classmethod
    async def open(cls, address: PostgresUrl) -> "DedicatedConnection":
        """Connect; once more if a process was forked before we could keep it from that."""
        while True:
            before = forks()
            connection = await connect(address)
            session = close_in_children(lambda made=connection: cls(made))  # type: ignore[misc]  # bound now
            if forks() == before:
                _keep_alive(connection)
                return session
            await session.close()

    def drop(self) -> None:
        """In a child: let go of its share, and let nobody close what has that number next."""
        with suppress(Exception):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, _socket(self.connection).fileno())
            os.close(nothing)

    async def close(self) -> None:
        """Twice is fine, and so is a server that is gone."""
        with suppress(Exception):
            await self.connection.close(timeout=1)


def _socket(connection: asyncpg.Connection) -> Any:
    return connection._transport.get_extra_info("socket")  # noqa: SLF001 - there is no other way


def _keep_alive(connection: asyncpg.Connection) -> None:
    own = _socket(connection)
    if own.family == socket.AF_UNIX:
        return
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # not every system has them
            own.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
