"""Transfer status of the store: one record, which every process reads once per second."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from outlast.store.contract.transfer import (
    OPEN,
    StatusChange,
    TransferStage,
    TransferStatus,
    closed_error,
    from_row,
    next_status,
    to_row,
)
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Engine, Key, Value
from outlast.store.keyvalue.unit_of_work import UnitOfWork

STATUS_KEY: Final = Key("outlast", "transfer-status")
STATUS_MAX_AGE_S: Final = 1.0
"""Age up to which a cached status counts. After it, every process has seen a seal."""

_FIELDS: Final = ("stage", "other", "transfer_id", "until", "grace")


class StatusCache:
    """Cache of the transfer status, at most `STATUS_MAX_AGE_S` old."""

    def __init__(self, engine: Engine, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._now = now
        self._status = OPEN
        self._read_at: float | None = None

    async def require_open(self) -> None:
        """Return if the store is open; raise StoreSealed or StoreMoved otherwise."""
        time = asyncio.get_running_loop().time()
        if self._read_at is None or not 0 <= time - self._read_at < STATUS_MAX_AGE_S:
            await self.read()
        status = self._status.at(self._now())
        if status is not OPEN:
            raise closed_error(status)

    async def read(self) -> TransferStatus:
        """Read the status from the engine, cache it and return it."""
        [item] = await self._engine.get([STATUS_KEY])
        self._status = _from_value(None if item is None else item.value)
        self._read_at = asyncio.get_running_loop().time()
        return self._status.at(self._now())


async def change_status(context: StoreContext, change: StatusChange) -> bool:
    """Write the next status in one unit of work; return False if the rules refuse it."""

    async def work(unit: UnitOfWork) -> bool:
        status = next_status(await read_status(unit), change, context.now())
        if status is None:
            return False
        if status.stage is TransferStage.OPEN:
            unit.delete(STATUS_KEY)
        else:
            fields = {name: value for name, value in to_row(status).items() if value is not None}
            unit.put(STATUS_KEY, fields)
        return True

    return await context.run_unit(work)


async def read_status(unit: UnitOfWork) -> TransferStatus:
    """Read the stored status in a unit of work."""
    return _from_value(await unit.get(STATUS_KEY))


def _from_value(value: Value | None) -> TransferStatus:
    return OPEN if value is None else from_row([value.get(name) for name in _FIELDS])
