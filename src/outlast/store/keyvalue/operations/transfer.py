"""Transfer of the store: status, dump and load."""

from collections.abc import Sequence

from outlast.store.contract.transfer import (
    Row,
    StatusChange,
    TableKind,
    TransferStage,
    TransferStatus,
    refuse_load,
)
from outlast.store.keyvalue.operations import transfer_load
from outlast.store.keyvalue.operations.base import KeyValueOperations
from outlast.store.keyvalue.operations.transfer_dump import RowDump
from outlast.store.keyvalue.operations.transfer_status import change_status


class KeyValueTransferOperations(KeyValueOperations):
    """Transfer status, dump and load."""

    _row_dump: RowDump | None = None

    async def transfer_status(self) -> TransferStatus:
        """Read the current status from the engine."""
        return await self._gate.read()

    async def change_transfer_status(self, step: StatusChange) -> bool:
        """Change the status; return False if the rules refuse it.

        A store that opens also deletes the fields that were loaded before their jobs. If the
        process dies before that, a few of them remain, and no operation reads them.
        """
        is_changed = await change_status(self._context, step)
        if is_changed and step.stage is TransferStage.OPEN:
            await transfer_load.delete_early_fields(self._context)
        await self._gate.read()
        return is_changed

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        """Return the next rows of one table, in the order of their keys."""
        if self._row_dump is None:
            self._row_dump = RowDump(self._context)
        return await self._row_dump.dump(kind, after, limit, ended_only=ended_only)

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        """Write rows and delete those of `gone`; raise unless the store is being filled."""
        status = await self.transfer_status()
        if status.stage is not TransferStage.FILLING:
            raise refuse_load(status)
        self._row_dump = None  # its cached tables are out of date
        await transfer_load.load(self._context, kind, rows, gone)
