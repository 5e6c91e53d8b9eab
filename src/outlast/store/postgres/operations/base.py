"""Base class of the PostgreSQL operations, and the guard of writes against a sealed store."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

from outlast.clock import Clock, from_micros, to_micros
from outlast.core.ids import Ids
from outlast.core.job import Job
from outlast.store.contract.notifications import Notification
from outlast.store.postgres.placeholders import Probe
from outlast.store.postgres.pool import ConnectionPool
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.postgres.url import PostgresUrl
from outlast.store.rows import jobs as job_rows

T = TypeVar("T")


class PostgresOperations:
    """What every operation needs of its store: connections, clock, ids and notifications."""

    address: PostgresUrl
    _clock: Clock | None
    _ids: Ids
    _probe: Probe | None

    @property
    def _pool(self) -> ConnectionPool:
        """The connection pool of the running event loop; raises StoreClosed if there is none."""
        raise NotImplementedError

    def _require_open(self) -> None:
        """Raise StoreClosed unless the store is open in this process."""
        raise NotImplementedError

    def _notify(self, notification: Notification) -> None:
        """Publish a commit of this process to all subscribers, without waiting."""
        raise NotImplementedError

    async def now(self) -> datetime:
        """Return the time of the store's clock."""
        [(now,)] = await self._pool.rows("schedules.now", now=self._now)
        return from_micros(now)

    @property
    def _now(self) -> int | None:
        """The value of `coalesce(:now, outlast.micros())`: None selects the server's clock."""
        return None if self._clock is None else to_micros(self._clock.now())

    @property
    def _mono(self) -> int | None:
        """The time that leases are compared with; None selects the server's clock."""
        return None if self._clock is None else self._clock.monotonic()

    async def _jobs(self, name: str, **values: Any) -> list[Job]:
        return [job_rows.job(tuple(row)) for row in await self._pool.rows(name, **values)]


def require_open_store(
    operation: Callable[[PostgresUnitOfWork], Awaitable[T]],
) -> Callable[[PostgresUnitOfWork], Awaitable[T]]:
    """Return the operation preceded by `require_open` in the same transaction."""

    async def guarded(work: PostgresUnitOfWork) -> T:
        await require_open(work)
        return await operation(work)

    return guarded


async def require_open(work: PostgresUnitOfWork) -> None:
    """Raise StoreSealed or StoreMoved unless the store accepts work.

    The statement reads the status table, which a seal locks exclusively. Either the seal waits for
    this transaction, or this transaction sees the seal.
    """
    await work.rows("transfer_status.require_open", now=work.now)
