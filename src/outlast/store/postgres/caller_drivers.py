"""Statements on connections that are not ours: any driver, set up by its owner in any way."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from outlast.store.postgres.statements import Probe, statements
from outlast.store.postgres.unit_of_work import AsyncpgRunner, Row

TEXT = ("text", "varchar", "name", "uuid", "json", "jsonb")
"""Types that come back as text, whatever the owner has them loaded as."""


class ForeignAsyncpgRunner(AsyncpgRunner):
    """An asyncpg connection on which nobody has asked for ids as text."""

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        found = await super().fetch(name, values)
        return [tuple(str(v) if isinstance(v, UUID) else v for v in row) for row in found]


class PsycopgRunner:
    """A psycopg connection that waits by itself: its coroutines end at their first step."""

    def __init__(self, connection: Any, schema: str, probe: Probe | None = None) -> None:
        self.connection = connection
        self._statements = statements(schema)
        self._probe = probe

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        with _cursor(self.connection, "Cursor") as cursor:
            self._mark(name, False)
            with _sent():
                cursor.execute(self._statements[name].named, values, prepare=False)
            found: list[Row] = cursor.fetchall() if cursor.description else []
            self._mark(name, True)
            return found

    async def change(self, name: str, values: dict[str, Any]) -> int:
        with _cursor(self.connection, "Cursor") as cursor:
            self._mark(name, False)
            with _sent():
                cursor.execute(self._statements[name].named, values, prepare=False)
            self._mark(name, True)
            return max(int(cursor.rowcount), 0)

    def _mark(self, name: str, is_done: bool) -> None:
        if self._probe is not None:
            self._probe(name, is_done)


class AsyncPsycopgLane(PsycopgRunner):
    """The same for a connection that is awaited."""

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        async with _cursor(self.connection, "AsyncCursor") as cursor:
            self._mark(name, False)
            with _sent():
                await cursor.execute(self._statements[name].named, values, prepare=False)
            found: list[Row] = await cursor.fetchall() if cursor.description else []
            self._mark(name, True)
            return found

    async def change(self, name: str, values: dict[str, Any]) -> int:
        async with _cursor(self.connection, "AsyncCursor") as cursor:
            self._mark(name, False)
            with _sent():
                await cursor.execute(self._statements[name].named, values, prepare=False)
            self._mark(name, True)
            return max(int(cursor.rowcount), 0)


@contextmanager
def _sent() -> Iterator[None]:
    """What psycopg itself cannot send is a fault of the value, like what the server refuses."""
    import psycopg  # noqa: PLC0415 - only who has such a connection has it

    try:
        yield
    except psycopg.DataError as error:
        if error.sqlstate is None:
            raise ValueError("it holds text that cannot be stored") from error
        raise


def _cursor(connection: Any, kind: str) -> Any:
    """A cursor of our own: plain rows, text as text; nothing that the owner has set counts."""
    import psycopg  # noqa: PLC0415 - only who has such a connection has it
    from psycopg.rows import tuple_row  # noqa: PLC0415 - the same
    from psycopg.types.numeric import IntLoader  # noqa: PLC0415 - the same
    from psycopg.types.string import StrDumper, TextLoader  # noqa: PLC0415 - the same

    cursor: Any = getattr(psycopg, kind)(connection, row_factory=tuple_row)
    for name in TEXT:
        cursor.adapters.register_loader(name, TextLoader)
    for name in ("int2", "int4", "int8"):
        cursor.adapters.register_loader(name, IntLoader)
    cursor.adapters.register_dumper(str, StrDumper)
    return cursor
