"""The store: the contract's verbs, handed to the one writer or to the readers."""

import asyncio
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakSet

from outlast.clock import Clock, SystemClock
from outlast.core.ids import Ids
from outlast.core.job import NewJob
from outlast.errors import StoreClosed
from outlast.store.contract import Capability
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.sqlite import verbs
from outlast.store.sqlite.caller_connection import caller_cursor
from outlast.store.sqlite.connection import connect, require_version, require_writable, translated
from outlast.store.sqlite.handler_transaction import SqliteTransaction
from outlast.store.sqlite.locks import FileLock, FileLocks
from outlast.store.sqlite.migrate import migrate, require_holdfast_schema, write_ahead
from outlast.store.sqlite.notify.bridge import SocketBridge
from outlast.store.sqlite.operations.insight import SqliteViews
from outlast.store.sqlite.operations.jobs import JobOperations
from outlast.store.sqlite.parts.around import SqliteAround
from outlast.store.sqlite.parts.groups import GroupOperations
from outlast.store.sqlite.parts.moving import SqliteMoving
from outlast.store.sqlite.parts.queues import SqliteQueues
from outlast.store.sqlite.parts.schedules import SqliteSchedules
from outlast.store.sqlite.parts.upkeep import SqliteUpkeep
from outlast.store.sqlite.reader import Reader
from outlast.store.sqlite.statements import Probe
from outlast.store.sqlite.writer import Writer, WriteTransaction
from outlast.store.subscribers import Subscribers

BUSY = 30.0
"""Seconds to wait for a lock that somebody else holds."""

OPEN: "WeakSet[SqliteStore]" = WeakSet()
"""What this process, or the one it was forked from, has open."""


class SqliteStore(
    JobOperations,
    SqliteQueues,
    GroupOperations,
    SqliteSchedules,
    SqliteAround,
    SqliteUpkeep,
    SqliteViews,
    SqliteMoving,
):
    """One file, several processes. Reads and writes never wait for each other."""

    capabilities = frozenset(
        {
            Capability.DURABLE,
            Capability.SHARED,
            Capability.TRANSACTIONS,
            Capability.SEALS,
            Capability.MAINTENANCE_CHECK,
        }
    )

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        busy: float = BUSY,
        adopt: bool = False,
        probe: Probe | None = None,
    ) -> None:
        self.path = path.absolute()
        self._clock = clock or SystemClock()
        self._ids = ids or Ids(self._clock.now, secrets.randbits)
        self._busy = busy
        self._adopt = adopt
        self._probe = probe
        self._gate = threading.Lock()
        self._opening = threading.Lock()
        self._listeners = Subscribers()
        self._locks = FileLocks(self.path)
        self._open: tuple[Writer, Reader, int] | None = None

    def exists(self) -> bool:
        return self.path.exists()

    async def open(self) -> None:
        await asyncio.to_thread(self._start_once)

    async def close(self) -> None:
        if self._open is not None:
            writer, reader, _ = self._open
            self._open = None
            self._locks.drop()
            for close in (
                writer.close,
                reader.close,
                self._listeners.disconnect,
                self._beginning.shutdown,
                self._closing.shutdown,
            ):
                await asyncio.to_thread(close)

    async def acquire_lock(self, name: str, *, shared: bool = False) -> FileLock | None:
        self._require_open()
        taking = asyncio.ensure_future(asyncio.to_thread(self._locks.take, name, shared=shared))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(_drop)  # nobody will know that it was taken
            raise

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        self._require_open()
        return await asyncio.to_thread(self._locks.free_locks, names)

    def subscribe(
        self, wake: Callable[[Notification], None], *, topics: Collection[Topic] = frozenset(Topic)
    ) -> Callable[[], None]:
        return self._listeners.add(wake, topics)

    async def add_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Added]:
        self._require_open()
        with translated(self.path), caller_cursor(connection, self.path) as cursor:
            work = WriteTransaction(cursor, self._clock, self._probe, careful=True)
            return verbs.add(work, jobs)

    async def begin(self, *, within: timedelta, blocking: bool = False) -> SqliteTransaction:  # noqa: ARG002 - one kind of connection serves both
        self._require_open()
        transaction = SqliteTransaction(
            self.path,
            self._clock,
            gate=self._gate,
            busy=self._busy,
            probe=self._probe,
            tell=self._listeners.publish,
            within=within,
            closing=self._closing,
        )
        starting = asyncio.get_running_loop().run_in_executor(self._beginning, transaction.start)
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._closing.submit(transaction.abandon)
            raise
        return transaction

    def _start_once(self) -> None:
        with self._opening:
            if self._open is None:
                self._start()

    def _start(self) -> None:
        require_version()
        _refuse_after_fork(self.path)
        self._migrate()
        writer = Writer(
            connect(self.path, busy=self._busy),
            self.path,
            self._clock,
            gate=self._gate,
            probe=self._probe,
            tell=self._listeners.publish,
        )
        writer.start()
        reader = Reader(self.path, busy=self._busy, probe=self._probe)
        # Whoever waits for the write lock waits on a thread that whoever holds it does not need.
        self._beginning = ThreadPoolExecutor(1, thread_name_prefix="outlast-begin")
        self._closing = ThreadPoolExecutor(1, thread_name_prefix="outlast-commit")
        self._listeners.connect(
            SocketBridge(
                self.path,
                wanted=lambda: self._listeners.wanted,
                heard=self._listeners.deliver,
                monotonic=self._clock.monotonic,
            )
        )
        self._open = writer, reader, os.getpid()
        OPEN.add(self)

    def _migrate(self) -> None:
        require_writable(self.path)
        connection: sqlite3.Connection = connect(self.path, busy=self._busy)
        boot = self._clock.boot_id()
        try:
            with translated(self.path):
                require_holdfast_schema(connection, self.path, adopt=self._adopt)
                write_ahead(connection, self.path, busy=self._busy)
                migrate(connection, self.path, boot=boot, probe=self._probe)
        finally:
            connection.close()

    def is_inherited(self, path: Path) -> bool:
        """Whether this is a store on that file which the parent process opened."""
        return self._open is not None and self._open[2] != os.getpid() and self.path == path

    def _require_open(self) -> tuple[Writer, Reader]:
        if self._open is None:
            raise StoreClosed(f"{self.path} is not open; call open() first")
        writer, reader, pid = self._open
        if pid != os.getpid():
            raise StoreClosed(f"{self.path} was opened before a fork; open a store of your own")
        return writer, reader

    @property
    def _writer(self) -> Writer:
        return self._require_open()[0]

    @property
    def _reader(self) -> Reader:
        return self._require_open()[1]


def _drop(taking: "asyncio.Future[FileLock | None]") -> None:
    if not taking.cancelled() and taking.exception() is None:
        held = taking.result()
        if held is not None:
            held.drop()


def _refuse_after_fork(path: Path) -> None:
    """SQLite's locks do not survive a fork, and it does not know: two would think they had them."""
    if any(store.is_inherited(path) for store in OPEN):
        raise StoreClosed(
            f"this process was forked while {path} was open, which SQLite cannot survive; open "
            "the store after the fork, or start the process afresh (multiprocessing: spawn)"
        )
