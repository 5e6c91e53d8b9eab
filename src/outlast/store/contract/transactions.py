"""Contract: transactions of a caller and of a handler."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from outlast.core.decide import Change
from outlast.core.job import NewJob
from outlast.store.contract.jobs import Added


class Transaction(Protocol):
    """A transaction of the store's own kind that a handler writes its effects in.

    It holds what it must hold (on SQLite the only write lock), so it is bounded in time.
    """

    @property
    def connection(self) -> Any:
        """The database's own connection object."""
        ...

    async def commit(self, changes: Sequence[Change]) -> bool:
        """Apply the changes in this transaction and commit both.

        False if any was refused: then everything is rolled back. TransactionTimeout if its time
        had run out: it was rolled back already. RunError if somebody ended it meanwhile.
        """
        ...

    def check(self) -> None:
        """TransactionTimeout if its time has run out."""
        ...

    async def rollback(self) -> None:
        """Undo everything; harmless when already over."""
        ...


class Transactions(Protocol):
    """The capability TRANSACTIONS."""

    async def add_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Added]:
        """`add` inside the caller's own open transaction: the jobs exist when it commits.

        A refused job leaves that transaction as it was, and so do taken keys. InvalidArgument if the
        connection is not one to this store, or has no transaction that could carry a job.
        """
        ...

    async def begin(self, *, within: timedelta, blocking: bool = False) -> Transaction:
        """Open a transaction; it is rolled back by itself when `within` has passed.

        `blocking`: for a handler in a thread, whose connection is used without `await`.
        """
        ...
