"""A transaction that a handler and the finish of its run share, bounded in time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

from outlast.clock import Clock
from outlast.core.decide import Change
from outlast.errors import OutlastError, RunError, TransactionTimeout
from outlast.store.contract.notifications import Notification
from outlast.store.postgres.caller_connection import of_server
from outlast.store.postgres.connection import translate_error
from outlast.store.postgres.handler_connection import BY_HAND, HandlerConnection
from outlast.store.postgres.pool import ConnectionPool
from outlast.store.postgres.unit_of_work import UnitOfWork, begin_unit
from outlast.store.postgres.verbs.apply import apply

T = TypeVar("T")

IN_FAILED: Final = "25P02"
OVER: Final = "this run.transaction() is over"
FAILED: Final = (
    "a statement of the handler failed inside run.transaction(), which undoes all of it; let the "
    "error leave the handler, or put what may fail into a savepoint"
)


class PostgresTransaction:
    """One connection of its own, from its beginning to its end.

    When its time is over the server ends it, whatever the handler does; and nobody but the finish
    can commit it, for the database refuses that.
    """

    def __init__(
        self,
        hand: HandlerConnection,
        lines: ConnectionPool,
        *,
        clock: Clock | None,
        within: timedelta,
        tell: Callable[[Notification], None],
    ) -> None:
        self.connection = hand.connection
        self._hand = hand
        self._guard = hand.connection.guard
        self._lines = lines
        self._clock = clock
        self._within = within
        self._tell = tell
        self.expired = asyncio.Event()
        self._expired = False
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin, and start the time that is allowed."""
        try:
            await self._step(self._begin())
        except BaseException:
            await self._leave()
            raise
        self._guard.is_armed = True
        self._until = self._loop.time() + self._within.total_seconds()
        self._timer = self._loop.call_at(self._until, self._expire)

    async def commit(self, changes: Sequence[Change]) -> bool:
        self._stop_timer()
        try:
            self.check()
            if self._is_over:
                raise RunError(OVER)
            self._guard.is_armed = False
            work = await self._step(self._finish(changes))
        finally:
            await self._leave()
        if work is not None:
            self._tell(work.hint)
        return work is not None

    def check(self) -> None:
        if self._expired or (not self._is_over and self._loop.time() >= self._until):
            self._expired = True  # also if the loop was too busy to notice
            raise TransactionTimeout(
                f"run.transaction() on {self._hand.address.safe_text} lasted more than "
                f"{self._within.total_seconds():g} s and was rolled back; do slow work outside it"
            )
        if self._guard.ended_by_hand:
            raise RunError(BY_HAND)

    async def rollback(self) -> None:
        self._stop_timer()
        if self._ending is not None:
            await self._ending
        elif not self._is_over:
            await self._leave()

    async def _begin(self) -> None:
        lane = self._hand.lane
        await self._hand.begin()
        millis = str(max(1, self._within // timedelta(milliseconds=1)))
        [(self._id, self._pid, self._xid, *_)] = await lane.fetch(
            "handler_transaction.begin", {"millis": millis}
        )

    async def _finish(self, changes: Sequence[Change]) -> UnitOfWork | None:
        lane = self._hand.lane
        if not self._hand.is_within:
            raise RunError(BY_HAND)
        await lane.fetch("handler_transaction.restore", {})
        if not await lane.change("handler_transaction.finish", {"id": self._id}):
            raise RunError(BY_HAND)
        work = await begin_unit(lane, self._clock)
        if not all(await apply(work, changes)):
            return None
        await lane.change("unit_of_work.commit", {})
        return work

    async def _step(self, step: Coroutine[Any, Any, T]) -> T:
        try:
            return await self._hand.step(step)
        except Exception as error:
            better = self._in_our_words(error)
            if better is error:
                raise
            raise better from error

    def _in_our_words(self, error: Exception) -> Exception:
        state = getattr(error, "sqlstate", None)
        if state == IN_FAILED:
            return RunError(FAILED)
        better = translate_error(of_server(error), self._hand.address)
        if isinstance(better, OutlastError):
            return better
        if state is None:
            return error
        why = str(error).partition("\n")[0][:200]
        return RunError(f"run.transaction() could not be committed: {why}")

    def _expire(self) -> None:
        if not self._is_over:
            self._expired = self._guard.is_over = True
            self.expired.set()
            self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        """At the server, for a statement may be under way; and then here."""
        with suppress(OutlastError):
            await self._lines.rows("handler_transaction.terminate", pid=self._pid, xid=self._xid)
        await self._leave()

    async def _leave(self) -> None:
        """Give up the connection, and with it whatever was not committed."""
        self._is_over = self._guard.is_over = True
        self._guard.is_armed = False
        with suppress(Exception):  # it may be broken in any way, and is not needed any more
            await self._hand.let_go(at_once=self._expired)
        self._guard.is_armed = True  # whoever kept it finds that it is over

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
