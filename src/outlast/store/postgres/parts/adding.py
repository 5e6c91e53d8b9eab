"""Adding jobs, by group commit or inside the caller's own transaction."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from outlast.core.job import NewJob
from outlast.errors import InvalidJob, StoreBusy
from outlast.store.around import Hint, Topic
from outlast.store.base import Added
from outlast.store.postgres import handler_connection
from outlast.store.postgres.caller_connection import borrowed
from outlast.store.postgres.connection import AGAIN, connect, translated
from outlast.store.postgres.handler_transaction import PostgresTransaction
from outlast.store.postgres.notify.channels import channel, payload
from outlast.store.postgres.operations.base import Asking
from outlast.store.postgres.operations.savepoint import apart, is_refusal, is_taken, saved
from outlast.store.postgres.retry import patiently
from outlast.store.postgres.unit_of_work import Asks, Lane, Work, begun
from outlast.store.postgres.url import Address
from outlast.store.postgres.verbs.add import (
    LOOKS,
    add,
    add_after_a_look,
    add_swiftly,
    are_swift,
    needs_locks,
)


class PostgresAdding(Asking):
    """Adding jobs, by group commit or inside the caller's own transaction."""

    _here: str | None = None

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        if not jobs:
            return []
        added = await self._lines.gather("add", self._add_group).ask(jobs)
        if not self.address.notify:  # or the statement tells everybody, this process too
            self._tell(Hint(frozenset(job.queue for job in jobs)))
        return added

    async def add_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Added]:
        for is_last in (False, True):
            here = await self._where(anew=is_last)
            use = partial(self._add_there, here, jobs)
            try:
                return await borrowed(connection, use, self.address, self._probe)
            except _ElsewhereError as found:
                if is_last:
                    raise InvalidJob(
                        f"tx is a connection to {found}, not to {self.address.shown}, schema "
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

    async def _where(self, *, anew: bool) -> str:
        """What tells our server and schema from any other; another one after a restart."""
        self._require_open()
        if anew or self._here is None:
            # Not by the loop's own lines: it may be one that a thread runs for this call alone.
            with translated(self.address):
                connection = await connect(self.address)
                try:
                    self._here = await _where(Lane(connection, self.address.schema), self.address)
                finally:
                    await connection.close(timeout=1)
        return self._here

    async def _add_there(self, here: str, jobs: Sequence[NewJob], asks: Asks) -> list[Added]:
        await _require_at(here, asks, self.address)
        return await saved(Work(asks, 0, 0), partial(self._add_to, asks, jobs))

    async def _add_to(self, asks: Asks, jobs: Sequence[NewJob]) -> list[Added]:
        work = await begun(asks, self._clock)
        added = await add(work, jobs)
        if work.queues and self._work_channel is not None:
            told = {"channel": self._work_channel, "text": payload(work.queues)}
            await work.rows("borrow.tell", **told)
        return added

    async def _add_group(self, jobs: Sequence[NewJob], _: bool) -> list[Added]:
        """What of them is not known to be stored when the server goes away is asked again.

        Every job brings its id, so that nothing is ever stored twice.
        """
        return await patiently(partial(self._add_once, jobs), self.address)

    async def _add_once(self, jobs: Sequence[NewJob]) -> list[Added]:
        if are_swift(jobs):
            try:
                stored = await self._add_swiftly(jobs)
            except Exception as error:
                if not (is_refusal(error) or is_taken(error) or isinstance(error, AGAIN)):
                    raise
            else:
                if stored:
                    return [Added(job.id, created=True) for job in jobs]
        return await apart(jobs, self._add_looking, _refused)

    async def _add_swiftly(self, jobs: Sequence[NewJob]) -> bool:
        async with self._lines.line("add").taken() as lane:
            return await add_swiftly(lane, jobs, now=self._now, channel=self._work_channel)

    async def _add_looking(self, jobs: Sequence[NewJob]) -> list[Added]:
        if any(map(needs_locks, jobs)):
            return await self._add_locked(jobs)
        for _ in range(LOOKS):
            try:
                async with self._lines.line("add").taken() as lane:
                    added = await add_after_a_look(
                        lane, jobs, now=self._now, channel=self._work_channel
                    )
            except AGAIN:
                await asyncio.sleep(0)
            except Exception as error:
                if not is_taken(error):
                    raise
            else:
                return await self._add_locked(jobs) if added is None else added
        raise StoreBusy(f"{self.address.shown}: others were always quicker; try again")

    async def _add_locked(self, jobs: Sequence[NewJob]) -> list[Added]:
        return await self._lines.transact(lambda work: add(work, jobs), "add")

    @property
    def _work_channel(self) -> str | None:
        """Where idle workers listen; None if they shall not be told."""
        return channel(self.address.schema, Topic.WORK) if self.address.notify else None


async def _require_at(here: str, asks: Asks, address: Address) -> None:
    [(there, shown)] = await asks.fetch("borrow.where", {"schema": address.schema})
    if there != here:
        raise _ElsewhereError(shown)


async def _where(asks: Asks, address: Address) -> str:
    [(where, _)] = await asks.fetch("borrow.where", {"schema": address.schema})
    return str(where)


class _ElsewhereError(Exception):
    """The connection is to another server, database or schema."""


def _refused(job: NewJob, why: str) -> Added:
    return Added(job.id, created=False, refused=why)
