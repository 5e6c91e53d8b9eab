"""Who listens in this process, to its own commits and to those of others."""

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from holdfast.store.around import Hint, Topic
from holdfast.store.sqlite.hints.exchange import Exchange

log = logging.getLogger("holdfast.store")

Wake = Callable[[Hint], None]


class Listeners:
    """Wakes whom a commit concerns, once. Other processes are reached while it is connected."""

    def __init__(self) -> None:
        self._wakes: dict[object, tuple[Wake, frozenset[Topic]]] = {}
        self._exchange: Exchange | None = None

    def add(self, wake: Wake, topics: Collection[Topic]) -> Callable[[], None]:
        """Wake it from now on; the answer ends that."""
        mark = object()
        self._wakes[mark] = (wake, frozenset(topics))
        self._tune()

        def leave() -> None:
            if self._wakes.pop(mark, None) is not None:
                self._tune()

        return leave

    def tell(self, hint: Hint) -> None:
        """Something was committed here."""
        self._wake(hint)
        if self._exchange is not None:
            self._exchange.tell(hint)

    def connect(self, database: Path, monotonic: Callable[[], int]) -> None:
        """The file is open: reach, and be reached by, the others who have it open."""
        self._exchange = Exchange(
            database, wanted=self._wanted, heard=self._wake, monotonic=monotonic
        )
        self._tune()

    def disconnect(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    def _tune(self) -> None:
        if self._exchange is not None:
            self._exchange.tune()

    def _wanted(self) -> frozenset[Topic]:
        return frozenset[Topic]().union(*(topics for _, topics in tuple(self._wakes.values())))

    def _wake(self, hint: Hint) -> None:
        about = hint.topics
        for wake, topics in tuple(self._wakes.values()):
            if about & topics:
                try:
                    wake(hint)
                except Exception:
                    log.exception("a listener failed; hints are only hints")
