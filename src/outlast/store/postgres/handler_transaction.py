"""The transaction that a handler shares with the finish of its run, bounded in time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from outlast.clock import Clock
from outlast.core.decide import Change
from outlast.errors import OutlastError, RunError, StoreUnavailable, TransactionTimeout
from outlast.store.contract.notifications import Notification
from outlast.store.postgres.caller_connection import to_asyncpg_error
from outlast.store.postgres.connection import translate_error
from outlast.store.postgres.handler_connection import ENDED_BY_HANDLER, HandlerConnection
from outlast.store.postgres.operations.apply import apply_changes, are_recorded
from outlast.store.postgres.pool import ConnectionPool
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork, begin_unit

T = TypeVar("T")

MIN_COMMIT_S: Final = 10.0
"""Seconds that a commit may take without a reply, at least; the time limit of a longer transaction
applies to its commit again."""

TERMINATE_PAUSE_S: Final = 0.05
"""Seconds between two checks whether a terminated session has ended."""

FAILED_TRANSACTION_STATE: Final = "25P02"
ENDED: Final = "this run.transaction() has ended"
FAILED: Final = (
    "a statement of the handler failed inside run.transaction(), which rolls it back; let the "
    "error leave the handler, or run the statement in a savepoint"
)


class PostgresTransaction:
    """A handler transaction on a connection of its own.

    The server terminates it after `within`. Only the finish of the run can commit it: a deferred
    trigger refuses every other commit.
    """

    def __init__(
        self,
        handler_connection: HandlerConnection,
        pool: ConnectionPool,
        *,
        clock: Clock | None,
        within: timedelta,
        notify: Callable[[Notification], None],
    ) -> None:
        self.connection = handler_connection.connection
        self._handler_connection = handler_connection
        self._guard = handler_connection.connection.guard
        self._pool = pool
        self._clock = clock
        self._within = within
        self._notify = notify
        self.on_end: Callable[[], None] | None = None  # called once, when the connection is closed
        self.expired = asyncio.Event()
        self._expired = False
        self._is_ended = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin the transaction and start its timer."""
        try:
            await self._step(self._begin())
        except BaseException:
            await self._close()
            raise
        self._guard.is_active = True
        self._until = self._loop.time() + self._within.total_seconds()
        self._timer = self._loop.call_at(self._until, self._expire)

    async def commit(self, changes: Sequence[Change]) -> bool:
        """Apply the changes and commit; return False, rolled back, if one is refused."""
        self._stop_timer()
        try:
            self.check()
            if self._is_ended:
                raise RunError(ENDED)
            self._guard.is_active = False
            notification = await self._commit(changes)
        finally:
            await self._close()
        if notification is not None:
            self._notify(notification)
        return notification is not None

    def check(self) -> None:
        """Raise TransactionTimeout or RunError if the transaction cannot be committed."""
        if self._expired or (not self._is_ended and self._loop.time() >= self._until):
            self._expired = True  # the timer may be late on a busy loop
            raise TransactionTimeout(
                f"run.transaction() on {self._handler_connection.address.safe_text} lasted more "
                f"than {self._within.total_seconds():g} s and was rolled "
                "back; do slow work outside it"
            )
        if self._guard.ended_by_handler:
            raise RunError(ENDED_BY_HANDLER)

    async def rollback(self) -> None:
        """Roll back and close the connection; a no-op if it has ended."""
        self._stop_timer()
        if self._ending is not None:
            await self._ending
        elif not self._is_ended:
            await self._close()

    async def _commit(self, changes: Sequence[Change]) -> Notification | None:
        """Apply the changes and commit; None if one is refused.

        If the reply is lost, the outcome is looked up: raises StoreUnavailable only if nothing was
        committed.
        """
        try:
            async with asyncio.timeout(max(MIN_COMMIT_S, self._within.total_seconds())):
                work = await self._step(self._finish(changes))
        except (StoreUnavailable, TimeoutError) as error:
            found = await retry_while_unavailable(
                partial(self._look_up, changes), self._handler_connection.address
            )
            if not found:
                raise translate_error(error, self._handler_connection.address) from error
            return Notification(ended=True)
        return None if work is None else work.notification

    async def _look_up(self, changes: Sequence[Change]) -> bool:
        """End the transaction at the server, and return whether it had committed the changes."""
        session = {"pid": self._pid, "xid": self._xid}
        while await self._pool.rows("handler_transaction.terminate", **session):  # noqa: ASYNC110
            await asyncio.sleep(TERMINATE_PAUSE_S)
        return await are_recorded(self._pool, changes)

    async def _begin(self) -> None:
        runner = self._handler_connection.runner
        await self._handler_connection.begin()
        millis = str(max(1, self._within // timedelta(milliseconds=1)))
        [(self._id, self._pid, self._xid, *_)] = await runner.fetch(
            "handler_transaction.begin", {"millis": millis}
        )

    async def _finish(self, changes: Sequence[Change]) -> PostgresUnitOfWork | None:
        runner = self._handler_connection.runner
        if not self._handler_connection.in_transaction:
            raise RunError(ENDED_BY_HANDLER)
        await runner.fetch("handler_transaction.restore", {})
        if not await runner.change("handler_transaction.finish", {"id": self._id}):
            raise RunError(ENDED_BY_HANDLER)
        work = await begin_unit(runner, self._clock)
        if not all(await apply_changes(work, changes)):
            return None
        await runner.change("unit_of_work.commit", {})
        return work

    async def _step(self, step: Coroutine[Any, Any, T]) -> T:
        try:
            return await self._handler_connection.step(step)
        except Exception as error:
            translated = self._translate(error)
            if translated is error:
                raise
            raise translated from error

    def _translate(self, error: Exception) -> Exception:
        state = getattr(error, "sqlstate", None)
        if state == FAILED_TRANSACTION_STATE:
            return RunError(FAILED)
        translated = translate_error(to_asyncpg_error(error), self._handler_connection.address)
        if isinstance(translated, OutlastError):
            return translated
        if state is None:
            return self._without_state(error)
        why = str(error).partition("\n")[0][:200]
        return RunError(f"run.transaction() could not be committed: {why}")

    def _without_state(self, error: Exception) -> Exception:
        """Return StoreUnavailable for a broken connection of psycopg, else the error itself."""
        if not type(error).__module__.startswith("psycopg"):
            return error
        why = str(error).partition("\n")[0][:200]
        url = self._handler_connection.address.safe_text
        return StoreUnavailable(f"{url} does not answer: {why}")

    def _expire(self) -> None:
        if not self._is_ended:
            self._expired = self._guard.is_ended = True
            self.expired.set()
            self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        """Terminate the session at the server, where a statement may run, then close it here."""
        with suppress(OutlastError):
            await self._pool.rows("handler_transaction.terminate", pid=self._pid, xid=self._xid)
        await self._close()

    async def _close(self) -> None:
        """Close the connection, which rolls back what was not committed."""
        self._is_ended = self._guard.is_ended = True
        self._guard.is_active = False
        with suppress(Exception):  # the connection may be broken, and is not used any more
            await self._handler_connection.close(at_once=self._expired)
        self._guard.is_active = True  # later use by the handler is refused
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
