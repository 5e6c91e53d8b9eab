"""Statement runners on connections of other owners: asyncpg and psycopg, with any settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from outlast.store.postgres.placeholders import Probe, statements
from outlast.store.postgres.unit_of_work import AsyncpgRunner, Row

TEXT_TYPES = ("text", "varchar", "name", "uuid", "json", "jsonb")
"""Types that are loaded as text, whatever loaders the owner has registered."""


class ForeignAsyncpgRunner(AsyncpgRunner):
    """Runs statements on an asyncpg connection without the text codec for UUIDs."""

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        """Run a statement and return its rows."""
        found = await super().fetch(name, values)
        return [tuple(str(v) if isinstance(v, UUID) else v for v in row) for row in found]


class PsycopgRunner:
    """Runs statements on a blocking psycopg connection: its coroutines never suspend."""

    def __init__(self, connection: Any, schema: str, probe: Probe | None = None) -> None:
        self.connection = connection
        self._statements = statements(schema)
        self._probe = probe

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        """Run a statement and return its rows."""
        with _cursor(self.connection, "Cursor") as cursor:
            self._call_probe(name, False)
            with _data_errors():
                cursor.execute(self._statements[name].named, values, prepare=False)
            found: list[Row] = cursor.fetchall() if cursor.description else []
            self._call_probe(name, True)
            return found

    async def change(self, name: str, values: dict[str, Any]) -> int:
        """Run a statement and return the number of rows it changed."""
        with _cursor(self.connection, "Cursor") as cursor:
            self._call_probe(name, False)
            with _data_errors():
                cursor.execute(self._statements[name].named, values, prepare=False)
            self._call_probe(name, True)
            return max(int(cursor.rowcount), 0)

    def _call_probe(self, name: str, is_done: bool) -> None:
        if self._probe is not None:
            self._probe(name, is_done)


class AsyncPsycopgRunner(PsycopgRunner):
    """Runs statements on an async psycopg connection."""

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        """Run a statement and return its rows."""
        async with _cursor(self.connection, "AsyncCursor") as cursor:
            self._call_probe(name, False)
            with _data_errors():
                await cursor.execute(self._statements[name].named, values, prepare=False)
            found: list[Row] = await cursor.fetchall() if cursor.description else []
            self._call_probe(name, True)
            return found

    async def change(self, name: str, values: dict[str, Any]) -> int:
        """Run a statement and return the number of rows it changed."""
        async with _cursor(self.connection, "AsyncCursor") as cursor:
            self._call_probe(name, False)
            with _data_errors():
                await cursor.execute(self._statements[name].named, values, prepare=False)
            self._call_probe(name, True)
            return max(int(cursor.rowcount), 0)


@contextmanager
def _data_errors() -> Iterator[None]:
    """Raise ValueError for a value that psycopg cannot send."""
    import psycopg  # noqa: PLC0415 - an optional dependency

    try:
        yield
    except psycopg.DataError as error:
        if error.sqlstate is None:
            raise ValueError("it holds text that cannot be stored") from error
        raise


def _cursor(connection: Any, kind: str) -> Any:
    """Return a cursor with tuple rows and text loaders, independent of the owner's settings."""
    import psycopg  # noqa: PLC0415 - an optional dependency
    from psycopg.rows import tuple_row  # noqa: PLC0415 - an optional dependency
    from psycopg.types.numeric import IntLoader  # noqa: PLC0415 - an optional dependency
    from psycopg.types.string import StrDumper, TextLoader  # noqa: PLC0415 - an optional dependency

    cursor: Any = getattr(psycopg, kind)(connection, row_factory=tuple_row)
    for name in TEXT_TYPES:
        cursor.adapters.register_loader(name, TextLoader)
    for name in ("int2", "int4", "int8"):
        cursor.adapters.register_loader(name, IntLoader)
    cursor.adapters.register_dumper(str, StrDumper)
    return cursor
