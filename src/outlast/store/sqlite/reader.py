"""Reader connections: write-ahead logging lets reads and writes run side by side."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from outlast.errors import InvalidArgument
from outlast.store.rows.jobs import to_json_param
from outlast.store.sql_files import Probe
from outlast.store.sqlite.connection import connect, translated
from outlast.store.sqlite.statements import run

T = TypeVar("T")
Query = Callable[..., list[tuple[Any, ...]]]
"""Runs the statement of a name with values and returns its rows."""

THREADS = 2


class Reader:
    """A pool of threads with one read-only connection each; every read is one snapshot."""

    def __init__(self, path: Path, *, busy: float, probe: Probe | None) -> None:
        """Open connections when they are first used; `busy` is the lock timeout in seconds."""
        self._path = path
        self._busy = busy
        self._probe = probe
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="outlast-reader")

    async def rows(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a statement; a list among the values is bound as JSON."""
        return await self._on_thread(lambda: self._fetch(name, values))

    async def cached_rows(self, name: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement without values, from memory if no commit came since."""
        return await self._on_thread(lambda: self._fetch_cached(name))

    async def in_snapshot(self, read: Callable[[Query], T]) -> T:
        """Return the result of `read`, whose queries all see one snapshot."""
        return await self._on_thread(lambda: self._read_in_snapshot(read))

    def close(self) -> None:
        """Wait for running reads and close all connections."""
        self._threads.shutdown(wait=True)
        for connection in self._opened:
            connection.close()
        self._opened.clear()

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _read_in_snapshot(self, read: Callable[[Query], T]) -> T:
        def query(name: str, /, **values: Any) -> list[tuple[Any, ...]]:
            return self._fetch(name, values)

        connection = self._connection()
        connection.execute("BEGIN")
        try:
            return read(query)
        finally:
            connection.execute("COMMIT")

    def _fetch_cached(self, name: str) -> list[tuple[Any, ...]]:
        # data_version changes with every commit of another connection, the writer's included. Its
        # value belongs to one connection, so every thread has its own cache.
        version = self._fetch("schema.data_version", {})[0][0]
        cached = self._cache().get(name)
        if cached is None or cached[0] != version:
            cached = self._cache()[name] = (version, self._fetch(name, {}))
        return list(cached[1])

    def _cache(self) -> dict[str, tuple[int, list[tuple[Any, ...]]]]:
        if not hasattr(self._local, "cache"):
            self._local.cache = {}
        cache: dict[str, tuple[int, list[tuple[Any, ...]]]] = self._local.cache
        return cache

    def _fetch(self, name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        try:
            bound = {key: _to_param(value) for key, value in values.items()}
            with translated(self._path):
                return run(self._connection().cursor(), name, self._probe, **bound).fetchall()
        except ValueError as error:
            raise InvalidArgument(
                f"no store can hold that, so nothing is there: {error}"
            ) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = connect(self._path, busy=self._busy, read_only=True)
            self._local.connection = connection
            self._opened.append(connection)
        return connection


def _to_param(value: Any) -> Any:
    return to_json_param(value) if isinstance(value, list) else value
