"""The contract's verbs of a move, each handed to the module that does it."""

from collections.abc import Sequence

from outlast.store.contract.transfer import (
    Row,
    StatusChange,
    TableKind,
    TransferStage,
    TransferStatus,
    refuse_load,
)
from outlast.store.keyvalue import footing
from outlast.store.keyvalue.footing import StatusCache
from outlast.store.keyvalue.operations import transfer_load
from outlast.store.keyvalue.operations.transfer_dump import RowDump
from outlast.store.keyvalue.surface import Opened


class KeyValueMoving(Opened):
    """Moving a store."""

    _gatekeeper: StatusCache | None = None
    _dumper: RowDump | None = None

    @property
    def gatekeeper(self) -> StatusCache:
        """Who knows whether the store takes work."""
        desk = self._desk
        if self._gatekeeper is None:
            self._gatekeeper = StatusCache(desk.engine, desk.now)
        return self._gatekeeper

    async def transfer_status(self) -> TransferStatus:
        return await self.gatekeeper.look()

    async def change_transfer_status(self, step: StatusChange) -> bool:
        taken = await footing.stand(self._desk, step)
        if (
            taken and step.stage is TransferStage.OPEN
        ):  # killed before that, a few records stay, unread
            await transfer_load.forget_copied(self._desk)
        await self.gatekeeper.look()
        return taken

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        if self._dumper is None:
            self._dumper = RowDump(self._desk)
        return await self._dumper.dump(kind, after, limit, ended_only=ended_only)

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        present = await self.transfer_status()
        if present.stage is not TransferStage.FILLING:
            raise refuse_load(present)
        self._dumper = None  # what it remembers is no longer so
        await transfer_load.load(self._desk, kind, rows, gone)
