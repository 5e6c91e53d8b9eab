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
from holdfast.errors import RunError, StoreBusy, TransactionTimeout
from holdfast.store.base import Hint
from holdfast.store.sqlite import verbs
from holdfast.store.sqlite.database import connect, translated
from holdfast.store.sqlite.statements import Probe, run
from holdfast.store.sqlite.writer import Work

WRITES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}


class SqliteTransaction:
    """Holds the file's only write lock from its beginning to its end.

    Whatever a handler writes is in it or nowhere. When its time is over it is rolled back under
    whoever still uses it, and the connection is made read-only just before: a statement that came
    after the rollback would commit by itself. For the same reason nothing may be written once
    somebody has ended it by hand; so that SQLite asks each time, no statement is kept prepared.
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
        self.connection = connect(path, busy=busy, cached=0)
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
        self._ended_by_hand = False
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
            self.connection.set_authorizer(self._authorize)
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
        if self._ended_by_hand:
            raise RunError(
                "the handler ended run.transaction() itself; leave commit, rollback and close to "
                "Holdfast, which commits it together with the end of the run"
            )

    def abandon(self) -> None:
        """Undo it, whether it has begun, waits to begin, or is over."""
        with self._turn:
            self._note_end_by_hand()
            self._let_go()
            self.connection.close()

    def _commit(self, changes: Sequence[Change]) -> bool:
        try:
            with self._turn:
                self._note_end_by_hand()
                self.check()
                if self._over:
                    raise RunError("this run.transaction() is over already; open one per run")
                work = self._apply(changes)
                self._over = True
        finally:
            self.abandon()
        if work is not None:
            self._tell(work.hint)
        return work is not None

    def _note_end_by_hand(self) -> None:
        if self._holds_gate and not self._over:
            self._ended_by_hand = not _is_within(self.connection)

    def _authorize(self, action: int, *_: object) -> int:
        is_lost = action in WRITES and not self.connection.in_transaction
        return sqlite3.SQLITE_DENY if is_lost else sqlite3.SQLITE_OK

    def _apply(self, changes: Sequence[Change]) -> Work | None:
        self.connection.set_authorizer(None)
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
                self._insist("tx.read_only")
                self._let_go()

    def _insist(self, name: str) -> None:
        """The interruption of the handler's statement may hit ours as well: then again."""
        while True:
            try:
                run(self.connection.cursor(), name, self._probe)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                    raise
            except sqlite3.ProgrammingError:  # closed by hand
                return
            else:
                return

    def _let_go(self) -> None:
        """Roll back what is not committed, and give the write lock to whoever is next."""
        self._over = True
        self._timer.cancel()
        if _is_within(self.connection):
            self._insist("tx.rollback")
        if self._holds_gate:
            self._holds_gate = False
            self._gate.release()


def _is_within(connection: sqlite3.Connection) -> bool:
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:  # closed
        return False
