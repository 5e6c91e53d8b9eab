"""Changes of the transfer status: one record, which every transaction of new work respects."""

import asyncio
from typing import Final

from outlast.store.contract.transfer import (
    StatusChange,
    TransferStage,
    TransferStatus,
    next_status,
    to_row,
)
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.transfer_gate import OPENED, STATUS_KEY, status_of
from outlast.store.keyvalue.unit_of_work import UnitOfWork

CLOSING: Final = frozenset({TransferStage.FILLING, TransferStage.SEALED})
"""Stages that refuse the work that an open store accepts."""


async def change_status(context: StoreContext, change: StatusChange) -> bool:
    """Write the next status in one unit of work; return False if the rules refuse it.

    When it returns, every transaction of new work that does not know the status has ended, or is
    not acknowledged.
    """

    async def work(unit: UnitOfWork) -> bool:
        status = next_status(await read_status(unit), change, context.now())
        if status is None:
            return False
        fields = {name: value for name, value in to_row(status).items() if value is not None}
        unit.put(STATUS_KEY, OPENED if status.stage is TransferStage.OPEN else fields)
        return True

    is_changed = await context.run_unit(work)
    is_renewal = change.stage is TransferStage.SEALED and change.grace is None
    if is_changed and change.stage in CLOSING and not is_renewal:
        await asyncio.sleep(context.engine.limits.status_delay or 0)
    return is_changed


async def read_status(unit: UnitOfWork) -> TransferStatus:
    """Read the stored status in a unit of work."""
    return status_of(await unit.get(STATUS_KEY))
