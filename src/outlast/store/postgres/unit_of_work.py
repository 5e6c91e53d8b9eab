"""Statement runners on a connection, and the unit of work of one transaction."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from outlast.clock import Clock, to_micros
from outlast.store.contract.notifications import Notification
from outlast.store.postgres.connection import count
from outlast.store.postgres.placeholders import Probe, statements

Row = Sequence[Any]


class StatementRunner(Protocol):
    """Runs named statements on the connection of a driver.

    The coroutines of a blocking driver never suspend: `core.sync_coroutine` drives them.
    """

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        """Run a statement and return its rows."""
        ...

    async def change(self, name: str, values: dict[str, Any]) -> int:
        """Run a statement and return the number of rows it changed."""
        ...


class AsyncpgRunner:
    """Runs named statements on an asyncpg connection."""

    def __init__(
        self,
        connection: Any,
        schema: str,
        probe: Probe | None = None,
        watch: AbstractContextManager[None] | None = None,
    ) -> None:
        self.connection = connection
        self._statements = statements(schema)
        self._probe = probe
        self._watch = watch or nullcontext()

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        """Run a statement and return its rows."""
        statement = self._statements[name]
        if self._probe is not None:
            self._probe(name, False)
        with self._watch:
            found: list[Row] = await self.connection.fetch(statement.text, *statement.bind(values))
        if self._probe is not None:
            self._probe(name, True)
        return found

    async def change(self, name: str, values: dict[str, Any]) -> int:
        """Run a statement and return the number of rows it changed."""
        statement = self._statements[name]
        if self._probe is not None:
            self._probe(name, False)
        with self._watch:
            status = await self.connection.execute(statement.text, *statement.bind(values))
        if self._probe is not None:
            self._probe(name, True)
        return count(status)

    async def script(self, name: str, text: str) -> None:
        """Run several statements without values: one migration."""
        if self._probe is not None:
            self._probe(name, False)
        with self._watch:
            await self.connection.execute(text)
        if self._probe is not None:
            self._probe(name, True)


class PostgresUnitOfWork:
    """One transaction: its statements, its time, and the notification of its commit.

    `now` is compared with due times and `mono` with leases. Both are the server's clock; tests
    pass their own, whose wall time can be set. `one_by_one` applies changes under savepoints.
    """

    def __init__(
        self, runner: StatementRunner, now: int, mono: int, *, one_by_one: bool = False
    ) -> None:
        self._runner = runner
        self.now = now
        self.mono = mono
        self.one_by_one = one_by_one
        self.queues: set[str] = set()
        self.ended = False
        self.cancelled = False
        self.schedules = False

    async def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        return await self._runner.fetch(name, values)

    async def one(self, name: str, /, **values: Any) -> Any:
        """Return the first column of the first row, or None if there is no row."""
        found = await self._runner.fetch(name, values)
        return found[0][0] if found else None

    async def run(self, name: str, /, **values: Any) -> int:
        """Run a statement and return the number of rows it changed."""
        return await self._runner.change(name, values)

    @property
    def notification(self) -> Notification:
        """The notification to publish after the commit."""
        return Notification(
            frozenset(self.queues),
            ended=self.ended,
            cancelled=self.cancelled,
            schedules=self.schedules,
        )


async def begin_unit(
    runner: StatementRunner, clock: Clock | None, *, one_by_one: bool = False
) -> PostgresUnitOfWork:
    """Return the unit of work of an open transaction, with the time of the server or a test."""
    if clock is not None:
        return PostgresUnitOfWork(
            runner, to_micros(clock.now()), clock.monotonic(), one_by_one=one_by_one
        )
    now = (await runner.fetch("unit_of_work.now", {}))[0][0]
    return PostgresUnitOfWork(runner, now, now, one_by_one=one_by_one)
