"""A transaction that a handler and the finish of its run share, bounded in time."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from pathlib import Path

from holdfast.clock import Clock
from holdfast.core.decide import Change
from holdfast.errors import StoreBusy, TransactionTimeout
from holdfast.store.base import Hint
from holdfast.store.sqlite import verbs
from holdfast.store.sqlite.database import connect, translated
from holdfast.store.sqlite.statements import Probe, run
from holdfast.store.sqlite.writer import Work


class SqliteTransaction:
    """Holds the file's only write lock from its beginning to its end.

    When its time is over the connection is closed under whoever still uses it: a statement run
    after the rollback would otherwise commit by itself.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        gate: threading.Lock,
        busy: float,
        probe: Probe | None,
        tell: Callable[[Hint], None],
        within: timedelta,
        closing: Executor,
    ) -> None:
        self.connection = connect(path, busy=busy)
        self._path = path
        self._clock = clock
        self._gate = gate
        self._busy = busy
        self._probe = probe
        self._tell = tell
        self._within = within
        self._closing = closing
        self._turn = threading.Lock()
        self._over = False
        self._expired = False
        self._timer = threading.Timer(within.total_seconds(), self._expire)
        self._timer.daemon = True

    def start(self) -> None:
        """Wait for the write lock, then start the time that is allowed."""
        if not self._gate.acquire(timeout=self._busy):
            self.connection.close()
            raise StoreBusy(f"{self._path} stayed locked by another transaction of this process")
        try:
            with translated(self._path):
                run(self.connection.cursor(), "tx.begin", self._probe)
        except BaseException:
            self._gate.release()
            self.connection.close()
            raise
        self._timer.start()

    async def commit(self, changes: Sequence[Change]) -> bool:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._closing, self._commit, changes)

    async def rollback(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._closing, self._end)

    def _commit(self, changes: Sequence[Change]) -> bool:
        with self._turn:
            if self._over:
                raise TransactionTimeout(
                    f"run.transaction() held the only write lock of {self._path} for more than "
                    f"{self._within.total_seconds():g} s and was rolled back; do slow work outside"
                )
            try:
                work = self._apply(changes)
            finally:
                self._finish()
        if work is not None:
            self._tell(work.hint)
        return work is not None

    def _apply(self, changes: Sequence[Change]) -> Work | None:
        cursor = self.connection.cursor()
        cursor.row_factory = None  # the handler may have set its own
        work = Work(cursor, self._clock, self._probe, careful=False)
        with translated(self._path):
            if not all(verbs.apply(work, changes)):
                run(cursor, "tx.rollback", self._probe)
                return None
            run(cursor, "tx.commit", self._probe)
        return work

    def _expire(self) -> None:
        self.connection.interrupt()
        self._end()

    def _end(self) -> None:
        with self._turn:
            if not self._over:
                self._finish()

    def _finish(self) -> None:
        self._over = True
        self._timer.cancel()
        try:
            if self.connection.in_transaction:
                run(self.connection.cursor(), "tx.rollback", self._probe)
        except sqlite3.Error:
            pass  # closing rolls back as well
        finally:
            self.connection.close()
            self._gate.release()
