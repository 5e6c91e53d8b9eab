"""One transaction under way, on whichever driver, as a verb sees it."""

from collections.abc import Sequence
from typing import Any, Protocol

from outlast.clock import Clock, to_micros
from outlast.store.contract.notifications import Notification
from outlast.store.postgres.connection import count
from outlast.store.postgres.statements import Probe, statements

Row = Sequence[Any]


class StatementRunner(Protocol):
    """A driver's connection: a statement by name, to its rows or to the number it changed.

    The methods of one that never waits (psycopg's own threads) are coroutines all the same, which
    end at their first step: see `borrow.at_once`.
    """

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]: ...

    async def change(self, name: str, values: dict[str, Any]) -> int: ...


class AsyncpgRunner:
    """Statements on an asyncpg connection."""

    def __init__(self, connection: Any, schema: str, probe: Probe | None = None) -> None:
        self.connection = connection
        self._statements = statements(schema)
        self._probe = probe

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        statement = self._statements[name]
        if self._probe is not None:
            self._probe(name, False)
        found: list[Row] = await self.connection.fetch(statement.text, *statement.bind(values))
        if self._probe is not None:
            self._probe(name, True)
        return found

    async def change(self, name: str, values: dict[str, Any]) -> int:
        statement = self._statements[name]
        if self._probe is not None:
            self._probe(name, False)
        status = await self.connection.execute(statement.text, *statement.bind(values))
        if self._probe is not None:
            self._probe(name, True)
        return count(status)

    async def script(self, name: str, text: str) -> None:
        """Several statements at once, without values: a step of a migration."""
        if self._probe is not None:
            self._probe(name, False)
        await self.connection.execute(text)
        if self._probe is not None:
            self._probe(name, True)


class UnitOfWork:
    """What a verb needs to do its part: statements, this transaction's moment, what to tell.

    `now` judges due times and `mono` leases. Both are the database's clock; tests hand in their
    own, whose wall can be set.
    """

    def __init__(
        self, asks: StatementRunner, now: int, mono: int, *, careful: bool = False
    ) -> None:
        self._asks = asks
        self.now = now
        self.mono = mono
        self.careful = careful
        self.queues: set[str] = set()
        self.ended = False
        self.cancelled = False

    async def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Every row it gives."""
        return await self._asks.fetch(name, values)

    async def one(self, name: str, /, **values: Any) -> Any:
        """The first column of the first row, None if there is no row."""
        found = await self._asks.fetch(name, values)
        return found[0][0] if found else None

    async def run(self, name: str, /, **values: Any) -> int:
        """How many rows it changed."""
        return await self._asks.change(name, values)

    @property
    def hint(self) -> Notification:
        return Notification(frozenset(self.queues), ended=self.ended, cancelled=self.cancelled)


async def begin_unit(
    asks: StatementRunner, clock: Clock | None, *, careful: bool = False
) -> UnitOfWork:
    """A transaction's moment, asked once of the database, or of a test's clock."""
    if clock is not None:
        return UnitOfWork(asks, to_micros(clock.now()), clock.monotonic(), careful=careful)
    now = (await asks.fetch("unit_of_work.now", {}))[0][0]
    return UnitOfWork(asks, now, now, careful=careful)
