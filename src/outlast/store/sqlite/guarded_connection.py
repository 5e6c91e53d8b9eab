"""The connection a handler gets: one thread at a time, and nothing once its transaction is over.

Two threads in one connection can freeze the process: one holds SQLite's mutex and wants the
interpreter lock, the other has that and wants the mutex. So every statement of the handler takes
turns with the timer that ends the transaction, and is refused when that has happened.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, ParamSpec, TypeVar

from outlast.errors import RunError

P = ParamSpec("P")
T = TypeVar("T")

BY_HAND = (
    "the handler ended run.transaction() itself; leave commit, rollback and close to Outlast, "
    "which commits it together with the end of the run"
)


class TransactionGuard:
    """Whose turn it is, and whether there is still a transaction to write in."""

    def __init__(self) -> None:
        self.turn = RLock()
        self.refusal: Callable[[], Exception | None] = lambda: None
        self.is_armed = False
        self.ended_by_hand = False

    @contextmanager
    def statement(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Around every statement: refused when the transaction is over, whoever ended it."""
        with self.turn:
            error = self.refusal() if self.is_armed else None
            if error is not None:
                raise error
            try:
                yield
            finally:
                self.look(connection)

    def look(self, connection: sqlite3.Connection) -> None:
        """Notice that the transaction was ended by SQL, or through the base class."""
        if self.is_armed and not is_within(connection):
            self.ended_by_hand = True


class GuardedConnection(sqlite3.Connection):
    """A connection whose statements ask its guard first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.guard = TransactionGuard()
        super().__init__(*args, **kwargs)

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        return super().cursor(*args, **{"factory": GuardedCursor, **kwargs})

    def execute(self, *args: Any) -> Any:
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> Any:
        return self.cursor().executemany(*args)

    def executescript(self, *args: Any) -> Any:
        return self.cursor().executescript(*args)

    def commit(self) -> None:
        self._refuse()

    def rollback(self) -> None:
        self._refuse()

    def close(self) -> None:
        self._refuse()
        super().close()

    def __enter__(self) -> Any:
        self._refuse()
        return self

    def _refuse(self) -> None:
        if self.guard.is_armed:
            self.guard.ended_by_hand = True
            raise RunError(BY_HAND)


class GuardedCursor(sqlite3.Cursor):
    """A cursor whose steps ask its connection's guard first."""

    def execute(self, *args: Any) -> Any:
        return self._turn(super().execute, *args)

    def executemany(self, *args: Any) -> Any:
        return self._turn(super().executemany, *args)

    def executescript(self, *args: Any) -> Any:
        return self._turn(super().executescript, *args)

    def fetchone(self) -> Any:
        return self._turn(super().fetchone)

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        return self._turn(super().fetchmany, *args, **kwargs)

    def fetchall(self) -> Any:
        return self._turn(super().fetchall)

    def __next__(self) -> Any:
        return self._turn(super().__next__)

    def _turn(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        connection = self.connection
        assert isinstance(connection, GuardedConnection)
        with connection.guard.statement(connection):
            return step(*args, **kwargs)


def is_within(connection: sqlite3.Connection) -> bool:
    """Whether a transaction is open on it."""
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:  # closed
        return False
