"""Context manager behind `run.transaction()`, async and sync."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any

from outlast.errors import OperatorError, RunError
from outlast.store.contract.transactions import CURRENT_TRANSACTION, Transaction

Begin = Callable[[bool], Awaitable[Transaction]]
"""Opens the transaction of a run on the worker's loop.

The argument is True for a handler in a thread, which uses the connection without `await`.
"""


class RunTransaction:
    """Opens a transaction on entry and rolls it back if an exception leaves the block."""

    __slots__ = ("_begin", "_entered", "_loop", "opened", "store_error")

    def __init__(self, begin: Begin, loop: asyncio.AbstractEventLoop | None) -> None:
        self._begin = begin
        self._loop = loop
        self._entered = False
        self.opened: Transaction | None = None
        self.store_error: OperatorError | None = None  # with which the store refused to open it

    async def __aenter__(self) -> Any:
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise RunError("this handler runs in a thread; write `with run.transaction()`")
        return self._entered_with(await self._open(blocking=False))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            await self._undo()

    def __enter__(self) -> Any:
        return self._entered_with(self._from_thread(partial(self._open, blocking=True)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._from_thread(self._undo)

    def _entered_with(self, connection: Any) -> Any:
        """Let the store know, in the handler's context, whose transaction holds its lock."""
        CURRENT_TRANSACTION.set(self.opened)
        return connection

    async def _open(self, *, blocking: bool) -> Any:
        if self._entered:
            raise RunError("this transaction was entered before; there is one per run")
        self._entered = True
        try:
            self.opened = await self._begin(blocking)
        except OperatorError as error:
            self.store_error = error
            raise
        return self.opened.connection

    async def _undo(self) -> None:
        opened, self.opened = self.opened, None
        if opened is not None:
            await opened.rollback()
            opened.check()  # raises TransactionTimeout if the time limit caused the error

    def _from_thread(self, step: Callable[[], Any]) -> Any:
        # A wait for the loop on the thread of the loop would deadlock.
        if self._loop is None or _on_a_loop():
            raise RunError("this handler is async; write `async with run.transaction()`")
        return asyncio.run_coroutine_threadsafe(step(), self._loop).result()


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
