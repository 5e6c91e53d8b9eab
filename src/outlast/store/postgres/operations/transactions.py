"""Transactions shared with callers and handlers: `add_within` and `begin`."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from outlast.core.job import NewJob
from outlast.errors import InvalidArgument
from outlast.store.contract.jobs import Added
from outlast.store.postgres import handler_connection
from outlast.store.postgres.caller_connection import with_caller_connection
from outlast.store.postgres.connection import connect, translated
from outlast.store.postgres.handler_transaction import PostgresTransaction
from outlast.store.postgres.notify.channels import payload
from outlast.store.postgres.operations.add import PostgresAddOperations, add_jobs
from outlast.store.postgres.operations.savepoint import with_savepoint
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import (
    AsyncpgRunner,
    PostgresUnitOfWork,
    StatementRunner,
    begin_unit,
)
from outlast.store.postgres.url import PostgresUrl


class PostgresTransactionOperations(PostgresAddOperations):
    """Add jobs inside a caller's transaction, and open handler transactions."""

    _known_identity: str | None = None

    async def add_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Added]:
        """Insert jobs on the caller's connection; they are stored when the caller commits.

        Raises InvalidArgument if the connection leads to another server, database or schema.
        """
        for is_last in (False, True):
            expected = await self._server_identity(refresh=is_last)
            use = partial(self._add_on, expected, jobs)
            try:
                return await with_caller_connection(connection, use, self.address, self._probe)
            except _OtherServerError as found:
                if is_last:
                    raise InvalidArgument(
                        f"tx is a connection to {found}, not to {self.address.safe_text}, schema "
                        f"{self.address.schema}"
                    ) from found
        raise AssertionError("unreachable")

    async def begin(self, *, within: timedelta, blocking: bool = False) -> PostgresTransaction:
        """Open a handler transaction that the server ends after `within`.

        Waits while this process has too many of them, and while the server has no connection for
        it. Raises StoreUnavailable after `address.wait` seconds without a connection.
        """
        slots = self._pool.handler_slots
        await slots.acquire()
        try:
            return await retry_while_unavailable(
                partial(self._begin, within, blocking=blocking, on_end=slots.release), self.address
            )
        except BaseException:
            slots.release()
            raise

    async def _begin(
        self, within: timedelta, *, blocking: bool, on_end: Callable[[], None]
    ) -> PostgresTransaction:
        connect_handler = (
            handler_connection.connect_blocking if blocking else handler_connection.connect_async
        )
        opened = await connect_handler(self.address, self._probe)
        transaction = PostgresTransaction(
            opened, self._pool, clock=self._clock, within=within, notify=self._notify
        )
        await transaction.start()
        transaction.on_end = on_end
        return transaction

    async def _server_identity(self, *, refresh: bool) -> str:
        """Return what identifies this server and schema; it changes when the server restarts."""
        self._require_open()
        if refresh or self._known_identity is None:
            # A connection of its own: the running loop may exist for this call only.
            with translated(self.address):
                connection = await connect(self.address)
                try:
                    runner = AsyncpgRunner(connection, self.address.schema)
                    self._known_identity, _ = await _identity(runner, self.address)
                finally:
                    await connection.close(timeout=1)
        return self._known_identity

    async def _add_on(
        self, expected: str, jobs: Sequence[NewJob], runner: StatementRunner
    ) -> list[Added]:
        identity, description = await _identity(runner, self.address)
        if identity != expected:
            raise _OtherServerError(description)
        return await with_savepoint(
            PostgresUnitOfWork(runner, 0, 0), partial(self._add_to, runner, jobs)
        )

    async def _add_to(self, runner: StatementRunner, jobs: Sequence[NewJob]) -> list[Added]:
        work = await begin_unit(runner, self._clock)
        added = await add_jobs(work, jobs)
        if work.queues and self._work_channel is not None:
            values = {"channel": self._work_channel, "text": payload(work.queues)}
            await work.rows("caller_connection.notify", **values)
        return added


async def _identity(runner: StatementRunner, address: PostgresUrl) -> tuple[str, str]:
    """Return the identity of a connection's server, database and schema, and its description."""
    [(identity, description)] = await runner.fetch(
        "caller_connection.server_identity", {"schema": address.schema}
    )
    return str(identity), description


class _OtherServerError(Exception):
    """The connection leads to another server, database or schema."""
