"""The queue for SQLite's write lock, across processes.

SQLite has no queue of its own: a connection that finds the lock taken looks again after a pause,
and a process that writes without pause keeps the lock. Two locked files beside the database order
the waiting connections; the kernel wakes those that wait for such a file in turn.

- `write.queue` is held by every handler transaction, and by any other write that found the lock
  taken, from before its next attempt until its end.
- `transaction.queue` is held by a handler transaction until it has begun. So at most one of them
  waits for `write.queue`: a write that waits there is passed by the transaction that runs and the
  one that waits, and by no third.

Without such files (no `flock`, no permission) a connection only looks again, as SQLite does.
"""

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from outlast.errors import StoreBusy
from outlast.store.fork_safety import close_in_children
from outlast.store.sqlite.file_modes import file_mode, folder_mode
from outlast.store.sqlite.locks import lock_folder

ATTEMPT_INTERVAL_S: Final = 0.001
"""Pause between two attempts of the first connection in the queue to take the write lock."""


class QueuedLock:
    """An exclusive lock on a file, waited for in the kernel's queue and with a time limit.

    A lock held by this object excludes every other object, in this process too.
    """

    def __init__(self, database: Path, path: Path) -> None:
        """Open the file when it is first used."""
        self._database = database
        self._path = path
        self._file: int | None = None
        self._gate = threading.Lock()
        self._granted = threading.Event()
        self._is_waiting = False
        self._is_wanted = False
        self._is_closed = False

    def acquire(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; False if the lock was not granted in that time.

        True without a lock where the system has none, or after `close`.
        """
        with self._gate:
            if self._is_closed:
                return True
            self._is_wanted = True
            if not self._is_waiting:
                if not self._open() or self._try():
                    return True
                self._wait_in_thread()
        if self._granted.wait(timeout):
            return True
        with self._gate:
            self._is_wanted = self._granted.is_set()
        return self._is_wanted

    def release(self) -> None:
        """Release the lock; no-op if it is not held."""
        with self._gate:
            self._is_wanted = False
            if not self._is_waiting:
                self._release_file()

    def close(self) -> None:
        """Release the lock and close the file; idempotent."""
        with self._gate:
            self._is_wanted = False
            self._is_closed = True
            self._granted.set()  # a caller that waits stops waiting
            if not self._is_waiting:
                self._release_file()

    def drop(self) -> None:
        """Close the file of a forked child; its parent keeps the lock."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _open(self) -> bool:
        if self._file is None:
            with suppress(OSError):
                self._path.parent.mkdir(folder_mode(self._database), exist_ok=True)
                close_in_children(self._open_file)
        return self._file is not None

    def _open_file(self) -> "QueuedLock":
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.open(self._path, flags, file_mode(self._database))
        return self

    def _try(self) -> bool:
        """Return whether no lock has to be waited for: it is held now, or not supported."""
        assert self._file is not None
        try:
            _lock(self._file, blocking=False)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _wait_in_thread(self) -> None:
        # A blocking flock has no time limit, so it runs in a thread of its own, which outlives a
        # caller that gives up and keeps its place for the next one.
        self._granted.clear()
        self._is_waiting = True
        threading.Thread(target=self._wait, name="outlast-queue", daemon=True).start()

    def _wait(self) -> None:
        assert self._file is not None
        with suppress(OSError):
            _lock(self._file, blocking=True)
        with self._gate:
            self._is_waiting = False
            if self._is_wanted:
                self._granted.set()
            else:
                self._release_file()

    def _release_file(self) -> None:
        if self._file is not None:
            # By a call, because a child that is being forked may still have the file open.
            with suppress(OSError):
                _unlock(self._file)
            if self._is_closed:
                self.drop()


class WriteTurn:
    """The turns of one connection that writes again and again."""

    def __init__(self, connection: sqlite3.Connection, database: Path, *, busy: float) -> None:
        """Queue for that connection beside its file, for up to `busy` seconds."""
        connection.execute("PRAGMA busy_timeout = 0")  # the queue waits, not SQLite
        self._queue = _write_queue(database)
        self._busy = busy
        self._is_queued = False

    def begin(self, begin: Callable[[], object]) -> None:
        """Call `begin`, which takes the write lock; queue for the lock if it is taken.

        Raises the error of `begin` if the lock stays taken.
        """
        try:
            begin()
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
            deadline = monotonic() + self._busy
            if not self._queue.acquire(self._busy):
                raise
            self._is_queued = True
            _begin_until(begin, deadline)

    def end(self) -> None:
        """Let the next one begin, once the write lock is released."""
        if self._is_queued:
            self._is_queued = False
            self._queue.release()

    def close(self) -> None:
        """Close the file of the queue."""
        self._queue.close()


class TransactionTurn:
    """The turn of one handler transaction."""

    def __init__(self, connection: sqlite3.Connection, database: Path, *, busy: float) -> None:
        """Queue for that connection beside its file, for up to `busy` seconds."""
        self._connection = connection
        self._database = database
        self._transactions = QueuedLock(database, lock_folder(database) / "transaction.queue")
        self._writes = _write_queue(database)
        self._deadline = 0.0
        self._busy = busy

    def wait(self) -> None:
        """Wait until no other write comes first; raises StoreBusy after the time limit."""
        self._deadline = monotonic() + self._busy
        if not (
            self._transactions.acquire(self._busy)
            and self._writes.acquire(self._deadline - monotonic())
        ):
            self.end()
            raise StoreBusy(
                f"{self._database} stayed locked by other transactions for {self._busy:g} s; "
                "shorten them, or run fewer jobs with run.transaction() at a time"
            )

    def begin(self, begin: Callable[[], object]) -> None:
        """Call `begin`, which takes the write lock, and let the next transaction queue."""
        try:
            self._connection.execute("PRAGMA busy_timeout = 0")  # the queue waits, not SQLite
            _begin_until(begin, self._deadline)
            self._connection.execute("PRAGMA busy_timeout = 5000")  # for other files it attaches
        finally:
            self._transactions.close()

    def end(self) -> None:
        """Let the next one begin, once the write lock is released; idempotent."""
        self._writes.close()
        self._transactions.close()


def _write_queue(database: Path) -> QueuedLock:
    return QueuedLock(database, lock_folder(database) / "write.queue")


def _begin_until(begin: Callable[[], object], deadline: float) -> None:
    """Take the write lock, which others of the queue do not want meanwhile."""
    while True:
        try:
            begin()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or monotonic() > deadline:
                raise
            sleep(ATTEMPT_INTERVAL_S)
        else:
            return


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _lock(file: int, *, blocking: bool) -> None:
    try:
        import fcntl  # noqa: PLC0415 - not every system has it
    except ImportError as error:
        raise OSError from error
    fcntl.flock(file, fcntl.LOCK_EX if blocking else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlock(file: int) -> None:
    import fcntl  # noqa: PLC0415 - the file was locked by it

    fcntl.flock(file, fcntl.LOCK_UN)
