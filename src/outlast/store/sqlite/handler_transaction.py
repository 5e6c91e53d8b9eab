"""A transaction that a handler and the finish of its run share, bounded in time."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from pathlib import Path

from outlast.clock import Clock
from outlast.core.decide import Change
from outlast.errors import RunError, StoreBusy, TransactionTimeout
from outlast.store.contract.notifications import Notification
from outlast.store.sqlite import verbs
from outlast.store.sqlite.connection import connect, translated
from outlast.store.sqlite.guarded_connection import BY_HAND, GuardedConnection, is_within
from outlast.store.sqlite.statements import Probe, run
from outlast.store.sqlite.writer import WriteTransaction

NUDGE = 0.02
"""Seconds between two interruptions of a statement that does not end."""


class SqliteTransaction:
    """Holds the file's only write lock from its beginning to its end.

    Whatever a handler writes is in it or nowhere: when its time is over, or somebody ended it by
    hand, the connection refuses every further statement, which would commit by itself.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        gate: threading.Lock,
        busy: float,
        probe: Probe | None,
        tell: Callable[[Notification], None],
        within: timedelta,
        closing: Executor,
    ) -> None:
        self.connection = connect(path, busy=busy, factory=GuardedConnection)
        self._guard = self.connection.guard
        self._guard.refusal = self._refusal
        self._turn = self._guard.turn
        self._path = path
        self._clock = clock
        self._gate = gate
        self._busy = busy
        self._probe = probe
        self._tell = tell
        self._within = within
        self._closing = closing
        self._holds_gate = False
        self._is_committing = False
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
                    run(self._cursor(), "unit_of_work.begin", self._probe)
            except BaseException:
                self._let_go()
                raise
            self._guard.is_armed = True
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
        if self._guard.ended_by_hand:
            raise RunError(BY_HAND)

    def abandon(self) -> None:
        """Undo it, whether it has begun, waits to begin, or is over."""
        with self._turn:
            self._let_go()
            self._guard.is_armed = False
            self.connection.close()

    def _refusal(self) -> Exception | None:
        if not self._over:
            self._guard.look(self.connection)
        try:
            self.check()
        except RunError as error:
            return error
        return RunError("this run.transaction() is over") if self._over else None

    def _commit(self, changes: Sequence[Change]) -> bool:
        self._is_committing = True
        try:
            with self._turn:
                refusal = self._refusal()
                if refusal is not None:
                    raise refusal
                work = self._apply(changes)
        finally:
            self.abandon()
        if work is not None:
            self._tell(work.hint)
        return work is not None

    def _apply(self, changes: Sequence[Change]) -> WriteTransaction | None:
        cursor = self._cursor()
        work = WriteTransaction(cursor, self._clock, self._probe, careful=False)
        with translated(self._path):
            if not all(verbs.apply(work, changes)):
                return None
            run(cursor, "unit_of_work.commit", self._probe)
        return work

    def _cursor(self) -> sqlite3.Cursor:
        """One of our own: unguarded, and without what the handler has set for its rows."""
        cursor = sqlite3.Cursor(self.connection)
        cursor.row_factory = None
        return cursor

    def _expire(self) -> None:
        self._expired = not self._over
        while not self._turn.acquire(timeout=NUDGE):
            if not self._is_committing:
                self.connection.interrupt()
        try:
            self._let_go()
        finally:
            self._turn.release()

    def _let_go(self) -> None:
        """Roll back what is not committed, and give the write lock to whoever is next."""
        self._over = True
        self._timer.cancel()
        if is_within(self.connection):
            run(self._cursor(), "unit_of_work.rollback", self._probe)
        if self._holds_gate:
            self._holds_gate = False
            self._gate.release()
