"""The connection that a handler gets: one thread at a time, and only during its transaction.

Two threads in one connection can deadlock the process: one holds SQLite's mutex and waits for the
interpreter lock, the other holds that and waits for the mutex. So every statement of the handler
takes turns with the timer that ends the transaction, and is refused after that.

While the guard is armed an authorizer refuses COMMIT, ROLLBACK and BEGIN before they take effect,
also where `sqlite3` runs them by itself, as `executescript` does. Savepoints are allowed.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final, ParamSpec, TypeVar

from outlast.errors import RunError

P = ParamSpec("P")
T = TypeVar("T")

ENDED_BY_HANDLER: Final = (
    "the handler tried to end run.transaction() itself; leave commit, rollback and close to "
    "Outlast, which commits it together with the end of the run; call execute for each statement "
    "instead of executescript, which commits first"
)


class TransactionGuard:
    """Orders the statements of a connection and refuses them outside its transaction.

    `turn` is held during every statement. `refusal` returns the error for a statement that comes
    too late. The guard has no effect until `is_armed`.
    """

    def __init__(self) -> None:
        """Start unarmed."""
        self.turn = RLock()
        self.refusal: Callable[[], Exception | None] = lambda: None
        self.is_armed = False
        self.is_ended_by_handler = False

    @contextmanager
    def statement(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Surround one statement; raises the refusal if the transaction is over."""
        with self.turn:
            error = self.refusal() if self.is_armed else None
            if error is not None:
                raise error
            try:
                yield
            except sqlite3.DatabaseError as denied:
                if getattr(denied, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH:
                    raise RunError(ENDED_BY_HANDLER) from denied
                raise
            finally:
                self.detect_end(connection)

    def arm(self, connection: sqlite3.Connection) -> None:
        """Guard the transaction that has begun."""
        sqlite3.Connection.set_authorizer(connection, self._authorize)
        self.is_armed = True

    def lift(self, connection: sqlite3.Connection) -> None:
        """Allow this package to end the transaction."""
        sqlite3.Connection.set_authorizer(connection, None)

    def _authorize(self, action: int, *_: object) -> int:
        if action != sqlite3.SQLITE_TRANSACTION:
            return sqlite3.SQLITE_OK
        self.is_ended_by_handler = True
        return sqlite3.SQLITE_DENY

    def detect_end(self, connection: sqlite3.Connection) -> None:
        """Note that SQLite itself ended the transaction, as `INSERT OR ROLLBACK` does."""
        if self.is_armed and not has_transaction(connection):
            self.is_ended_by_handler = True


class GuardedConnection(sqlite3.Connection):
    """A connection whose statements pass a guard, and that the handler cannot commit or close."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the arguments of sqlite3.Connection."""
        self.guard = TransactionGuard()
        super().__init__(*args, **kwargs)

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        """Return a guarded cursor."""
        return super().cursor(*args, **{"factory": GuardedCursor, **kwargs})

    def execute(self, *args: Any) -> Any:
        """Execute on a guarded cursor."""
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> Any:
        """Execute on a guarded cursor."""
        return self.cursor().executemany(*args)

    def executescript(self, *args: Any) -> Any:
        """Raise RunError during the transaction, which it would commit first."""
        return self.cursor().executescript(*args)

    def commit(self) -> None:
        """Raise RunError during the transaction."""
        self._refuse()

    def rollback(self) -> None:
        """Raise RunError during the transaction."""
        self._refuse()

    def close(self) -> None:
        """Close; raises RunError during the transaction."""
        self._refuse()
        super().close()

    def set_authorizer(self, *args: Any, **kwargs: Any) -> None:
        """Set the authorizer; raises RunError during the transaction, which has its own."""
        if self.guard.is_armed:
            raise RunError("run.transaction() has an authorizer of its own; set none on its conn")
        super().set_authorizer(*args, **kwargs)

    def __enter__(self) -> Any:
        self._refuse()
        return self

    def _refuse(self) -> None:
        if self.guard.is_armed:
            self.guard.is_ended_by_handler = True
            raise RunError(ENDED_BY_HANDLER)


class GuardedCursor(sqlite3.Cursor):
    """A cursor whose statements and fetches pass the guard of its connection."""

    def execute(self, *args: Any) -> Any:
        """Execute in turn."""
        return self._in_turn(super().execute, *args)

    def executemany(self, *args: Any) -> Any:
        """Execute in turn."""
        return self._in_turn(super().executemany, *args)

    def executescript(self, *args: Any) -> Any:
        """Raise RunError during the transaction, which it would commit first."""
        return self._in_turn(super().executescript, *args)

    def fetchone(self) -> Any:
        """Fetch in turn."""
        return self._in_turn(super().fetchone)

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch in turn."""
        return self._in_turn(super().fetchmany, *args, **kwargs)

    def fetchall(self) -> Any:
        """Fetch in turn."""
        return self._in_turn(super().fetchall)

    def __next__(self) -> Any:
        return self._in_turn(super().__next__)

    def _in_turn(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        connection = self.connection
        assert isinstance(connection, GuardedConnection)
        with connection.guard.statement(connection):
            return step(*args, **kwargs)


def has_transaction(connection: sqlite3.Connection) -> bool:
    """Return whether a transaction is open; False for a closed connection."""
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:
        return False
