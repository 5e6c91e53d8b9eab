"""The one writer: a thread that commits what has gathered while it was busy, together.

No timer and no delay: a lone write goes out at once, and the more arrive the larger the group.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from outlast.clock import Clock, from_micros, to_micros
from outlast.errors import InvalidArgument, OutlastError, StoreClosed, StoreCorrupt
from outlast.store.contract.notifications import Notification
from outlast.store.contract.transfer import OPEN, closed_error, from_row
from outlast.store.sqlite.connection import translate
from outlast.store.sqlite.statements import Probe, run

GROUP = 1000
"""How many requests one commit takes at most."""


FATAL_CODES = {
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


class WriteTransaction:
    """One transaction under way: what a verb needs to do its part in it."""

    def __init__(
        self, cursor: sqlite3.Cursor, clock: Clock, probe: Probe | None, *, careful: bool
    ) -> None:
        self._cursor = cursor
        self._probe = probe
        self.now = to_micros(clock.now())
        self.mono = clock.monotonic()
        self.isolate_items = careful
        self.queues: set[str] = set()
        self.ended = False
        self.cancelled = False
        self._is_open = False

    def require_open(self) -> None:
        """StoreSealed or StoreMoved, unless the store takes work; asked once in a transaction."""
        if not self._is_open:
            footing = from_row(self.run("transfer_status.get").fetchone()).at(from_micros(self.now))
            if footing is not OPEN:
                raise closed_error(footing)
            self._is_open = True

    def run(self, name: str, /, **values: Any) -> sqlite3.Cursor:
        return run(self._cursor, name, self._probe, **values)

    def one(self, name: str, /, **values: Any) -> Any:
        """The first column of the first row, None if there is no row."""
        row = self.run(name, **values).fetchone()
        return None if row is None else row[0]

    @property
    def hint(self) -> Notification:
        return Notification(frozenset(self.queues), ended=self.ended, cancelled=self.cancelled)


Verb = Callable[[WriteTransaction, Sequence[Any]], list[Any]]
"""Does its part for many items, answering each, in order. May be run again after a rollback."""


@dataclass(frozen=True, slots=True)
class Request:
    """Items for one verb, and who waits for the answers."""

    verb: Verb
    items: Sequence[Any]
    future: asyncio.Future[list[Any]]
    loop: asyncio.AbstractEventLoop


class Writer:
    """Owns the writing connection; everything it is asked runs on its thread, in order."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        clock: Clock,
        *,
        gate: threading.Lock,
        probe: Probe | None,
        tell: Callable[[Notification], None],
    ) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._path = path
        self._file = _identity(path)
        self._clock = clock
        self._gate = gate
        self._probe = probe
        self._tell = tell
        self._inbox: SimpleQueue[Request | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="outlast-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def submit(self, verb: Verb, items: Sequence[Any]) -> list[Any]:
        """The verb's answers, once what it wrote is durable."""
        if self._closed:
            raise StoreClosed(f"{self._path} was closed; open the store again")
        loop = asyncio.get_running_loop()
        request = Request(verb, items, loop.create_future(), loop)
        self._inbox.put(request)
        return await request.future

    def close(self) -> None:
        """Finish what was asked, then let go. Blocks; closing twice is fine."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
            self._thread.join()
            self._cursor.close()  # or an error somebody keeps would keep the file open
            self._connection.close()

    def _loop(self) -> None:
        going = True
        while going:
            requests, going = self._gather()
            if requests:
                self._serve(requests)

    def _gather(self) -> tuple[list[Request], bool]:
        """What waits, at least one; False when there is nothing more to come."""
        gathered: list[Request] = []
        while not gathered or (len(gathered) < GROUP and not self._inbox.empty()):
            request = self._inbox.get()
            if request is None:
                return gathered, False
            gathered.append(request)
        return gathered, True

    def _serve(self, requests: list[Request]) -> None:
        try:
            answers = self._commit(requests, careful=False)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            self._serve_alone(requests, error)
        else:
            _settle(zip(requests, answers, strict=True))

    def _serve_alone(self, requests: list[Request], error: Exception) -> None:
        """One of them failed and everything was rolled back: each again, by itself."""
        if _is_hopeless(error):
            _settle((request, _named(error, self._path)) for request in requests)
            return
        for request in requests:
            try:
                answers: Any = self._commit([request], careful=True)[0]
            except Exception as alone:  # noqa: BLE001 - whoever asked is told
                answers = _named(alone, self._path)
            _settle([(request, answers)])

    def _commit(self, requests: list[Request], *, careful: bool) -> list[list[Any]]:
        cursor = self._cursor
        with self._gate:
            run(cursor, "unit_of_work.begin", self._probe)
            try:
                self._require_same_file()
                work = WriteTransaction(cursor, self._clock, self._probe, careful=careful)
                answers = _perform(work, requests)
                run(cursor, "unit_of_work.commit", self._probe)
            except BaseException:
                if self._connection.in_transaction:
                    run(cursor, "unit_of_work.rollback", self._probe)
                raise
        self._tell(work.hint)
        return answers

    def _require_same_file(self) -> None:
        """A file that was removed takes writes all the same, and nobody would ever find them."""
        if _identity(self._path) != self._file:
            raise StoreCorrupt(
                f"{self._path} is gone, or another file has its name, since it was opened; put it "
                "back, or restart whoever uses it. Nothing was written"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - before every commit, without a detour
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _perform(work: WriteTransaction, requests: list[Request]) -> list[list[Any]]:
    """Neighbours that ask for the same verb are done in one go, and their answers dealt out."""
    if len(requests) == 1:
        return [requests[0].verb(work, requests[0].items)]
    answers: list[list[Any]] = []
    for verb, group in groupby(requests, key=lambda request: request.verb):
        same = list(group)
        together = verb(work, [item for request in same for item in request.items])
        for request in same:
            count = len(request.items)
            answers.append(together[:count])
            together = together[count:]
    return answers


def _settle(outcomes: Any) -> None:
    """Tell each waiting loop once, however many answers it gets."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Any]] = {}
    for request, outcome in outcomes:
        by_loop.setdefault(request.loop, []).append((request.future, outcome))
    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, settled)


def _resolve(settled: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in settled:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _is_hopeless(error: Exception) -> bool:
    """Whether the file itself is the trouble, so that asking again alone cannot help."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in FATAL_CODES


def _named(error: Exception, path: Path) -> Exception:
    named: OutlastError
    if isinstance(error, sqlite3.Error):
        named = translate(error, path)
    elif isinstance(error, ValueError) and not isinstance(error, OutlastError):
        named = InvalidArgument(f"no store can hold that: {error}")
    else:
        return error
    named.__cause__ = error
    return named
