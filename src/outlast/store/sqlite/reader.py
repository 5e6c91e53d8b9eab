"""Readers apart: they never wait for the writer, and it never waits for them."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from outlast.errors import InvalidArgument
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.connection import connect, translated
from outlast.store.sqlite.statements import Probe, run

T = TypeVar("T")
Query = Callable[..., list[tuple[Any, ...]]]
"""A statement's name and its values, to its rows."""

THREADS = 2


class Reader:
    """A few threads with a connection each; every question sees one consistent moment."""

    def __init__(self, path: Path, *, busy: float, probe: Probe | None) -> None:
        self._path = path
        self._busy = busy
        self._probe = probe
        self._mine = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="outlast-reader")

    async def rows(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """All rows that statement gives."""
        return await self._on_thread(lambda: self._fetch(name, values))

    async def cached_rows(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of a statement without values, from memory while nobody has written.

        Nothing that matters lives only here: the statement itself rebuilds it.
        """
        return await self._on_thread(lambda: self._remembered(name))

    async def in_snapshot(self, read: Callable[[Query], T]) -> T:
        """What `read` makes of several questions, all answered from one and the same moment."""
        return await self._on_thread(lambda: self._at_once(read))

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        for connection in self._opened:
            connection.close()
        self._opened.clear()

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _at_once(self, read: Callable[[Query], T]) -> T:
        def ask(name: str, /, **values: Any) -> list[tuple[Any, ...]]:
            return self._fetch(name, values)

        connection = self._connection()
        connection.execute("BEGIN")
        try:
            return read(ask)
        finally:
            connection.execute("COMMIT")

    def _remembered(self, name: str) -> list[tuple[Any, ...]]:
        # A reader never writes, so its data_version changes with every commit of anybody else,
        # this process's own writer included. It is told per connection, so each has its own.
        version = self._fetch("jobs.version", {})[0][0]
        kept = self._memory().get(name)
        if kept is None or kept[0] != version:
            kept = self._memory()[name] = (version, self._fetch(name, {}))
        return list(kept[1])

    def _memory(self) -> dict[str, tuple[int, list[tuple[Any, ...]]]]:
        if not hasattr(self._mine, "memory"):
            self._mine.memory = {}
        memory: dict[str, tuple[int, list[tuple[Any, ...]]]] = self._mine.memory
        return memory

    def _fetch(self, name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        try:
            bound = {key: _bound(value) for key, value in values.items()}
            with translated(self._path):
                return run(self._connection().cursor(), name, self._probe, **bound).fetchall()
        except ValueError as error:
            raise InvalidArgument(
                f"no store can hold that, so nothing is there: {error}"
            ) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = connect(self._path, busy=self._busy, read_only=True)
            self._mine.connection = connection
            self._opened.append(connection)
        return connection


def _bound(value: Any) -> Any:
    return to_json_param(value) if isinstance(value, list) else value
