"""How a store stands towards work, and what may be done only while it is open."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from outlast.clock import from_micros
from outlast.store.contract.transfer import (
    StatusChange,
    TransferStage,
    from_row,
    next_status,
    to_row,
)
from outlast.store.postgres.unit_of_work import UnitOfWork

T = TypeVar("T")

PATIENCE: Final = 1000
"""Milliseconds for which everybody waits with a seal for a transaction that began before it."""


def require_open_store(
    verb: Callable[[UnitOfWork], Awaitable[T]],
) -> Callable[[UnitOfWork], Awaitable[T]]:
    """The verb, refused unless the store takes work."""

    async def guarded(work: UnitOfWork) -> T:
        await require_open(work)
        return await verb(work)

    return guarded


async def require_open(work: UnitOfWork) -> None:
    await work.rows("transfer_status.require_open", now=work.now)


async def stand(work: UnitOfWork, step: StatusChange, *, schema: str) -> bool:
    await work.rows("transfer_status.lock", name=schema)
    present = from_row(next(iter(await work.rows("transfer_status.get")), None))
    footing = next_status(present, step, from_micros(work.now))
    if footing is None:
        return False
    if footing.stage is TransferStage.OPEN:
        await work.run("transfer_status.clear")
        work.queues.add("")  # whoever waited may have work again
    else:
        if present.at(from_micros(work.now)).stage is TransferStage.OPEN:
            await _lock_status_table(work)
        await work.run("transfer_status.set", **to_row(footing))
    return True


async def _lock_status_table(work: UnitOfWork) -> None:
    """Wait for whoever found it open; nobody else does until this is committed."""
    await work.rows("transfer_status.set_lock_timeout", millis=str(PATIENCE))
    await work.run("transfer_status.lock_table")
