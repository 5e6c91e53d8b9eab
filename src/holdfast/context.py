"""What a handler sees of the run it is in."""

import asyncio
from collections.abc import Awaitable, Callable
from os import PathLike, fspath
from types import TracebackType
from typing import Any

from holdfast.core.ids import JobId, RunId
from holdfast.core.limits import MAX_ARTIFACTS, MAX_ARTIFACTS_SIZE, MAX_PATH, is_storable
from holdfast.core.run import Claim
from holdfast.errors import RunError
from holdfast.store.base import Transaction

Begin = Callable[[], Awaitable[Transaction]]
"""What a worker hands to a Run so that it can open its transaction; called on the worker's loop."""


class Run:
    """The run a handler is in: its identity, whether it should stop, and what it leaves behind.

    A handler that wants it takes it first: `async def send(run: Run, invoice_id: int) -> None`.
    """

    __slots__ = (
        "_artifacts",
        "_begin",
        "_cancelled",
        "_claim",
        "_loop",
        "_noticed",
        "_transaction",
    )

    def __init__(
        self,
        claim: Claim,
        *,
        begin: Begin | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`begin` opens a transaction on `loop`, the worker's; None where the store has none."""
        self._claim = claim
        self._begin = begin
        self._loop = loop
        self._cancelled = claim.cancel_requested
        self._noticed = False
        self._artifacts: tuple[str, ...] = ()
        self._transaction: RunTransaction | None = None

    @property
    def id(self) -> RunId:
        return self._claim.run_id

    @property
    def job_id(self) -> JobId:
        return self._claim.job_id

    @property
    def type(self) -> str:
        """The job type's name."""
        return self._claim.type

    @property
    def token(self) -> int:
        """Rises with every run of the job: write it beside your own data, and compare."""
        return self._claim.token

    @property
    def attempt(self) -> int:
        """1 for the first; a run that was handed back or snoozed is not counted."""
        return self._claim.failures + 1

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked the job to stop. Long handlers look now and then."""
        self._noticed = self._cancelled
        return self._cancelled

    @property
    def artifacts(self) -> tuple[str, ...]:
        """What was attached so far."""
        return self._artifacts

    def attach(self, *paths: str | PathLike[str]) -> None:
        """Record files this run made; they are written with its end, whatever the end is."""
        attached = (*self._artifacts, *(_checked(fspath(path)) for path in paths))
        size = sum(len(path.encode()) for path in attached)
        if len(attached) > MAX_ARTIFACTS or size > MAX_ARTIFACTS_SIZE:
            raise RunError(
                f"run {self.id} would have {len(attached):,} artifacts of {size:,} bytes; at most "
                f"{MAX_ARTIFACTS:,} of {MAX_ARTIFACTS_SIZE:,} are kept, so attach an archive"
            )
        self._artifacts = attached

    def transaction(self) -> "RunTransaction":
        """Write your own rows in the transaction that finishes this run: both happen, or neither.

        `async with run.transaction() as conn` in an async handler, `with` in a sync one. Leaving
        the block commits nothing: the commit comes with the finish, right after the handler
        returns, so return soon. An exception in the block, or after it, undoes everything. There
        is one per run, and only on stores that have transactions. On SQLite it holds the only
        write lock, so it is rolled back after `Settings.transaction` (5 s).
        """
        if self._begin is None:
            raise RunError(
                f"run {self.id} has no transaction: its store, or the way this handler is run, "
                "cannot carry one; make the effect repeatable instead, with run.token as its fence"
            )
        if self._transaction is not None:
            raise RunError(f"run {self.id} has had its transaction; there is one per run")
        self._transaction = RunTransaction(self._begin, self._loop)
        return self._transaction

    # Below is the worker's side.

    def request_cancel(self) -> None:
        """The worker saw that the job should stop. Any thread may call it."""
        self._cancelled = True

    @property
    def noticed(self) -> bool:
        """Whether the handler has seen that it should stop."""
        return self._noticed

    @property
    def opened(self) -> Transaction | None:
        """The transaction to commit with the finish, or to roll back; None if there is none."""
        return None if self._transaction is None else self._transaction.opened


class RunTransaction:
    """The block of `run.transaction()`: opens on entering, rolls back when an exception leaves."""

    __slots__ = ("_begin", "_entered", "_loop", "opened")

    def __init__(self, begin: Begin, loop: asyncio.AbstractEventLoop | None) -> None:
        self._begin = begin
        self._loop = loop
        self._entered = False
        self.opened: Transaction | None = None

    async def __aenter__(self) -> Any:
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise RunError("this handler runs in a thread; write `with run.transaction()`")
        return await self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            await self._undo()

    def __enter__(self) -> Any:
        return self._from_thread(self._open)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._from_thread(self._undo)

    async def _open(self) -> Any:
        if self._entered:
            raise RunError("this transaction was entered before; there is one per run")
        self._entered = True
        self.opened = await self._begin()
        return self.opened.connection

    async def _undo(self) -> None:
        opened, self.opened = self.opened, None
        if opened is not None:
            await opened.rollback()
            opened.check()  # its time was over: then that is why the handler failed

    def _from_thread(self, step: Callable[[], Any]) -> Any:
        # Waiting for the loop from the loop's own thread would wait for ever.
        if self._loop is None or _on_a_loop():
            raise RunError("this handler is async; write `async with run.transaction()`")
        return asyncio.run_coroutine_threadsafe(step(), self._loop).result()


def _checked(path: str) -> str:
    if not path or len(path) > MAX_PATH or not is_storable(path):
        raise RunError(
            f"artifact {ascii(path)[:80]} cannot be stored; use a path of 1 to {MAX_PATH:,} "
            "characters without NUL and lone surrogates"
        )
    return path


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
