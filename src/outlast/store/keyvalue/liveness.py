"""Who lives: a store that holds locks has one record that says so, for as long as it does.

Where the engine has leases the record goes when nobody keeps it, and whoever keeps it lives.
Elsewhere its writer keeps changing it, and whoever watches it for long enough knows.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import LEASE, Engine, EngineLeases, Keep, Key, StoredItem, Write
from outlast.store.keyvalue.pulse import PATIENCE, ChangeMonitor

COARSE: Final = 1.0
"""Seconds: what a lease has left is told in whole ones."""


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """What was seen of a lease, when: it ends before `end`, if nobody keeps it any more."""

    at: float
    end: float


class Liveness:
    """Our own life, of which `owner` is the name, and what is known of others'.

    `now` tells the seconds by which others are watched.
    """

    def __init__(
        self, engine: Engine, owner: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._now = now
        self._pulse = ChangeMonitor(engine, now)
        self._keep: Keep | None = None
        self._beats = 0
        self._sights: dict[str, LeaseObservation] = {}

    async def heartbeat(self) -> None:
        """A sign of our own life, the first or one more; never two at a time."""
        leases = self._engine.leases
        if leases is None:
            self._beats += 1
            await self._engine.transact({}, [Write(_key(self._owner), {"beats": self._beats})])
        elif self._keep is None or not await self._keep():
            self._keep = await leases.put(Write(_key(self._owner), {}), span=self._patience)

    async def end(self) -> None:
        """Say that there is none any more."""
        await self._engine.transact({}, self.delete_records([self._owner]))

    async def check(
        self, owners: Collection[str], *, closely: bool = False
    ) -> Mapping[str, bool | None]:
        """Of each: True, it is gone; False, it lives; None, it was not watched for long enough.

        Who has a lease is seen to live only if one looks `closely`, a second apart at least.
        """
        asked = sorted(owners)
        found = await self._pulse.look([_key(owner) for owner in asked])
        judged = [await self._verdict(entry, closely=closely) for entry in found]
        return dict(zip(asked, judged, strict=True))

    def delete_records(self, owners: Collection[str]) -> list[Write]:
        """What takes their records away."""
        return [Write(_key(owner), None) for owner in owners]

    async def _verdict(self, entry: StoredItem | None, *, closely: bool) -> bool | None:
        if entry is None:
            return True
        leases, lease = self._engine.leases, entry.value.get(LEASE)
        if leases is None or lease is None:
            return self._pulse.is_stale(entry)
        return False if closely and await self._was_kept(leases, lease) else None

    async def _was_kept(self, leases: EngineLeases, lease: str) -> bool:
        """Whether it ends later than it would if nobody had kept it since it was last seen."""
        asked = self._now()
        left = await leases.left(lease)
        now = self._now()
        self._forget(now - self._patience - 2 * COARSE)
        before = self._sights.get(lease)
        # What is over is 0, and stays so until its engine has come round to it.
        was_kept = before is not None and left > 0 and asked + left >= before.end
        if before is None or was_kept:
            self._sights[lease] = LeaseObservation(now, now + left + COARSE)
        return was_kept

    def _forget(self, before: float) -> None:
        """What was kept since then may have been kept long ago."""
        self._sights = {k: sight for k, sight in self._sights.items() if sight.at > before}

    @property
    def _patience(self) -> float:
        return PATIENCE * self._engine.limits.beat


def _key(owner: str) -> Key:
    return Key(key_layout.LIVENESS, owner)
