"""The line between a supervisor and a child: small JSON messages over a pair of sockets."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

MAX_MESSAGE_BYTES: Final = 1 << 20
MAX_UNREAD_BYTES: Final = 1 << 20


def send_sync(end: socket.socket, kind: str, **values: Any) -> None:
    """Send one message before there is an event loop."""
    with suppress(ConnectionError):
        end.sendall(_encoded(kind, values))


class ControlChannel:
    """One end. A message that cannot be sent any more is dropped: the other end is gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, end: socket.socket) -> "ControlChannel":
        return cls(*await asyncio.open_connection(sock=end, limit=MAX_MESSAGE_BYTES))

    def send(self, kind: str, **values: Any) -> None:
        if not self._writer.is_closing():
            self._writer.write(_encoded(kind, values))

    @property
    def is_backed_up(self) -> bool:
        """Whether the other end has not read for long; what can be spared is not sent then."""
        return self._writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """What the other end says, until it is gone; what was cut short, or is not ours, is not."""
        while line := await self._receive():
            with suppress(ValueError):
                yield json.loads(line)

    async def _receive(self) -> bytes:
        try:
            return await self._reader.readline()
        except (ConnectionError, ValueError):
            return b""

    def close(self) -> None:
        self._writer.close()


def _encoded(kind: str, values: dict[str, Any]) -> bytes:
    return json.dumps({"is": kind, **values}).encode() + b"\n"
