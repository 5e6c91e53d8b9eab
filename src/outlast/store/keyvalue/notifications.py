"""Wake-ups from other processes, as far as the engine tells of what they write."""

from collections.abc import Callable
from typing import Final

from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Engine, Write

PARTS: Final = (key_layout.READY, key_layout.ENDED, key_layout.OPEN)
"""Where what concerns listeners is written."""


class EngineWatchBridge:
    """Hears of index entries, whoever wrote them."""

    def __init__(self, engine: Engine, wake: Callable[[Notification], None]) -> None:
        self._wake = wake
        self._leave = engine.watch(PARTS, self._heard)

    def publish(self, notification: Notification) -> None:
        """Nothing is to be said: what was written is heard."""

    def update_topics(self) -> None:
        """It hears everything."""

    def close(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None

    def _heard(self, write: Write) -> None:
        notification = of_write(write)
        if notification is not None:
            self._wake(notification)


def of_write(write: Write) -> Notification | None:
    """What one index entry tells."""
    part = write.key.part
    if write.value is None:
        return None
    if part.startswith(key_layout.READY):
        return Notification(queues=frozenset({part.removeprefix(key_layout.READY)}))
    if part == key_layout.ENDED:
        room = {write.value["queue"]} if write.value["makes_room"] else set()
        return Notification(queues=frozenset(room), ended=True)
    is_asked = part.startswith(key_layout.OPEN) and write.value.get("cancel")
    return Notification(cancelled=True) if is_asked else None
