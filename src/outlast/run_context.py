"""The run object of a handler: cancellation, progress, artifacts and its transaction."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from os import PathLike, fspath
from typing import Any, Final

from outlast.core.ids import JobId, RunId
from outlast.core.limits import MAX_ARTIFACTS, MAX_ARTIFACTS_SIZE, MAX_PATH, is_storable
from outlast.core.metadata import from_text
from outlast.core.progress import Progress
from outlast.core.run import Claim, Lease
from outlast.errors import LeaseLost, OperatorError, RunError, StopRequested
from outlast.run_transaction import Begin, RunTransaction
from outlast.store.contract.transactions import Transaction

__all__ = ["Begin", "Run", "WorkerRun"]

NO_CONTEXT: Final = object()
"""Stands for the value of an app without a lifespan."""

MAX_ROWS: Final = 10**15
"""Largest number of rows that one call of `Run.rows` accepts."""


class Run:
    """The run a handler is in: its identity, whether it should stop, and what it records.

    A handler that needs it takes it first: `async def send(run: Run, invoice_id: int) -> None`.
    """

    __slots__ = (
        "_artifacts",
        "_begin",
        "_cancelled",
        "_claim",
        "_context",
        "_has_news",
        "_is_lost",
        "_loop",
        "_notify",
        "_progress",
        "_rows",
        "_saw_stop_request",
        "_transaction",
    )

    def __init__(
        self,
        claim: Claim,
        *,
        begin: Begin | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        notify: "Callable[[WorkerRun], None] | None" = None,
        context: Any = NO_CONTEXT,
    ) -> None:
        """Create the run of a claim.

        Args:
            claim: The claim that the run holds.
            begin: Opens a transaction on `loop`; None if the store has no transactions.
            loop: The worker's event loop.
            notify: Called on the handler's thread when there is new progress to store.
            context: The value of the app's lifespan.
        """
        self._claim = claim
        self._begin = begin
        self._loop = loop
        self._cancelled = claim.cancel_requested
        self._saw_stop_request = False
        self._is_lost = False
        self._notify = notify
        self._context = context
        self._has_news = False
        self._progress: Progress | str | None = None
        self._artifacts: tuple[str, ...] = ()
        self._rows = 0
        self._transaction: RunTransaction | None = None

    @property
    def id(self) -> RunId:
        """Id of this run; every attempt has its own."""
        return self._claim.run_id

    @property
    def job_id(self) -> JobId:
        """Id of the job."""
        return self._claim.job_id

    @property
    def type(self) -> str:
        """Name of the job type."""
        return self._claim.type

    @property
    def token(self) -> int:
        """Fencing token: rises with every run of the job. Store it with your data and compare."""
        return self._claim.token

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1; released and snoozed runs are not counted."""
        return self._claim.failures + 1

    @property
    def slot_at(self) -> datetime | None:
        """Time that the schedule planned for this job; None without a schedule."""
        return self._claim.slot_at

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the job: text for middleware and other programs; empty if it has none."""
        return from_text(self._claim.metadata).headers

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the job; empty if it has none."""
        return from_text(self._claim.metadata).tags

    @property
    def meta(self) -> Mapping[str, Any]:
        """Meta of the job, a JSON object; empty if it has none."""
        return from_text(self._claim.metadata).meta

    @property
    def context(self) -> Any:
        """Value of the lifespan in this process; give it its type: `db: Pool = run.context`."""
        if self._context is NO_CONTEXT:
            raise RunError(
                f"run {self.id} has no context: its app has no lifespan; give it one with "
                "Outlast(lifespan=…)"
            )
        return self._context

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to stop. A long handler checks it from time to time."""
        self._saw_stop_request = self._cancelled
        return self._cancelled

    def checkpoint(self) -> None:
        """Raise an error if the run should stop; let that error leave the handler.

        Raises StopRequested if the run was asked to stop, LeaseLost if another worker has
        claimed the job.
        """
        if self._is_lost:
            raise LeaseLost(
                f"run {self.id} has lost its lease: job {self.job_id} is another worker's now, and "
                "what this run still writes is refused; stop here"
            )
        if self.cancelled:
            raise StopRequested(f"run {self.id} of job {self.job_id} was asked to stop; stop here")

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress: `run.progress(3, 10, "reading page 3")`. Includes a checkpoint.

        Cheap enough for a tight loop: about ten reports a second are stored, and always the
        last one.
        """
        self.checkpoint()
        self._report(Progress(done, total, message))

    def rows(self, number: int) -> None:
        """Add `number` to the processed rows, which the log line of the run's end states."""
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_ROWS:
            raise RunError(f"rows is {number!r:.40}; use a whole number from 0 to {MAX_ROWS:,}")
        self._rows += number

    @property
    def rows_processed(self) -> int:
        """Sum of all calls of `rows` so far."""
        return self._rows

    @property
    def artifacts(self) -> tuple[str, ...]:
        """Paths attached so far."""
        return self._artifacts

    def attach(self, *paths: str | PathLike[str]) -> None:
        """Record files that this run made; they are stored with its end, however it ends."""
        attached = (*self._artifacts, *(_checked(fspath(path)) for path in paths))
        size = sum(len(path.encode()) for path in attached)
        if len(attached) > MAX_ARTIFACTS or size > MAX_ARTIFACTS_SIZE:
            raise RunError(
                f"run {self.id} would have {len(attached):,} artifacts of {size:,} bytes; at most "
                f"{MAX_ARTIFACTS:,} of {MAX_ARTIFACTS_SIZE:,} are kept, so attach an archive"
            )
        self._artifacts = attached

    def transaction(self) -> "RunTransaction":
        """Return the block that writes your own rows in the transaction that finishes the run.

        `async with run.transaction() as conn` in an async handler, `with` in a sync one. Your
        rows and the end of the run are committed together or not at all. Leaving the block does
        not commit: the commit follows when the handler returns, so return soon. An exception in
        the block or after it rolls everything back.

        There is one transaction per run, and only on stores with transactions. It is rolled
        back after `Settings.transaction` (4 s): on SQLite it holds the only write lock. `conn`
        is a sqlite3 connection; on PostgreSQL asyncpg, or psycopg in a sync handler.
        """
        if self._begin is None:
            raise RunError(
                f"run {self.id} has no transaction: its store or its executor does not support "
                "one; make the effect idempotent instead, with run.token as its fence"
            )
        if self._transaction is not None:
            raise RunError(f"run {self.id} has had its transaction; there is one per run")
        self._transaction = RunTransaction(self._begin, self._loop)
        return self._transaction

    def _report(self, progress: Progress | str) -> None:
        self._progress = progress


class WorkerRun(Run):
    """A run as its worker sees it: stop requests, lease, progress and transaction."""

    __slots__ = ()

    def request_cancel(self) -> None:
        """Ask the handler to stop. Thread-safe."""
        self._cancelled = True

    def lose_lease(self) -> None:
        """Note that another worker has claimed the job. Thread-safe."""
        self._is_lost = True

    @property
    def lease(self) -> Lease:
        """The lease that this run holds."""
        return self._claim.lease

    @property
    def has_news(self) -> bool:
        """Whether there is progress that was not taken yet."""
        return self._has_news

    def take_progress(self) -> str:
        """Return the newest progress as JSON; later progress calls `notify` again."""
        self._has_news = False  # before the read: progress reported in between must not be lost
        progress = self._progress
        return progress.to_json() if isinstance(progress, Progress) else progress or "null"

    def put_back_progress(self) -> None:
        """Mark progress as not taken, because it could not be stored."""
        self._has_news = True

    def enter(self, context: Any) -> None:
        """Set the value of the lifespan of a handler process."""
        self._context = context

    def note_progress(self, text: str) -> None:
        """Report the progress, as JSON, of a handler in another process."""
        self._report(text)

    def _report(self, progress: Progress | str) -> None:
        self._progress = progress
        if self._notify is not None and not self._has_news:
            self._has_news = True
            self._notify(self)

    @property
    def saw_stop_request(self) -> bool:
        """Whether the handler has seen that it should stop."""
        return self._saw_stop_request

    @property
    def opened(self) -> Transaction | None:
        """The open transaction, to commit or roll back with the finish; None if there is none."""
        return None if self._transaction is None else self._transaction.opened

    @property
    def store_error(self) -> OperatorError | None:
        """The error with which the store refused to open the transaction; None if it did not."""
        return None if self._transaction is None else self._transaction.store_error


def _checked(path: str) -> str:
    if not path or len(path) > MAX_PATH or not is_storable(path):
        raise RunError(
            f"artifact {ascii(path)[:80]} cannot be stored; use a path of 1 to {MAX_PATH:,} "
            "characters without NUL and lone surrogates"
        )
    return path
