"""What the tests of the SQLite file share: a probe that can hold a thread, and another process."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import outlast
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock

PATIENCE: Final = 120.0
"""Seconds after which something counts as stuck; nothing waits that long when all is well."""

SOURCES: Final = Path(outlast.__file__).parent
SQL: Final = SOURCES / "store" / "sqlite" / "sql"
FILES: Final = ("", "-wal", "-shm")


class Held:
    """A place where a thread of the store waits until it is let go."""

    def __init__(self, name: str, *, after: bool) -> None:
        self.place = (name, after)
        self._reached = threading.Event()
        self._go = threading.Event()

    async def reached(self) -> None:
        """Wait until the thread is there."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE), f"never at {self.place}"

    def let_go(self) -> None:
        self._go.set()

    def wait(self) -> None:
        self._reached.set()
        assert self._go.wait(PATIENCE), f"nobody let go of {self.place}"


class Trace:
    """A probe that remembers each statement, and can hold the thread that runs one."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, bool]] = []
        self._holds: list[Held] = []

    def __call__(self, name: str, after: bool) -> None:
        self.steps.append((name, after))
        for held in self._holds:
            if held.place == (name, after):
                self._holds.remove(held)
                held.wait()
                break

    def acquire_lock(self, name: str, *, after: bool = False) -> Held:
        """Hold whoever comes to that statement next."""
        held = Held(name, after=after)
        self._holds.append(held)
        return held

    def count(self, name: str) -> int:
        """How often that statement was begun."""
        return self.steps.count((name, False))

    @property
    def done(self) -> list[str]:
        """The statements that were completed, in order."""
        return [name for name, after in self.steps if after]


class Peer:
    """Another process with a store of its own, told what to do line by line (`peer.py`)."""

    def __init__(self, script: str = "peer.py") -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(script))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)

    def ask(self, do: str, *given: Any) -> Any:
        self.tell(do, *given)
        return self.answer()

    def tell(self, do: str, *given: Any) -> None:
        """Ask without waiting for the answer."""
        assert self._process.stdin is not None
        print(json.dumps([do, *given], default=str), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


Make = Callable[[SqliteStore], Awaitable[object]]
DbOf = Callable[[Make], sqlite3.Connection]


class Worlds:
    """Makes each world once, by a clock that stands still, and hands out copies of its file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)

    def copy(self, make: Make) -> Path:
        made = self._folder / f"{make.__module__}.{make.__name__}"
        if not made.exists():
            with ThreadPoolExecutor(1) as apart:  # the caller may have a loop of its own
                apart.submit(asyncio.run, self._make(make, made)).result()
        return Path(shutil.copy(made, f"{made}-{next(self._numbers)}"))

    async def _make(self, make: Make, path: Path) -> None:
        async with opened(path, clock=FakeClock()) as store:
            await make(store)


def environment() -> dict[str, str]:
    """For processes that must find the same outlast, wherever they run."""
    found_in = [str(SOURCES.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found_in)}


@asynccontextmanager
async def opened(path: Path, **over: Any) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, **over)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as an outsider with SQL sees it, foreign keys on, each statement by itself."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    try:
        yield connection
    finally:
        connection.close()


def writing(store: SqliteStore) -> sqlite3.Connection:
    """The connection of the store's writer."""
    assert store._open is not None
    return store._open[0]._connection


def reading(store: SqliteStore) -> list[sqlite3.Connection]:
    """The connections of the store's readers that have read something."""
    assert store._open is not None
    return store._open[1]._opened


def files(path: Path) -> list[str]:
    """Which of the three files are there, by their endings."""
    return [ending for ending in FILES if Path(f"{path}{ending}").exists()]
