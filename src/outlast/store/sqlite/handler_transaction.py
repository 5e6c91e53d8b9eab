"""A transaction that a handler and the end of its run share, bounded in time."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from pathlib import Path
from typing import Final

from outlast.clock import Clock
from outlast.core.decide import Change
from outlast.errors import RunError, TransactionTimeout
from outlast.store.contract.notifications import Notification
from outlast.store.sql_files import Probe
from outlast.store.sqlite.connection import connect, translated
from outlast.store.sqlite.guarded_connection import (
    ENDED_BY_HANDLER,
    GuardedConnection,
    has_transaction,
)
from outlast.store.sqlite.open_files import OpenFiles
from outlast.store.sqlite.operations.apply import apply
from outlast.store.sqlite.statements import run
from outlast.store.sqlite.write_queue import TransactionTurn
from outlast.store.sqlite.writer import WriteTransaction

INTERRUPT_INTERVAL_S: Final = 0.02
"""Pause between two interrupts of a statement that runs past the time limit."""


class SqliteTransaction:
    """Holds the write lock of the file from its beginning to its end.

    The handler cannot end it: `guarded_connection`. After the time limit, or after an attempt to
    end it, the connection refuses every further statement: outside the transaction it would commit
    on its own.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        files: OpenFiles,
        busy: float,
        probe: Probe | None,
        publish: Callable[[Notification], None],
        within: timedelta,
        closing: Executor,
    ) -> None:
        """Connect to the file without a transaction yet.

        `files` are those of the store, `busy` is the lock timeout in seconds, `within` the time
        limit, and commits run on `closing`.
        """
        self.connection = connect(path, busy=busy, factory=GuardedConnection)
        self._guard = self.connection.guard
        self._guard.refusal = self._refusal
        self._turn = self._guard.turn
        self._write_turn = TransactionTurn(self.connection, path, busy=busy)
        self._path = path
        self._files = files
        self._clock = clock
        self._probe = probe
        self._publish = publish
        self._within = within
        self._closing = closing
        self._is_committing = False
        self._is_over = False
        self._is_expired = False
        self._timer = threading.Timer(within.total_seconds(), self._expire)
        self._timer.daemon = True

    def start(self) -> None:
        """Wait for the write lock, begin, and start the time limit.

        Raises StoreBusy if the lock is not free in time. Ends at once if it was abandoned.
        """
        try:
            self._write_turn.wait()
        except BaseException:
            self.abandon()
            raise
        with self._turn:
            if self._is_over:  # abandoned while it waited
                self._end()
                return
            try:
                with translated(self._path):
                    self._write_turn.begin(
                        lambda: run(self._cursor(), "unit_of_work.begin", self._probe)
                    )
            except BaseException:
                self._end()
                raise
            self._guard.arm(self.connection)
            self._timer.start()

    async def commit(self, changes: Sequence[Change]) -> bool:
        """Apply the changes and commit; False and a rollback if any change is refused."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._closing, self._commit, changes)

    async def rollback(self) -> None:
        """Roll back; no-op if the transaction is over."""
        await asyncio.get_running_loop().run_in_executor(self._closing, self.abandon)

    def check(self) -> None:
        """Raise TransactionTimeout after the time limit, RunError if the handler ended it."""
        if self._is_expired:
            raise TransactionTimeout(
                f"run.transaction() held the only write lock of {self._path} for more than "
                f"{self._within.total_seconds():g} s and was rolled back; do slow work outside it"
            )
        if self._guard.is_ended_by_handler:
            raise RunError(ENDED_BY_HANDLER)

    def refuse_other_writes(self, path: Path) -> None:
        """Raise RunError for a write to that file which would wait for the end of this handler."""
        if path == self._path and not self._is_over:
            raise RunError(
                f"this handler holds the only write lock of {path} by run.transaction(), and would "
                "wait for itself; pass tx=conn, as in .options(tx=conn).enqueue(…), or write it "
                "before the block"
            )

    def abandon(self) -> None:
        """Roll back and close, whether the transaction has begun, waits to begin, or is over."""
        with self._turn:
            self._end()
            self._guard.is_armed = False
            self.connection.close()

    def _refusal(self) -> Exception | None:
        if not self._is_over:
            self._guard.detect_end(self.connection)
        try:
            self.check()
        except RunError as error:
            return error
        return RunError("this run.transaction() is over") if self._is_over else None

    def _commit(self, changes: Sequence[Change]) -> bool:
        self._is_committing = True
        try:
            with self._turn:
                refusal = self._refusal()
                if refusal is not None:
                    raise refusal
                self._guard.lift(self.connection)
                tx = self._apply(changes)
        finally:
            self.abandon()
        if tx is not None:
            self._publish(tx.notification)
        return tx is not None

    def _apply(self, changes: Sequence[Change]) -> WriteTransaction | None:
        cursor = self._cursor()
        tx = WriteTransaction(cursor, self._clock, self._probe, isolate_items=False)
        tx.is_handlers = True
        with translated(self._path):
            self._files.require_database()
            if not all(apply(tx, changes)):
                return None
            run(cursor, "unit_of_work.commit", self._probe)
            self._files.require_log()
        return tx

    def _cursor(self) -> sqlite3.Cursor:
        """Return an unguarded cursor without the handler's row factory."""
        cursor = sqlite3.Cursor(self.connection)
        cursor.row_factory = None
        return cursor

    def _expire(self) -> None:
        self._is_expired = not self._is_over
        while not self._turn.acquire(timeout=INTERRUPT_INTERVAL_S):
            if not self._is_committing:
                self.connection.interrupt()
        try:
            self._end()
        finally:
            self._turn.release()

    def _end(self) -> None:
        """Roll back what is not committed and release the write lock."""
        self._is_over = True
        self._timer.cancel()
        if has_transaction(self.connection):
            self._guard.lift(self.connection)
            run(self._cursor(), "unit_of_work.rollback", self._probe)
        self._write_turn.end()
