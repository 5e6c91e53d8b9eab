"""The control channel between a supervisor and a child: JSON messages over a socket pair."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

MAX_MESSAGE_BYTES: Final = 1 << 20

MAX_UNREAD_BYTES: Final = 1 << 20
"""Bytes of unread messages beyond which optional messages are not sent."""


def send_sync(end: socket.socket, kind: str, **values: Any) -> None:
    """Send one message without an event loop."""
    with suppress(ConnectionError):
        end.sendall(_encode(kind, values))


class ControlChannel:
    """One end of the channel. Messages to a closed channel are dropped."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, end: socket.socket) -> "ControlChannel":
        """Return a channel over one socket of a pair."""
        return cls(*await asyncio.open_connection(sock=end, limit=MAX_MESSAGE_BYTES))

    def send(self, kind: str, **values: Any) -> None:
        """Send a message without waiting."""
        if not self._writer.is_closing():
            self._writer.write(_encode(kind, values))

    @property
    def is_backed_up(self) -> bool:
        """Whether the other end has not read for long."""
        return self._writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield messages until the other end is closed; malformed ones are skipped."""
        while line := await self._receive():
            with suppress(ValueError):
                yield json.loads(line)

    async def _receive(self) -> bytes:
        try:
            return await self._reader.readline()
        except (ConnectionError, ValueError):
            return b""

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


def _encode(kind: str, values: dict[str, Any]) -> bytes:
    return json.dumps({"is": kind, **values}).encode() + b"\n"
