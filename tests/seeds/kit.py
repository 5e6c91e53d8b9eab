"""What the seed tests share: a look at the file from outside, and processes that can be killed."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from outlast import Outlast
from outlast.core.job import Job
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.fork_server import quick_start
from outlast.worker.embedded import Worker
from support.crash.sqlite_target import dump

PATIENCE: Final = 120.0
"""Seconds after which a silent child counts as stuck; nothing waits that long when all is well."""

QUICK: Final = {"tick": "20ms", "poll": "20ms"}
"""Settings of a worker that looks around often."""

SHORT: Final = {**QUICK, "lease": "1500ms", "renew": "100ms"}
"""Of one that is killed: its leases lapse while a test looks on."""

LONG: Final = {**QUICK, "lease": "10m", "renew": "100ms"}
"""The same, where the test says when they do: `Sql.expire_leases`."""

SOON: Final = "120s"
"""After so long what should happen at once counts as stuck, on however busy a machine."""

Part = Callable[..., Coroutine[Any, Any, None] | None]
"""What a process plays; it gets its end of the pipe first."""


class Sql:
    """The file as an outsider with SQL sees it: only what is committed, nothing of our memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def value(self, query: str, *values: Any) -> Any:
        [(value,)] = self.rows(query, *values)
        return value

    def write(self, *statements: str) -> None:
        """All of them in one transaction."""
        connection = self.connect()
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")
        finally:
            connection.close()

    def expire_leases(self) -> None:
        """The leases of all that runs are over now; call it when nobody renews them any more."""
        self.write("UPDATE outlast_open_runs SET lease_until = 0")

    def refuses(self, *statements: str) -> str:
        """What the database says against them; AssertionError if it takes them."""
        before = dump(self.path)
        try:
            self.write(*statements)
        except sqlite3.IntegrityError as refusal:
            assert dump(self.path) == before
            return str(refusal)
        raise AssertionError(f"the database took it: {statements}")

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=PATIENCE)
        connection.execute("PRAGMA foreign_keys = 1")
        return connection


class Child:
    """A process of its own that plays a part and tells what it did, until it is killed."""

    def __init__(self, part: Part, *given: Any) -> None:
        self._ear, mouth = quick_start().Pipe(duplex=True)
        args = dict(os.environ), part, mouth, *given
        self._process = quick_start().Process(target=_play, args=args, daemon=True)
        self._process.start()
        mouth.close()

    def hear(self) -> Any:
        """The next thing it tells."""
        assert self._ear.poll(PATIENCE), "the child says nothing"
        return self._ear.recv()

    def hear_all(self) -> list[Any]:
        """Everything it still has to tell until its end."""
        told = []
        try:
            while True:
                told.append(self.hear())
        except EOFError:
            return told

    def tell(self, word: Any) -> None:
        self._ear.send(word)

    def kill(self) -> None:
        """SIGKILL: no handler, no flush, no goodbye."""
        self._process.kill()
        self._process.join()

    def kill_within(self, seconds: float) -> None:
        """The same at that moment, or as soon as it has told something; nothing is left of it."""
        self._ear.poll(seconds)
        self.__exit__(None, None, None)

    def end(self) -> int:
        """Wait for it to end by itself; its exit code."""
        self._process.join(PATIENCE)
        code = self._process.exitcode
        assert code is not None, "the child does not end"
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._ear.close()
        self._process.close()


def _play(environment: Mapping[str, str], part: Part, *given: Any) -> None:
    os.environ.update(environment)  # a child has that of the process it was forked from
    played = part(*given)
    if played is not None:
        asyncio.run(played)


def ask(part: Part, *given: Any) -> Any:
    """What a fresh process answers: the one thing it tells."""
    with Child(part, *given) as child:
        answer = child.hear()
        assert child.end() == 0
        return answer


def race(part: Part, number: int, *given: Any) -> list[Any]:
    """What each of that many processes tells, all let go at one moment."""
    children = [Child(part, *given) for _ in range(number)]
    try:
        assert [child.hear() for child in children] == ["ready"] * number
        for child in children:
            child.tell("go")
        return [child.hear() for child in children]
    finally:
        for child in children:
            child.__exit__(None, None, None)


async def jobs_of(store: Store) -> list[Job]:
    """Every job, the oldest first."""
    return (await store.find(Filter(), limit=10_000))[::-1]


async def order_of(store: Store, queue: str = "default") -> list[str]:
    """The queue as it would be taken."""
    return [job.id for job in await store.peek(queue, limit=1000)]


async def drain(app: Outlast, **options: Any) -> Worker:
    """Let a worker of the app do all that is due, and stop it."""
    async with app.worker(**options) as worker:
        await worker.drained()
    return worker


def live(path: Path, **settings: Any) -> Outlast:
    """An app by the machine's own clock, on that file."""
    return Outlast(f"sqlite:///{path}", **settings)


def copy_of(path: Path, to: Path) -> Path:
    """The file with all that is committed in it, elsewhere."""
    source, target = sqlite3.connect(path), sqlite3.connect(to)
    source.backup(target)
    for connection in (source, target):
        connection.close()
    return to


async def opened(path: Path, **options: Any) -> SqliteStore:
    store = SqliteStore(path, **options)
    await store.open()
    return store


def ids_of(things: Iterable[Any]) -> list[str]:
    return [thing.id for thing in things]


class Witness:
    """A store's probe that looks at what is committed, before and after every statement."""

    def __init__(self, path: Path, query: str) -> None:
        self.seen: list[list[tuple[Any, ...]]] = []
        self._sql = Sql(path)
        self._query = query

    def __call__(self, _name: str, _after: bool) -> None:
        try:
            found = self._sql.rows(self._query)
        except sqlite3.OperationalError:  # the tables are not there yet
            return
        if found not in self.seen:
            self.seen.append(found)


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())
