"""What a handler sees of the run it is in."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from os import PathLike, fspath
from typing import Final

from outlast.core.ids import JobId, RunId
from outlast.core.limits import MAX_ARTIFACTS, MAX_ARTIFACTS_SIZE, MAX_PATH, is_storable
from outlast.core.progress import Progress
from outlast.core.run import Claim, Lease
from outlast.errors import LeaseLost, RunError, StopRequested
from outlast.run_transaction import Begin, RunTransaction
from outlast.store.contract.transactions import Transaction

__all__ = ["Begin", "Run"]

MOST_ROWS: Final = 10**15


class Run:
    """The run a handler is in: its identity, whether it should stop, and what it leaves behind.

    A handler that wants it takes it first: `async def send(run: Run, invoice_id: int) -> None`.
    """

    __slots__ = (
        "_artifacts",
        "_begin",
        "_cancelled",
        "_claim",
        "_is_told",
        "_loop",
        "_lost",
        "_noticed",
        "_progress",
        "_rows",
        "_tell",
        "_transaction",
    )

    def __init__(
        self,
        claim: Claim,
        *,
        begin: Begin | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        tell: Callable[["Run"], None] | None = None,
    ) -> None:
        """`begin` opens a transaction on `loop`, the worker's; None where the store has none.

        `tell` is called, on the handler's thread, when there is progress to take.
        """
        self._claim = claim
        self._begin = begin
        self._loop = loop
        self._cancelled = claim.cancel_requested
        self._noticed = False
        self._lost = False
        self._tell = tell
        self._is_told = False
        self._progress: Progress | str | None = None
        self._artifacts: tuple[str, ...] = ()
        self._rows = 0
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
    def slot_at(self) -> datetime | None:
        """The slot it was made for: the time its schedule planned; None without a schedule."""
        return self._claim.slot_at

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked the job to stop. Long handlers look now and then."""
        self._noticed = self._cancelled
        return self._cancelled

    def checkpoint(self) -> None:
        """A good place to stop: StopRequested if somebody asked for that, LeaseLost if the job is
        no longer this run's. Let the error leave your handler."""
        if self._lost:
            raise LeaseLost(
                f"run {self.id} has lost its lease: job {self.job_id} is another worker's now, and "
                "what this run still writes is refused; stop here"
            )
        if self.cancelled:
            raise StopRequested(f"run {self.id} of job {self.job_id} was asked to stop; stop here")

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far it is: `run.progress(3, 10, "reading page 3")`. A checkpoint, too.

        Cheap enough for a tight loop: about ten a second are stored, and always the last one.
        """
        self.checkpoint()
        self._note(Progress(done, total, message))

    def rows(self, number: int) -> None:
        """So many rows were processed, on top of those said before; the log of its end tells."""
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_ROWS:
            raise RunError(f"rows is {number!r:.40}; use a whole number from 0 to {MOST_ROWS:,}")
        self._rows += number

    @property
    def rows_processed(self) -> int:
        """What was said so far."""
        return self._rows

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
        is one per run, and only on stores that have transactions. It is rolled back after
        `Settings.transaction` (5 s): on SQLite it holds the only write lock. `conn` is of sqlite3;
        on PostgreSQL of asyncpg, in a sync handler of psycopg.
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

    def lose_lease(self) -> None:
        """The worker saw that the job is somebody else's. Any thread may call it."""
        self._lost = True

    @property
    def lease(self) -> Lease:
        return self._claim.lease

    @property
    def has_news(self) -> bool:
        """Whether there is progress that nobody has taken."""
        return self._is_told

    def take_progress(self) -> str:
        """The newest progress, as JSON. What comes from now on is told again."""
        self._is_told = False  # before reading: what is noted in between must not be missed
        said = self._progress
        return said.to_json() if isinstance(said, Progress) else said or "null"

    def put_back_progress(self) -> None:
        """What was taken could not be written; whoever took it will take it again."""
        self._is_told = True

    def note_progress(self, text: str) -> None:
        """The handler, in a process of its own, said how far it is."""
        self._note(text)

    def _note(self, progress: Progress | str) -> None:
        self._progress = progress
        if self._tell is not None and not self._is_told:
            self._is_told = True
            self._tell(self)

    @property
    def saw_stop_request(self) -> bool:
        """Whether the handler has seen that it should stop."""
        return self._noticed

    @property
    def opened(self) -> Transaction | None:
        """The transaction to commit with the finish, or to roll back; None if there is none."""
        return None if self._transaction is None else self._transaction.opened


def _checked(path: str) -> str:
    if not path or len(path) > MAX_PATH or not is_storable(path):
        raise RunError(
            f"artifact {ascii(path)[:80]} cannot be stored; use a path of 1 to {MAX_PATH:,} "
            "characters without NUL and lone surrogates"
        )
    return path
