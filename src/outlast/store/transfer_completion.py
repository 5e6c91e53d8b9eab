"""Opening a store that was left ready: its copier died after the other one was moved to it."""

import logging
from collections.abc import Callable
from contextlib import suppress

from outlast.errors import OutlastError
from outlast.store.contract import Store
from outlast.store.contract.transfer import StatusChange, TransferStage

log = logging.getLogger("outlast.store")


async def complete_transfer(store: Store, open_store: Callable[[str], Store]) -> bool:
    """Let it take work, if the store it was filled from says that it was moved here.

    Where that one cannot be asked everything stays as it is, and a word says what finishes it.
    """
    footing = await store.transfer_status()
    if footing.stage is not TransferStage.READY:
        return False
    try:
        is_mine = await _was_moved(open_store(footing.other), footing.transfer_id)
    except (OutlastError, OSError) as error:
        log.warning(
            "this store holds all of %s and waits for word from it, which cannot be had: %s; "
            "finish it: outlast db copy --from %s --to this one",
            footing.other,
            error,
            footing.other,
        )
        return False
    return is_mine and await store.change_transfer_status(
        StatusChange(stage=TransferStage.OPEN, other=footing.other, transfer_id=footing.transfer_id)
    )


async def _was_moved(source: Store, by: str) -> bool:
    if not source.exists():  # opening it would make it
        return False
    try:
        await source.open()
        theirs = await source.transfer_status()
        return theirs.stage is TransferStage.MOVED and theirs.transfer_id == by
    finally:
        with suppress(OutlastError):
            await source.close()
