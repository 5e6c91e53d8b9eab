"""Whether somebody still changes a record, by looking at it for long enough."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from outlast.store.keyvalue.engine import Engine, Key, StoredItem

PATIENCE: Final = 5
"""Beats that may be missed before a holder counts as dead."""

MOST: Final = 1_000
"""Records of which it is remembered when they last changed."""


@dataclass(frozen=True, slots=True)
class VersionObservation:
    """A version that was seen last at `at`, and for how long it has been watched until then."""

    version: str
    at: float
    watched: float = 0.0


class ChangeMonitor:
    """Remembers what it saw: who is looked at every second need not be waited for each time.

    `now` tells the seconds by which it watches.
    """

    def __init__(self, engine: Engine, now: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._now = now
        self._seen: dict[Key, VersionObservation] = {}

    async def look(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        """The records as they are; `judged` then tells of each."""
        asked = self._now()
        found = await self._engine.get(keys)
        if self._now() - asked > self._engine.limits.beat:
            self._seen.clear()  # the engine was away, for whoever should have beaten, too
        return found

    def is_stale(self, entry: StoredItem) -> bool | None:
        """True: gone. False: alive a moment ago. None: it was not watched for long enough."""
        now, beat = self._now(), self._engine.limits.beat
        before = self._seen.pop(entry.key, None)
        if before is None or before.version != entry.version:
            self._remember(entry.key, VersionObservation(entry.version, now))
            return False if before is not None and now - before.at <= PATIENCE * beat else None
        # What was not looked at counts for one beat at most: the engine may have been away.
        watched = before.watched + min(now - before.at, beat)
        self._remember(entry.key, VersionObservation(entry.version, now, watched))
        return True if watched >= PATIENCE * beat else None

    def _remember(self, key: Key, sight: VersionObservation) -> None:
        self._seen[key] = sight
        while len(self._seen) > MOST:
            del self._seen[next(iter(self._seen))]
