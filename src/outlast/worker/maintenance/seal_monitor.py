"""The seal monitor: releases running jobs when the grace of a sealed store is over."""

from collections.abc import Callable

from outlast.store.contract import Store
from outlast.store.contract.transfer import TransferStage


class SealMonitor:
    """Checks the transfer status while jobs are claimed; an idle worker learns it by claiming."""

    def __init__(
        self, store: Store, *, is_busy: Callable[[], bool], release: Callable[[], None]
    ) -> None:
        self._store = store
        self._is_busy = is_busy
        self._release = release
        self._released_for: str | None = None

    async def run_once(self) -> bool:
        """Release everything once per transfer, after its grace; return whether it did."""
        if not self._is_busy():
            return False
        status = await self._store.transfer_status()
        if status.stage is not TransferStage.SEALED or status.grace is None:
            self._released_for = None
            return False
        if self._released_for == status.by or await self._store.now() < status.grace:
            return False
        self._released_for = status.by
        self._release()
        return True
