"""SqliteStore: open and close the file, locks, notifications and transactions."""

import asyncio
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from outlast.clock import Clock, SystemClock
from outlast.core.ids import Ids
from outlast.core.job import NewJob
from outlast.errors import StoreClosed
from outlast.store.contract import Capability
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.contract.transactions import CURRENT_TRANSACTION
from outlast.store.sql_files import Probe
from outlast.store.sqlite.caller_connection import caller_cursor, with_caller_connection
from outlast.store.sqlite.connection import connect, require_version, require_writable, translated
from outlast.store.sqlite.file_modes import create_private
from outlast.store.sqlite.handler_transaction import SqliteTransaction
from outlast.store.sqlite.locks import FileLock, FileLocks
from outlast.store.sqlite.migrate import enable_write_ahead_log, migrate, require_outlast_schema
from outlast.store.sqlite.notify.bridge import SocketBridge
from outlast.store.sqlite.open_files import OpenFiles
from outlast.store.sqlite.operations.add import SqliteAddOperations, add
from outlast.store.sqlite.operations.apply import SqliteApplyOperations
from outlast.store.sqlite.operations.audit import SqliteAuditOperations
from outlast.store.sqlite.operations.claim import SqliteClaimOperations
from outlast.store.sqlite.operations.documents import SqliteDocumentOperations
from outlast.store.sqlite.operations.groups import SqliteGroupOperations
from outlast.store.sqlite.operations.insight import SqliteInsightOperations
from outlast.store.sqlite.operations.jobs import SqliteJobOperations
from outlast.store.sqlite.operations.logs import SqliteLogOperations
from outlast.store.sqlite.operations.maintenance import SqliteMaintenanceOperations
from outlast.store.sqlite.operations.positions import SqlitePositionOperations
from outlast.store.sqlite.operations.queues import SqliteQueueOperations
from outlast.store.sqlite.operations.reservations import SqliteReservationOperations
from outlast.store.sqlite.operations.runs import SqliteRunOperations
from outlast.store.sqlite.operations.schedules import SqliteScheduleOperations
from outlast.store.sqlite.operations.transfer import SqliteTransferOperations
from outlast.store.sqlite.operations.workers import SqliteWorkerOperations
from outlast.store.sqlite.reader import Reader
from outlast.store.sqlite.write_queue import WriteTurn
from outlast.store.sqlite.writer import Writer, WriteTransaction
from outlast.store.subscribers import Subscribers

BUSY_TIMEOUT_S: Final = 30.0
"""Default wait for a lock that another process holds."""

OPEN: "WeakSet[SqliteStore]" = WeakSet()
"""Stores that this process has open, or inherited open from the process that forked it."""


class SqliteStore(
    SqliteAddOperations,
    SqliteClaimOperations,
    SqliteApplyOperations,
    SqliteRunOperations,
    SqliteLogOperations,
    SqliteJobOperations,
    SqlitePositionOperations,
    SqliteMaintenanceOperations,
    SqliteQueueOperations,
    SqliteReservationOperations,
    SqliteScheduleOperations,
    SqliteGroupOperations,
    SqliteDocumentOperations,
    SqliteWorkerOperations,
    SqliteAuditOperations,
    SqliteInsightOperations,
    SqliteTransferOperations,
):
    """A store in one file, shared by the processes of one machine."""

    capabilities = frozenset(
        {
            Capability.DURABLE,
            Capability.SHARED,
            Capability.TRANSACTIONS,
            Capability.ONE_WRITE_LOCK,
            Capability.MAINTENANCE_CHECK,
            Capability.KERNEL_LOCKS,
        }
    )

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        busy: float = BUSY_TIMEOUT_S,
        adopt: bool = False,
        probe: Probe | None = None,
    ) -> None:
        """Name the file without opening it.

        `busy` is the lock timeout in seconds. `adopt` allows tables in a file of another
        application. `probe` is called around every statement.
        """
        self.path = path.absolute()
        self._clock = clock or SystemClock()
        self._ids = ids or Ids(self._clock.now, secrets.randbits)
        self._busy = busy
        self._adopt = adopt
        self._probe = probe
        self._opening = threading.Lock()
        self._subscribers = Subscribers()
        self._locks = FileLocks(self.path)
        self._open: tuple[Writer, Reader, int] | None = None

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self.path.exists()

    async def open(self) -> None:
        """Create or migrate the file and start the writer; no-op if open."""
        await asyncio.to_thread(self._start_once)

    async def close(self) -> None:
        """Commit submitted writes, release all locks and close the file; no-op if closed."""
        if self._open is not None:
            writer, reader, _ = self._open
            self._open = None
            self._locks.drop()
            for close in (
                writer.close,
                reader.close,
                self._subscribers.disconnect,
                self._beginning.shutdown,
                self._closing.shutdown,
            ):
                await asyncio.to_thread(close)

    async def acquire_lock(
        self,
        name: str,
        *,
        shared: bool = False,
        lasting: bool = False,  # noqa: ARG002 - a file lock needs no connection
    ) -> FileLock | None:
        """Acquire the named file lock at once; None if another holder has it."""
        self._require_open()
        acquiring = asyncio.ensure_future(
            asyncio.to_thread(self._locks.acquire, name, shared=shared)
        )
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            acquiring.add_done_callback(_drop_lock)
            raise

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Return the names that no process holds a lock on."""
        self._require_open()
        return await asyncio.to_thread(self._locks.free_locks, names)

    def subscribe(
        self, wake: Callable[[Notification], None], *, topics: Collection[Topic] = frozenset(Topic)
    ) -> Callable[[], None]:
        """Call `wake` after commits that concern a topic; return the function that unsubscribes."""
        return self._subscribers.add(wake, topics)

    async def add_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Added]:
        """Add jobs in the open transaction of the caller's connection."""
        self._require_open()

        def add_on(mine: sqlite3.Connection) -> list[Added]:
            with caller_cursor(mine, self.path) as cursor:
                tx = WriteTransaction(cursor, self._clock, self._probe, isolate_items=True)
                return add(tx, jobs)

        with translated(self.path):
            return await with_caller_connection(connection, add_on)

    async def begin(self, *, within: timedelta, blocking: bool = False) -> SqliteTransaction:  # noqa: ARG002 - one kind of connection serves both
        """Begin a handler transaction, which is rolled back when `within` has passed."""
        self._require_open()
        self._files.require_log()  # a new connection would create another one
        transaction = SqliteTransaction(
            self.path,
            self._clock,
            files=self._files,
            busy=self._busy,
            probe=self._probe,
            publish=self._subscribers.publish,
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

    def is_inherited(self, path: Path) -> bool:
        """Return whether the process that forked this one opened this store on that file."""
        return self._open is not None and self._open[2] != os.getpid() and self.path == path

    def _start_once(self) -> None:
        with self._opening:
            if self._open is None:
                self._start()

    def _start(self) -> None:
        require_version()
        _refuse_after_fork(self.path)
        create_private(self.path)
        self._migrate()
        connection: sqlite3.Connection = connect(self.path, busy=self._busy)
        with translated(self.path):
            self._files = OpenFiles(connection, self.path)
        writer = Writer(
            connection,
            self.path,
            self._clock,
            files=self._files,
            turn=WriteTurn(connection, self.path, busy=self._busy),
            probe=self._probe,
            publish=self._subscribers.publish,
        )
        writer.start()
        reader = Reader(self.path, busy=self._busy, probe=self._probe)
        # Two threads: a transaction that waits for the write lock must not block the commit of the
        # transaction that holds it.
        self._beginning = ThreadPoolExecutor(1, thread_name_prefix="outlast-begin")
        self._closing = ThreadPoolExecutor(1, thread_name_prefix="outlast-commit")
        self._subscribers.connect(
            SocketBridge(
                self.path,
                wanted=lambda: self._subscribers.wanted,
                deliver=self._subscribers.deliver,
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
                require_outlast_schema(connection, self.path, adopt=self._adopt)
                enable_write_ahead_log(connection, self.path, busy=self._busy)
                turn = WriteTurn(connection, self.path, busy=self._busy)
                migrate(connection, self.path, boot=boot, turn=turn, probe=self._probe)
        finally:
            connection.close()

    def _require_open(self) -> tuple[Writer, Reader]:
        if self._open is None:
            raise StoreClosed(f"{self.path} is not open; call open() first")
        writer, reader, pid = self._open
        if pid != os.getpid():
            raise StoreClosed(f"{self.path} was opened before a fork; open a store of your own")
        return writer, reader

    @property
    def _writer(self) -> Writer:
        held = CURRENT_TRANSACTION.get()
        if isinstance(held, SqliteTransaction):
            held.refuse_other_writes(self.path)
        return self._require_open()[0]

    @property
    def _reader(self) -> Reader:
        return self._require_open()[1]


def _drop_lock(acquiring: "asyncio.Future[FileLock | None]") -> None:
    """Release a lock that was acquired after its caller was cancelled."""
    if not acquiring.cancelled() and acquiring.exception() is None:
        lock = acquiring.result()
        if lock is not None:
            lock.drop()


def _refuse_after_fork(path: Path) -> None:
    """Raise StoreClosed in a forked child: SQLite would believe it holds its parent's locks."""
    if any(store.is_inherited(path) for store in OPEN):
        raise StoreClosed(
            f"this process was forked while {path} was open, which SQLite cannot survive; open "
            "the store after the fork, or start the process afresh (multiprocessing: spawn)"
        )
