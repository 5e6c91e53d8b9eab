"""The transfer gate: new work is written only while the transfer status is the one that was read.

Every transaction of new work compares the record of the status, where the engine compares for
nothing. Where each compared record is billed, the gate makes sure afterwards: see `GatePass`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from outlast.errors import StoreUnavailable
from outlast.store.contract.transfer import (
    OPEN,
    TransferStage,
    TransferStatus,
    closed_error,
    from_row,
)
from outlast.store.keyvalue.engine import Conditions, Engine, Key, Value, Write

STATUS_KEY: Final = Key("outlast", "transfer-status")
OPENED: Final[Value] = {"stage": TransferStage.OPEN.value}
"""Record of a store that has been in a transfer: its version differs from all before it."""

STATUS_MAX_AGE_S: Final = 1.0
"""Age up to which a status counts that every transaction compares."""

_FIELDS: Final = ("stage", "other", "transfer_id", "until", "grace")


@dataclass(frozen=True, slots=True)
class StatusView:
    """The transfer status as it was read: its record's version, and when the read began."""

    status: TransferStatus
    version: str | None
    read_at: float


class TransferGate:
    """Refuses new work unless the store is open; reads the status at most once per second."""

    def __init__(self, engine: Engine, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._now = now
        self._view: StatusView | None = None
        self.delay = engine.limits.status_delay
        self._max_age = STATUS_MAX_AGE_S if self.delay is None else self.delay / 3

    async def enter(self) -> "GatePass":
        """Admit one transaction to an open store; raise StoreSealed or StoreMoved otherwise.

        An expired seal is replaced first, so that the transfer that set it can no longer commit.
        """
        view = self._view
        if view is None or not 0 <= _time() - view.read_at < self._max_age:
            view = await self.look()
        while view.status is not OPEN:
            if view.status.at(self._now()) is not OPEN:
                raise closed_error(view.status)
            await self._engine.transact({STATUS_KEY: view.version}, [Write(STATUS_KEY, OPENED)])
            view = await self.look()
        return GatePass(self, view)

    async def read(self) -> TransferStatus:
        """Read the status and return it."""
        return (await self.look()).status.at(self._now())

    async def look(self) -> StatusView:
        """Read the status, and use it from now on."""
        began = _time()
        [item] = await self._engine.get([STATUS_KEY])
        status = status_of(None if item is None else item.value)
        self._view = StatusView(status, None if item is None else item.version, began)
        return self._view


@dataclass(frozen=True, slots=True)
class GatePass:
    """Admits one transaction: what it compares, and what follows from its answer."""

    gate: TransferGate
    view: StatusView

    @property
    def conditions(self) -> Conditions:
        """What the transaction compares besides its own records."""
        return {STATUS_KEY: self.view.version} if self.gate.delay is None else {}

    async def settle(self, *, is_written: bool) -> None:
        """Raise StoreUnavailable unless what was written was written in time.

        A transfer waits `status_delay` after each change that closes the store. So a transaction
        that ended within two thirds of it was in time; after a later one the status must still be
        the same. Only a paused process or a throttled table takes so long.
        """
        if self.gate.delay is None:
            if not is_written:  # perhaps by the status
                await self.gate.look()
        elif is_written and not 0 <= _time() - self.view.read_at < self.gate.delay * 2 / 3:
            await self._confirm()

    async def _confirm(self) -> None:
        if (await self.gate.look()).version != self.view.version:
            raise StoreUnavailable(
                "a transfer of this store began while this was being written, and it may have come "
                "too late: send it again, and the answer is certain"
            )


def status_of(value: Value | None) -> TransferStatus:
    """Return the transfer status of a stored record; open if there is none."""
    if value is None or value["stage"] == TransferStage.OPEN:
        return OPEN
    return from_row([value.get(name) for name in _FIELDS])


def _time() -> float:
    return asyncio.get_running_loop().time()
