"""Notifications from the engine's watch on index entries."""

from collections.abc import Callable
from typing import Final

from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Engine, Write

PARTS: Final = (
    key_layout.READY,
    key_layout.DUE,
    key_layout.ENDED,
    key_layout.OPEN,
    key_layout.SCHEDULE_NAME,
)
"""Parts whose writes concern subscribers. A schedule's name is written only when it is saved."""


class EngineWatchBridge:
    """Turns index entries that any process writes into notifications."""

    def __init__(self, engine: Engine, wake: Callable[[Notification], None]) -> None:
        self._wake = wake
        self._end_watch = engine.watch(PARTS, self._on_write)

    def publish(self, notification: Notification) -> None:
        """No-op: the engine's watch reports what was written."""

    def update_topics(self) -> None:
        """No-op: the watch covers all topics."""

    def close(self) -> None:
        """End the watch; idempotent."""
        if self._end_watch is not None:
            self._end_watch()
            self._end_watch = None

    def _on_write(self, write: Write) -> None:
        notification = of_write(write)
        if notification is not None:
            self._wake(notification)


def of_write(write: Write) -> Notification | None:
    """Return the notification that an index entry means, or None."""
    part = write.key.part
    if write.value is None:
        return None
    if part.startswith(key_layout.READY):
        return Notification(queues=frozenset({part.removeprefix(key_layout.READY)}))
    if part == key_layout.DUE:
        queue = write.value.get("queue")  # an entry that a record check will refuse may lack it
        return None if queue is None else Notification(queues=frozenset({queue}))
    if part == key_layout.SCHEDULE_NAME:
        return Notification(schedules=True)
    if part == key_layout.ENDED:
        room = {write.value["queue"]} if write.value["makes_room"] else set()
        return Notification(queues=frozenset(room), ended=True)
    is_asked = part.startswith(key_layout.OPEN) and write.value.get("cancel")
    return Notification(cancelled=True) if is_asked else None
