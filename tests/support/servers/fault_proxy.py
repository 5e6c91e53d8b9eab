"""A proxy before a server that does what networks do: stall, crawl, and cut at a bad moment."""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from outlast.testing.servers.looping import ServerThread, serving
from support.servers.pg_wire import READY, Messages, Statements

CHUNK: Final = 1 << 16
RESET: Final = struct.pack("ii", 1, 0)
"""Linger for no time: the other side is told that the connection is reset."""


@contextmanager
def fault_proxy(port: int, *, is_postgres: bool = True) -> Iterator["FaultProxy"]:
    """A proxy before the server on that port of 127.0.0.1; without faults until told.

    It knows the statements of PostgreSQL; of another server it passes on bytes.
    """
    faults = _Faults(port, is_postgres=is_postgres)
    with serving(lambda reader, writer: _serve(reader, writer, faults)) as (thread, own):
        yield FaultProxy(own, faults, thread)


class FaultProxy:
    """Its faults, which hold for all connections from the moment the call returns."""

    def __init__(self, port: int, faults: "_Faults", thread: ServerThread) -> None:
        self.port = port
        self._faults = faults
        self._thread = thread

    @property
    def connections(self) -> int:
        """How many are open through it."""
        return self._thread.call(lambda: len(self._faults.pairs))

    def pause(self) -> None:
        """Let nothing through, in either direction, and close nothing; new ones wait as well."""
        self._thread.call(self._faults.flowing.clear)

    def resume(self) -> None:
        """What waited goes through."""
        self._thread.call(self._faults.flowing.set)

    def silence(self) -> int:
        """Let nothing through the open connections, for good; new ones work. Their number."""
        return self._thread.call(self._faults.silence)

    def delay(self, seconds: float) -> None:
        """Hold each piece that long, in each direction."""
        self._set("delay", seconds)

    def limit(self, bytes_per_second: float | None) -> None:
        """Limit each connection and direction; None for no limit."""
        self._set("rate", bytes_per_second)

    def refuse(self) -> None:
        """Cut all connections, and every new one until `accept`."""
        self._set("refusing", value=True)
        self.cut()

    def accept(self) -> None:
        """Accept connections again."""
        self._set("refusing", value=False)

    def redirect(self, port: int) -> None:
        """Connect every new client to the server on that port; open connections stay."""
        self._set("port", port)

    def cut(self) -> int:
        """Reset every open connection; return their number."""
        return self._thread.call(self._faults.cut)

    def lose_reply(self, text: str) -> Event:
        """Cut the connection in place of the answer to the next statement that has `text` in it.

        The server has run it: a `COMMIT` is committed, and its reply is lost. The event is set when
        it happened.
        """
        return self._arm(_Trap(text, before=False))

    def lose_request(self, text: str) -> Event:
        """Cut the connection before such a statement reaches the server: it never happened."""
        return self._arm(_Trap(text, before=True))

    def silence_at(self, text: str) -> Event:
        """Let the connection fall silent in place of the answer to such a statement."""
        return self._arm(_Trap(text, before=False, silent=True))

    def _arm(self, trap: "_Trap") -> Event:
        self._thread.call(lambda: self._faults.traps.append(trap))
        return trap.sprung

    def _set(self, name: str, value: object) -> None:
        self._thread.call(lambda: setattr(self._faults, name, value))


@dataclass(frozen=True, slots=True, eq=False)
class _Trap:
    text: str
    before: bool
    silent: bool = False
    sprung: Event = field(default_factory=Event)


class _Faults:
    """What the pumps look at; touched on the proxy's thread alone."""

    def __init__(self, port: int, *, is_postgres: bool) -> None:
        self.port = port
        self.is_postgres = is_postgres
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.delay = 0.0
        self.rate: float | None = None
        self.refusing = False
        self.traps: list[_Trap] = []
        self.pairs: set[_Pair] = set()

    def cut(self) -> int:
        pairs = tuple(self.pairs)
        for pair in pairs:
            pair.cut()
        return len(pairs)

    def silence(self) -> int:
        for pair in self.pairs:
            pair.is_silent = True
        return len(self.pairs)

    def trap_for(self, sql: str | None) -> _Trap | None:
        """The trap that this statement falls into; it is set no more."""
        for trap in self.traps:
            if sql is not None and trap.text in sql:
                self.traps.remove(trap)
                return trap
        return None


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, faults: _Faults
) -> None:
    if faults.refusing:
        _reset(writer)
        return
    await faults.flowing.wait()
    behind, to_server = await asyncio.open_connection("127.0.0.1", faults.port)
    pair = _Pair(writer, to_server, faults)
    faults.pairs.add(pair)
    asked, answered = (pair.from_client, pair.from_server) if faults.is_postgres else (bytes, bytes)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pair.pump(reader, to_server, asked))
            group.create_task(pair.pump(behind, writer, answered))
    except* (OSError, _Over):
        pass
    finally:
        faults.pairs.discard(pair)
        to_server.transport.abort()


class _Over(Exception):
    """One side has closed, or we have: so does the other."""


class _Pair:
    """One client's connection and the one behind it."""

    def __init__(
        self, to_client: asyncio.StreamWriter, to_server: asyncio.StreamWriter, faults: _Faults
    ) -> None:
        self._to_client, self._to_server, self._faults = to_client, to_server, faults
        self._asked = Messages(letters=False)
        self._answered = Messages(letters=True)
        self._statements = Statements()
        self._letters = 0  # answers to come that are one letter and no message
        self._owed = 0  # answers to come that end with READY
        self._awaited: _Trap | None = None
        self._owed_first = 0  # those before the one that is to be lost
        self.is_silent = False

    def cut(self) -> None:
        for writer in (self._to_client, self._to_server):
            _reset(writer)

    async def pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        understand: Callable[[bytes], bytes],
    ) -> None:
        while data := await reader.read(CHUNK):
            await self._faults.flowing.wait()
            await self._slowly(len(data))
            if self.is_silent:
                continue
            writer.write(understand(data))
            await writer.drain()
        if self.is_silent:
            await asyncio.Event().wait()  # the other side is not told of the end either
        raise _Over

    async def _slowly(self, size: int) -> None:
        seconds = self._faults.delay
        if self._faults.rate is not None:
            seconds += size / self._faults.rate
        if seconds:
            await asyncio.sleep(seconds)
            await self._faults.flowing.wait()

    def from_client(self, data: bytes) -> bytes:
        """The same bytes, unless one of the statements in them falls into a trap."""
        for message in self._asked.feed(data):
            self._letters += message.asks_for_encryption
            trap = self._faults.trap_for(self._statements.run_by(message))
            if trap is not None and trap.before:
                self._spring(trap)
            if trap is not None:
                self._awaited, self._owed_first = trap, self._owed
            self._owed += message.makes_ready
        return data

    def from_server(self, data: bytes) -> bytes:
        """What is complete; nothing of an answer that is to be lost, at whose end all is cut."""
        through, self._letters = data[: self._letters], max(0, self._letters - len(data))
        for message in self._answered.feed(data[len(through) :]):
            is_lost = self._awaited is not None and not self._owed_first
            if message.kind == READY:
                if is_lost and self._awaited:
                    self._spring(self._awaited)
                self._owed, self._owed_first = self._owed - 1, max(0, self._owed_first - 1)
            through += b"" if is_lost else message.raw
        return through

    def _spring(self, trap: _Trap) -> None:
        if trap.silent:
            self.is_silent = True
            trap.sprung.set()
            return
        self.cut()
        trap.sprung.set()
        raise _Over


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
