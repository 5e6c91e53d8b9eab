"""Completes a transfer whose copying process died after the source was marked moved."""

import logging
from collections.abc import Callable
from contextlib import suppress

from outlast.core.address import read_address
from outlast.errors import OperatorError, OutlastError
from outlast.store.contract import Store
from outlast.store.contract.transfer import StatusChange, TransferStage

log = logging.getLogger("outlast.store")


async def complete_transfer(store: Store, open_store: Callable[[str], Store]) -> bool:
    """Open a store that is ready, if its source says that it was moved here by this transfer.

    Only a source in a file is read. The status may be forged, and a server that it names would
    receive the credentials of this process. If the source cannot be read, nothing changes and a
    warning says how to finish the transfer. Returns whether the store was opened by this call.
    """
    status = await store.transfer_status()
    if status.stage is not TransferStage.READY:
        return False
    try:
        source = read_address(status.other)
        if source is None or source.scheme != "sqlite":
            raise OperatorError("no server is asked that only this store names")
        address, _, _ = status.other.partition("?")
        is_moved = await _was_moved(open_store(address), status.transfer_id)
    except (OutlastError, OSError) as error:
        log.warning(
            "this store holds all rows of %s and cannot read its transfer status: %s; "
            "finish the transfer: outlast db copy --from %s --to this one",
            status.other,
            error,
            status.other,
        )
        return False
    return is_moved and await store.change_transfer_status(
        StatusChange(stage=TransferStage.OPEN, other=status.other, transfer_id=status.transfer_id)
    )


async def _was_moved(source: Store, transfer_id: str) -> bool:
    if not source.exists():  # opening it would create it
        return False
    try:
        await source.open()
        status = await source.transfer_status()
        return status.stage is TransferStage.MOVED and status.transfer_id == transfer_id
    finally:
        with suppress(OutlastError):
            await source.close()
