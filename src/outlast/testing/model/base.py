"""Base of the model store's operation classes: its tables, clock and subscribers."""

from collections.abc import Callable

from outlast.clock import Clock
from outlast.errors import StoreClosed
from outlast.store.contract.notifications import Notification
from outlast.store.contract.transfer import OPEN, closed_error
from outlast.testing.model.tables import Tables


class ModelOperations:
    """Tables of the model store, refused while it is closed or in transfer."""

    def __init__(self, clock: Clock) -> None:
        """Start with empty tables, closed."""
        self._clock = clock
        self._all_tables = Tables()
        self._is_open = False
        self._listeners: list[Callable[[Notification], None]] = []

    @property
    def _tables(self) -> Tables:
        """The tables; raises StoreClosed before `open()`."""
        self._require_open()
        return self._all_tables

    @property
    def _working(self) -> Tables:
        """The tables; raises StoreSealed or StoreMoved while the store is in transfer, too."""
        status = self._tables.transfer_status.at(self._clock.now())
        if status is not OPEN:
            raise closed_error(status)
        return self._all_tables

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreClosed("the model store is not open; await open() first")

    def _notify(self, notification: Notification) -> None:
        for wake in self._listeners:
            wake(notification)
