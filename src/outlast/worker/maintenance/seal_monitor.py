"""Noticing that the store is being moved: what still runs when the grace is over is handed back."""

from collections.abc import Callable

from outlast.store.contract import Store
from outlast.store.contract.transfer import TransferStage


class SealMonitor:
    """Looks while there is something in hand; who has nothing learns of a seal by its claims."""

    def __init__(
        self, store: Store, *, is_busy: Callable[[], bool], hand_back: Callable[[], None]
    ) -> None:
        self._store = store
        self._is_busy = is_busy
        self._hand_back = hand_back
        self._handed_back: str | None = None

    async def run_once(self) -> bool:
        """Whether it had everything handed back: once in a move, when its grace is over."""
        if not self._is_busy():
            return False
        footing = await self._store.transfer_status()
        if footing.stage is not TransferStage.SEALED or footing.grace is None:
            self._handed_back = None
            return False
        if self._handed_back == footing.transfer_id or await self._store.now() < footing.grace:
            return False
        self._handed_back = footing.transfer_id
        self._hand_back()
        return True
