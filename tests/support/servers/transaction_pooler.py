"""A transaction pooler before PostgreSQL, the harshest there could be: each transaction elsewhere.

A client has a server's connection only until the server is ready outside a transaction, and gets
another one for the next: prepared statements, LISTEN, session settings and session locks are lost,
and those of others are met. There are no tricks that would save some of them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from outlast.testing.servers.looping import ServerThread, serving
from support.servers.pg_wire import CANCEL, IDLE, KEY, READY, START, TERMINATE, Message, Messages

CHUNK: Final = 1 << 16
NO: Final = b"N"
"""To the question whether to encrypt."""

GOODBYE: Final = TERMINATE + (4).to_bytes(4, "big")


@contextmanager
def transaction_pooler(port: int, *, size: int = 2) -> Iterator["TransactionPooler"]:
    """A pooler before the server on that port, which keeps `size` connections to each database."""
    pools = _Pools(port, size)
    with serving(pools.serve) as (thread, own):
        try:
            yield TransactionPooler(own, pools, thread)
        finally:
            thread.call(pools.close)


class TransactionPooler:
    """Where it listens, and how much it has pooled."""

    def __init__(self, port: int, pools: "_Pools", thread: ServerThread) -> None:
        self.port = port
        self._pools, self._thread = pools, thread

    @property
    def clients(self) -> int:
        """How many are connected now."""
        return self._thread.call(lambda: len(self._pools.clients))

    @property
    def servers(self) -> int:
        """How many connections of the server's they share."""
        return self._thread.call(self._pools.count_servers)

    @property
    def handed_out(self) -> int:
        """How often a client was given one."""
        return self._thread.call(lambda: self._pools.handed_out)


class _Client:
    """One client, and the connection that it has just now."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.pool: _Pool | None = None
        self.server: _Server | None = None
        self.owed = 0  # answers to come that end with READY
        self.key = b""


class _Server:
    """One connection to the server, assigned to at most one client at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.client: _Client | None = None
        self.key = b""
        self.is_lost = False

    def lend(self, client: _Client) -> None:
        self.client, client.server = client, self

    def take_back(self) -> None:
        if self.client is not None:
            self.client.server = None
        self.client = None

    def hear(self, message: Message) -> bool:
        """Forward a message to the assigned client; return whether the connection is free then."""
        client, is_free = self.client, False
        if message.kind == KEY:
            self.key = message.body
        if client is None:
            return False
        if message.kind == KEY:
            client.key = message.body
        if message.kind == READY:
            client.owed -= 1
            is_free = message.body == IDLE and not client.owed
        client.writer.write(message.raw)
        return is_free


class _Pool:
    """The connections of one user to one database."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._idle: asyncio.Queue[_Server | None] = asyncio.Queue()
        self.servers: set[_Server] = set()

    async def borrow(self, client: _Client) -> _Server:
        """The one that has been idle for longest, so never the last one again if there are two."""
        while self.servers:
            server = await self._idle.get()
            if server is not None and not server.is_lost:
                server.lend(client)
                return server
        raise ConnectionResetError("the server has closed every connection")

    def give_back(self, server: _Server) -> None:
        server.take_back()
        if len(self.servers) > self._size:
            self.servers.discard(server)
            server.writer.write(GOODBYE)
            server.writer.close()
        else:
            self._idle.put_nowait(server)

    def lose(self, server: _Server, waiting: int) -> None:
        server.is_lost = True
        self.servers.discard(server)
        for _ in range(0 if self.servers else waiting):
            self._idle.put_nowait(None)  # waiting clients check again


class _Pools:
    """All connections of both sides; used on the pooler's thread alone."""

    def __init__(self, port: int, size: int) -> None:
        self._port, self._size = port, size
        self._pools: dict[tuple[str, str], _Pool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.clients: set[_Client] = set()
        self.handed_out = 0

    def count_servers(self) -> int:
        return sum(len(pool.servers) for pool in self._pools.values())

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client, messages = _Client(writer), Messages(letters=False)
        self.clients.add(client)
        try:
            while data := await reader.read(CHUNK):
                for message in messages.feed(data):
                    await self._hear(client, message)
                await writer.drain()
        finally:
            self.clients.discard(client)
            if client.server is not None:  # in the middle of a transaction, which must not go on
                client.server.writer.transport.abort()

    async def _hear(self, client: _Client, message: Message) -> None:
        if message.kind == START:
            await self._start(client, message)
        elif message.kind == TERMINATE:
            client.writer.close()
        else:
            assert client.pool is not None
            if client.server is None:
                await client.pool.borrow(client)
                self.handed_out += 1
            assert client.server is not None
            client.owed += message.makes_ready
            client.server.writer.write(message.raw)
            await client.server.writer.drain()

    async def _start(self, client: _Client, message: Message) -> None:
        """A client is let in by the server itself, on a connection that is pooled afterwards."""
        if message.asks_for_encryption:
            client.writer.write(NO)
        elif message.code == CANCEL:
            await self._cancel(message)
            client.writer.close()  # which tells that it has been done
        else:
            who = message.parameters
            place = who["user"], who.get("database", who["user"])
            client.pool = self._pools.setdefault(place, _Pool(self._size))
            server = await self._connect(client.pool)
            server.lend(client)
            client.owed = 1
            server.writer.write(message.raw)

    async def _connect(self, pool: _Pool) -> _Server:
        server = _Server(*await asyncio.open_connection("127.0.0.1", self._port))
        pool.servers.add(server)
        task = asyncio.create_task(self._read(server, pool))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return server

    async def _read(self, server: _Server, pool: _Pool) -> None:
        messages = Messages(letters=True)
        try:
            while data := await server.reader.read(CHUNK):
                for message in messages.feed(data):
                    if server.hear(message):
                        pool.give_back(server)
                if server.client is not None:
                    await server.client.writer.drain()
        except OSError:
            pass  # it is gone
        finally:
            pool.lose(server, len(self.clients))
            if server.client is not None:
                server.client.writer.transport.abort()
            server.writer.transport.abort()

    async def _cancel(self, message: Message) -> None:
        """It names the connection that the client was let in on; meant is the one it has now."""
        for client in tuple(self.clients):
            if client.key == message.body[4:] and client.server is not None:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(message.raw[:8] + client.server.key)
                await reader.read()
                writer.close()
