"""Adding jobs, by group commit or inside the caller's own transaction."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from outlast.core.job import NewJob
from outlast.errors import InvalidJob, StoreBusy
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.postgres import handler_connection
from outlast.store.postgres.caller_connection import with_caller_connection
from outlast.store.postgres.connection import RETRYABLE, connect, translated
from outlast.store.postgres.handler_transaction import PostgresTransaction
from outlast.store.postgres.notify.channels import channel, payload
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.operations.savepoint import (
    bisect_failures,
    is_data_error,
    is_unique_violation,
    saved,
)
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import (
    AsyncpgRunner,
    StatementRunner,
    UnitOfWork,
    begin_unit,
)
from outlast.store.postgres.url import PostgresUrl
from outlast.store.postgres.verbs.add import (
    LOOKS,
    add,
    add_plain_batch,
    add_with_lookup,
    are_plain,
    needs_locks,
)


class AddOperations(PostgresOperations):
    """Adding jobs, by group commit or inside the caller's own transaction."""

    _here: str | None = None

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        if not jobs:
            return []
        added = await self._lines.gather("add", self._add_group).submit(jobs)
        if not self.address.notify:  # or the statement tells everybody, this process too
            self._tell(Notification(frozenset(job.queue for job in jobs)))
        return added

    async def add_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Added]:
        for is_last in (False, True):
            here = await self._server_identity(anew=is_last)
            use = partial(self._add_there, here, jobs)
            try:
                return await with_caller_connection(connection, use, self.address, self._probe)
            except _ElsewhereError as found:
                if is_last:
                    raise InvalidJob(
                        f"tx is a connection to {found}, not to {self.address.safe_text}, schema "
                        f"{self.address.schema}"
                    ) from found
        raise AssertionError("unreachable")

    async def begin(self, *, within: timedelta, blocking: bool = False) -> PostgresTransaction:
        lines = self._lines
        opened = await (handler_connection.blocking if blocking else handler_connection.awaited)(
            self.address, self._probe
        )
        transaction = PostgresTransaction(
            opened, lines, clock=self._clock, within=within, tell=self._tell
        )
        await transaction.start()
        return transaction

    async def _server_identity(self, *, anew: bool) -> str:
        """What tells our server and schema from any other; another one after a restart."""
        self._require_open()
        if anew or self._here is None:
            # Not by the loop's own lines: it may be one that a thread runs for this call alone.
            with translated(self.address):
                connection = await connect(self.address)
                try:
                    self._here = await _server_identity(
                        AsyncpgRunner(connection, self.address.schema), self.address
                    )
                finally:
                    await connection.close(timeout=1)
        return self._here

    async def _add_there(
        self, here: str, jobs: Sequence[NewJob], asks: StatementRunner
    ) -> list[Added]:
        await _require_at(here, asks, self.address)
        return await saved(UnitOfWork(asks, 0, 0), partial(self._add_to, asks, jobs))

    async def _add_to(self, asks: StatementRunner, jobs: Sequence[NewJob]) -> list[Added]:
        work = await begin_unit(asks, self._clock)
        added = await add(work, jobs)
        if work.queues and self._work_channel is not None:
            told = {"channel": self._work_channel, "text": payload(work.queues)}
            await work.rows("caller_connection.notify", **told)
        return added

    async def _add_group(self, jobs: Sequence[NewJob], _: bool) -> list[Added]:
        """What of them is not known to be stored when the server goes away is asked again.

        Every job brings its id, so that nothing is ever stored twice.
        """
        return await retry_while_unavailable(partial(self._add_once, jobs), self.address)

    async def _add_once(self, jobs: Sequence[NewJob]) -> list[Added]:
        if are_plain(jobs):
            try:
                stored = await self._add_swiftly(jobs)
            except Exception as error:
                if not (
                    is_data_error(error)
                    or is_unique_violation(error)
                    or isinstance(error, RETRYABLE)
                ):
                    raise
            else:
                if stored:
                    return [Added(job.id, created=True) for job in jobs]
        return await bisect_failures(jobs, self._add_looking, _refused)

    async def _add_swiftly(self, jobs: Sequence[NewJob]) -> bool:
        async with self._lines.line("add").acquire() as lane:
            return await add_plain_batch(lane, jobs, now=self._now, channel=self._work_channel)

    async def _add_looking(self, jobs: Sequence[NewJob]) -> list[Added]:
        if any(map(needs_locks, jobs)):
            return await self._add_locked(jobs)
        for _ in range(LOOKS):
            try:
                async with self._lines.line("add").acquire() as lane:
                    added = await add_with_lookup(
                        lane, jobs, now=self._now, channel=self._work_channel
                    )
            except RETRYABLE:
                await asyncio.sleep(0)
            except Exception as error:
                if not is_unique_violation(error):
                    raise
            else:
                return await self._add_locked(jobs) if added is None else added
        raise StoreBusy(f"{self.address.safe_text}: others were always quicker; try again")

    async def _add_locked(self, jobs: Sequence[NewJob]) -> list[Added]:
        return await self._lines.transact(lambda work: add(work, jobs), "add")

    @property
    def _work_channel(self) -> str | None:
        """Where idle workers listen; None if they shall not be told."""
        return channel(self.address.schema, Topic.WORK) if self.address.notify else None


async def _require_at(here: str, asks: StatementRunner, address: PostgresUrl) -> None:
    [(there, shown)] = await asks.fetch(
        "caller_connection.server_identity", {"schema": address.schema}
    )
    if there != here:
        raise _ElsewhereError(shown)


async def _server_identity(asks: StatementRunner, address: PostgresUrl) -> str:
    [(where, _)] = await asks.fetch("caller_connection.server_identity", {"schema": address.schema})
    return str(where)


class _ElsewhereError(Exception):
    """The connection is to another server, database or schema."""


def _refused(job: NewJob, why: str) -> Added:
    return Added(job.id, created=False, refused=why)
