"""A transaction that a handler and the finish of its run share, bounded in time."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from holdfast.clock import Clock
from holdfast.core.decide import Change
from holdfast.errors import RunError, StoreBusy, TransactionTimeout
from holdfast.store.base import Hint
from holdfast.store.sqlite import verbs
from holdfast.store.sqlite.database import connect, translated
from holdfast.store.sqlite.statements import Probe, run
from holdfast.store.sqlite.writer import Work


class SqliteTransaction:
    """Holds the file's only write lock from its beginning to its end.

    When its time is over it is rolled back under whoever still uses it. The connection is made
    read-only just before: a statement that came after the rollback would commit by itself.
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
        self._holds_gate = False
        self._over = False
        self._expired = False
        self._timer = threading.Timer(within.total_seconds(), self._expire)
        self._timer.daemon = True

    def start(self) -> None:
        """Wait for the write lock, then start the time that is allowed."""
        if not self._gate.acquire(timeout=self._busy):
            self.connection.close()
            raise StoreBusy(f"{self._path} stayed locked by another transaction of this process")
        with self._turn:
            self._holds_gate = True
            if self._over:  # nobody wants it any more
                self._let_go()
                return
            try:
                with translated(self._path):
                    run(self.connection.cursor(), "tx.begin", self._probe)
            except BaseException:
                self._let_go()
                raise
            self._timer.start()

    async def commit(self, changes: Sequence[Change]) -> bool:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._closing, self._commit, changes)

    async def rollback(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._closing, self.abandon)

    def check(self) -> None:
        if self._expired:
            raise TransactionTimeout(
                f"run.transaction() held the only write lock of {self._path} for more than "
                f"{self._within.total_seconds():g} s and was rolled back; do slow work outside it"
            )

    def abandon(self) -> None:
        """Undo it, whether it has begun, waits to begin, or is over."""
        with self._turn:
            self._let_go()
            self.connection.close()

    def _commit(self, changes: Sequence[Change]) -> bool:
        try:
            with self._turn:
                self.check()
                self._require_own()
                work = self._apply(changes)
        finally:
            self.abandon()
        if work is not None:
            self._tell(work.hint)
        return work is not None

    def _require_own(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # closed
            if self.connection.in_transaction:
                return
        raise RunError(
            "the handler ended run.transaction() itself; leave commit, rollback and close to "
            "Holdfast, which commits it together with the end of the run"
        )

    def _apply(self, changes: Sequence[Change]) -> Work | None:
        cursor = self.connection.cursor()
        cursor.row_factory = None  # the handler may have set its own
        work = Work(cursor, self._clock, self._probe, careful=False)
        with translated(self._path):
            if not all(verbs.apply(work, changes)):
                return None
            run(cursor, "tx.commit", self._probe)
        return work

    def _expire(self) -> None:
        self.connection.interrupt()
        with self._turn:
            if not self._over:
                self._expired = True
                with suppress(sqlite3.Error):
                    self.connection.execute("PRAGMA query_only = ON")
                self._let_go()

    def _let_go(self) -> None:
        """Roll back what is not committed, and give the write lock to whoever is next."""
        self._over = True
        self._timer.cancel()
        with suppress(sqlite3.Error):
            if self.connection.in_transaction:
                run(self.connection.cursor(), "tx.rollback", self._probe)
        if self._holds_gate:
            self._holds_gate = False
            self._gate.release()
