"""The single writer of a file: a thread that commits all requests that waited for it together.

There is no timer and no delay. A lone write commits at once, and the group grows with the load.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from outlast.clock import Clock, from_micros, to_micros
from outlast.errors import InvalidArgument, OutlastError, StoreClosed, StoreCorrupt
from outlast.store.contract.notifications import Notification
from outlast.store.contract.transfer import OPEN, closed_error, from_row
from outlast.store.sql_files import Probe
from outlast.store.sqlite.connection import translate
from outlast.store.sqlite.open_files import OpenFiles
from outlast.store.sqlite.statements import run
from outlast.store.sqlite.write_queue import WriteTurn

MAX_REQUESTS_PER_COMMIT: Final = 1000

FATAL_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
    }
)
"""Primary error codes of the file itself: repeating the requests one by one cannot succeed."""


class WriteTransaction:
    """An open transaction as the write functions see it.

    `now` is the wall clock and `mono` the monotonic clock, both in microseconds and read once. With
    `isolate_items` every item runs under its own savepoint. `is_handlers`: it commits with the
    writes of a handler. The `notify_…` fields collect what the commit announces; the queue `""`
    stands for a queue that is not known.
    """

    def __init__(
        self, cursor: sqlite3.Cursor, clock: Clock, probe: Probe | None, *, isolate_items: bool
    ) -> None:
        """Use a cursor whose transaction has begun."""
        self._cursor = cursor
        self._probe = probe
        self.now = to_micros(clock.now())
        self.mono = clock.monotonic()
        self.isolate_items = isolate_items
        self.is_handlers = False
        self.notify_queues: set[str] = set()
        self.notify_ended = False
        self.notify_cancelled = False
        self.notify_schedules = False
        self._is_known_open = False

    def require_open(self) -> None:
        """Raise StoreSealed or StoreMoved unless the store accepts work.

        Reads the transfer status once per transaction.
        """
        if not self._is_known_open:
            status = from_row(self.run("transfer_status.get").fetchone()).at(from_micros(self.now))
            if status is not OPEN:
                raise closed_error(status)
            self._is_known_open = True

    def run(self, name: str, /, **values: Any) -> sqlite3.Cursor:
        """Execute the statement of that name and return the cursor."""
        return run(self._cursor, name, self._probe, **values)

    def value(self, name: str, /, **values: Any) -> Any:
        """Return the first column of the first row, None if there is no row."""
        row = self.run(name, **values).fetchone()
        return None if row is None else row[0]

    @property
    def notification(self) -> Notification:
        """The notification to publish after the commit."""
        return Notification(
            frozenset(self.notify_queues),
            ended=self.notify_ended,
            cancelled=self.notify_cancelled,
            schedules=self.notify_schedules,
        )


WriteFunction = Callable[[WriteTransaction, Sequence[Any]], list[Any]]
"""Writes many items and returns one answer per item, in order. Runs again after a rollback."""


@dataclass(frozen=True, slots=True)
class Request:
    """Items for one write function, and the future that receives the answers."""

    write: WriteFunction
    items: Sequence[Any]
    future: asyncio.Future[list[Any]]
    loop: asyncio.AbstractEventLoop


class Writer:
    """Owns the writing connection and runs all requests on its own thread, in order."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        clock: Clock,
        *,
        files: OpenFiles,
        turn: WriteTurn,
        probe: Probe | None,
        publish: Callable[[Notification], None],
    ) -> None:
        """Take over the connection.

        `files` are those of the connection, `turn` queues for the write lock, and `publish` is
        called with the notification of every commit.
        """
        self._connection = connection
        self._cursor = connection.cursor()
        self._path = path
        self._files = files
        self._clock = clock
        self._turn = turn
        self._probe = probe
        self._publish = publish
        self._inbox: SimpleQueue[Request | None] = SimpleQueue()
        self._closed = False
        self._is_running = True
        self._thread = threading.Thread(target=self._loop, name="outlast-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def submit(self, function: WriteFunction, items: Sequence[Any]) -> list[Any]:
        """Run a write function in the next commit; return its answers once they are durable.

        Raises StoreClosed after `close`, and the error of the write function if it fails.
        """
        if self._closed:
            raise StoreClosed(f"{self._path} was closed; open the store again")
        loop = asyncio.get_running_loop()
        request = Request(function, items, loop.create_future(), loop)
        self._inbox.put(request)
        return await request.future

    def close(self) -> None:
        """Commit the submitted requests and close the connection; blocks, no-op if closed."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
            self._thread.join()
            self._cursor.close()  # an error that refers to an open cursor keeps the file open
            self._connection.close()
            self._turn.close()

    def _loop(self) -> None:
        while self._is_running:
            first = self._inbox.get()
            if first is None:
                return
            self._serve(self._gather([first]))

    def _gather(self, requests: list[Request]) -> list[Request]:
        """Add the requests that wait to the list, and return it."""
        while len(requests) < MAX_REQUESTS_PER_COMMIT and not self._inbox.empty():
            request = self._inbox.get()
            if request is None:
                self._is_running = False
                break
            requests.append(request)
        return requests

    def _serve(self, requests: list[Request]) -> None:
        try:
            answers = self._commit(requests, isolate_items=False)
        except Exception as error:  # noqa: BLE001 - the error is the answer to every request
            self._serve_one_by_one(requests, error)
        else:
            _settle(zip(requests, answers, strict=True))

    def _serve_one_by_one(self, requests: list[Request], error: Exception) -> None:
        """After the rollback of a group, repeat each request in a transaction of its own."""
        if _is_fatal(error):
            _settle((request, _translated(error, self._path)) for request in requests)
            return
        for request in requests:
            try:
                answers: Any = self._commit([request], isolate_items=True)[0]
            except Exception as own_error:  # noqa: BLE001 - the error is the answer
                answers = _translated(own_error, self._path)
            _settle([(request, answers)])

    def _commit(self, requests: list[Request], *, isolate_items: bool) -> list[list[Any]]:
        cursor = self._cursor
        try:
            self._turn.begin(lambda: run(cursor, "unit_of_work.begin", self._probe))
            if not isolate_items:
                self._gather(requests)  # what came while it waited for the lock
            self._files.require_database()
            tx = WriteTransaction(cursor, self._clock, self._probe, isolate_items=isolate_items)
            answers = _run_requests(tx, requests)
            run(cursor, "unit_of_work.commit", self._probe)
            self._files.require_log()
        except BaseException:
            if self._connection.in_transaction:
                run(cursor, "unit_of_work.rollback", self._probe)
            raise
        finally:
            self._turn.end()
        self._publish(tx.notification)
        return answers


def _run_requests(tx: WriteTransaction, requests: list[Request]) -> list[list[Any]]:
    """Run neighbouring requests for one write function in one call and split the answers."""
    if len(requests) == 1:
        return [requests[0].write(tx, requests[0].items)]
    answers: list[list[Any]] = []
    for write, group in groupby(requests, key=lambda request: request.write):
        same = list(group)
        remaining = write(tx, [item for request in same for item in request.items])
        for request in same:
            count = len(request.items)
            answers.append(remaining[:count])
            remaining = remaining[count:]
    return answers


def _settle(outcomes: Iterable[tuple[Request, Any]]) -> None:
    """Hand answers or errors to the waiting futures, with one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Any]] = {}
    for request, outcome in outcomes:
        by_loop.setdefault(request.loop, []).append((request.future, outcome))
    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, so no coroutine waits on it
            loop.call_soon_threadsafe(_resolve, settled)


def _resolve(settled: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in settled:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _is_fatal(error: Exception) -> bool:
    return (
        isinstance(error, StoreCorrupt)
        or getattr(error, "sqlite_errorcode", 0) & 0xFF in FATAL_CODES
    )


def _translated(error: Exception, path: Path) -> Exception:
    own: OutlastError
    if isinstance(error, sqlite3.Error):
        own = translate(error, path)
    elif isinstance(error, ValueError) and not isinstance(error, OutlastError):
        own = InvalidArgument(f"no store can hold that: {error}")
    else:
        return error
    own.__cause__ = error
    return own
