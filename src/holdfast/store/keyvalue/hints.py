"""Wake-ups: from commits of this process at once, and from others as far as the engine tells."""

from collections.abc import Callable, Collection
from typing import Final

from holdfast.store.around import Hint, Topic
from holdfast.store.keyvalue import layout
from holdfast.store.keyvalue.port import Engine, Write

Wake = Callable[[Hint], None]

PARTS: Final = (layout.READY, layout.ENDED, layout.OPEN)
"""Where what concerns listeners is written."""


class Listeners:
    """Whom a commit concerns."""

    def __init__(self) -> None:
        self._wakes: dict[object, tuple[Wake, frozenset[Topic]]] = {}
        self._leave: Callable[[], None] | None = None

    def add(self, wake: Wake, topics: Collection[Topic]) -> Callable[[], None]:
        mark = object()
        self._wakes[mark] = (wake, frozenset(topics))

        def leave() -> None:
            self._wakes.pop(mark, None)

        return leave

    def tell(self, hint: Hint) -> None:
        for wake, topics in list(self._wakes.values()):
            if topics & hint.topics:
                wake(hint)

    def connect(self, engine: Engine) -> None:
        """Hear of what others commit, if the engine can tell."""
        self._leave = engine.watch(PARTS, self._heard)

    def disconnect(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None

    def _heard(self, write: Write) -> None:
        hint = of_write(write)
        if hint is not None:
            self.tell(hint)


def of_write(write: Write) -> Hint | None:
    """What one index entry, written by anybody, tells."""
    part = write.key.part
    if write.value is None:
        return None
    if part.startswith(layout.READY):
        return Hint(queues=frozenset({part.removeprefix(layout.READY)}))
    if part == layout.ENDED:
        room = {write.value["queue"]} if write.value["makes_room"] else set()
        return Hint(queues=frozenset(room), ended=True)
    is_asked = part.startswith(layout.OPEN) and write.value.get("cancel")
    return Hint(cancelled=True) if is_asked else None
