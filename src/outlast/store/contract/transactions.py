"""Contract: transactions of a caller and of a handler."""

from collections.abc import Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Protocol

from outlast.core.change import Change
from outlast.core.job import NewJob
from outlast.store.contract.jobs import Added


class Transaction(Protocol):
    """A database transaction in which a handler writes its effects.

    It may hold locks (on SQLite the only write lock), so it is bounded in time.
    """

    @property
    def connection(self) -> Any:
        """The connection object of the database driver."""
        ...

    async def commit(self, changes: Sequence[Change]) -> bool:
        """Apply the changes in this transaction and commit both.

        Returns False and rolls everything back if any change is refused. Raises
        TransactionTimeout if the time limit has passed; it was rolled back then. Raises RunError
        if the handler tried to end the transaction itself.
        """
        ...

    def check(self) -> None:
        """Raise TransactionTimeout if the time limit has passed."""
        ...

    async def rollback(self) -> None:
        """Roll everything back; no-op if the transaction is over."""
        ...


CURRENT_TRANSACTION: ContextVar[Transaction | None] = ContextVar("transaction", default=None)
"""The transaction that `run.transaction()` opened for the handler of this context.

It is set until the handler ends, also when the transaction is over.
"""


class Transactions(Protocol):
    """The capability TRANSACTIONS."""

    async def add_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Added]:
        """Add jobs in the caller's open transaction: they exist once it commits.

        A refused job or a taken key leaves that transaction intact. Raises InvalidArgument if the
        connection is not one to this store, or has no transaction that can carry a job.
        """
        ...

    async def begin(self, *, within: timedelta, blocking: bool = False) -> Transaction:
        """Begin a transaction that is rolled back when `within` has passed.

        `blocking` is for a handler in a thread, which uses the connection without `await`.
        """
        ...
