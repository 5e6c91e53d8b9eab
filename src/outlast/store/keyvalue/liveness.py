"""Liveness of lock holders: one record per open store, and checks of other stores' records.

The name of an owner says which process it is. If it ran on this machine and the kernel proves its
process dead, it is dead at once. Any other owner is judged by its record.

Where the engine has leases, the record is bound to one: the engine deletes it when the lease
expires. Elsewhere the store keeps changing the record, and a check watches whether it changes.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from outlast.process_identity import proved_dead
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import LEASE, Engine, EngineLeases, Keep, Key, StoredItem, Write

MISSED_HEARTBEATS: Final = 5
"""Heartbeats that a holder may miss before it counts as dead."""

MAX_OBSERVED_RECORDS: Final = 1_000
"""Records whose last change a monitor remembers."""

LEASE_RESOLUTION_S: Final = 1.0
"""Engines report the rest of a lease in whole seconds."""


@dataclass(frozen=True, slots=True)
class VersionObservation:
    """A version last seen at `at`, unchanged during `watched` seconds of observation."""

    version: str
    at: float
    watched: float = 0.0


class ChangeMonitor:
    """Detects that a record stopped changing. It remembers earlier reads between calls.

    `now` returns the seconds by which it watches.
    """

    def __init__(self, engine: Engine, now: Callable[[], float] = time.monotonic) -> None:
        """Observe records of `engine`."""
        self._engine = engine
        self._now = now
        self._observations: dict[Key, VersionObservation] = {}

    async def read(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        """Read records, to pass each to `is_stale`.

        A slow read clears all observations: the engine was unavailable to the holders, too.
        """
        asked = self._now()
        found = await self._engine.get(keys)
        if self._now() - asked > self._engine.limits.beat:
            self._observations.clear()
        return found

    def is_stale(self, item: StoredItem) -> bool | None:
        """Return True if the record stopped changing, False if it changed, None if undecided.

        The time between two reads counts for one heartbeat at most: the engine may have been
        unavailable meanwhile.
        """
        now, beat = self._now(), self._engine.limits.beat
        before = self._observations.pop(item.key, None)
        if before is None or before.version != item.version:
            self._remember(item.key, VersionObservation(item.version, now))
            is_recent = before is not None and now - before.at <= MISSED_HEARTBEATS * beat
            return False if is_recent else None
        watched = before.watched + min(now - before.at, beat)
        self._remember(item.key, VersionObservation(item.version, now, watched))
        return True if watched >= MISSED_HEARTBEATS * beat else None

    def _remember(self, key: Key, observation: VersionObservation) -> None:
        self._observations[key] = observation
        while len(self._observations) > MAX_OBSERVED_RECORDS:
            del self._observations[next(iter(self._observations))]


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """A lease as read at `at`: without a renewal it expires before `end`."""

    at: float
    end: float


class Liveness:
    """Heartbeat of this store under the name `owner`, and checks of other owners.

    `now` returns the seconds by which other owners are watched.
    """

    def __init__(
        self, engine: Engine, owner: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare the heartbeat of `owner`; the first `heartbeat()` writes the record."""
        self._engine = engine
        self._owner = owner
        self._now = now
        self._monitor = ChangeMonitor(engine, now)
        self._renew_lease: Keep | None = None
        self._heartbeats = 0
        self._leases: dict[str, LeaseObservation] = {}

    async def heartbeat(self) -> None:
        """Write or renew this store's record. Callers make one call at a time."""
        leases = self._engine.leases
        if leases is None:
            self._heartbeats += 1
            record = Write(_key(self._owner), {"beats": self._heartbeats})
            await self._engine.transact({}, [record])
        elif self._renew_lease is None or not await self._renew_lease():
            record = Write(_key(self._owner), {})
            self._renew_lease = await leases.put(record, span=self._timeout)

    async def end(self) -> None:
        """Delete this store's record."""
        await self._engine.transact({}, self.delete_records([self._owner]))

    async def check(
        self, owners: Collection[str], *, closely: bool = False
    ) -> Mapping[str, bool | None]:
        """Return per owner: True if it is dead, False if it is alive, None if undecided.

        An owner with an engine lease is found alive only with `closely`, which compares two
        reads of the lease, at least a second apart.
        """
        proved = proved_dead(owners)
        names = sorted(set(owners) - proved)
        if not names:
            return dict.fromkeys(proved, True)
        found = await self._monitor.read([_key(owner) for owner in names])
        answers = [await self._is_dead(item, closely=closely) for item in found]
        return {**dict.fromkeys(proved, True), **dict(zip(names, answers, strict=True))}

    def delete_records(self, owners: Collection[str]) -> list[Write]:
        """Return the writes that delete the records of `owners`."""
        return [Write(_key(owner), None) for owner in owners]

    async def _is_dead(self, item: StoredItem | None, *, closely: bool) -> bool | None:
        if item is None:
            return True
        leases, lease = self._engine.leases, item.value.get(LEASE)
        if leases is None or lease is None:
            return self._monitor.is_stale(item)
        return False if closely and await self._was_renewed(leases, lease) else None

    async def _was_renewed(self, leases: EngineLeases, lease: str) -> bool:
        """Return True if the lease ends later than it would without a renewal since last read."""
        asked = self._now()
        left = await leases.left(lease)
        now = self._now()
        self._forget_leases(now - self._timeout - 2 * LEASE_RESOLUTION_S)
        before = self._leases.get(lease)
        # An expired lease has 0 left until the engine deletes it.
        was_renewed = before is not None and left > 0 and asked + left >= before.end
        if before is None or was_renewed:
            self._leases[lease] = LeaseObservation(now, now + left + LEASE_RESOLUTION_S)
        return was_renewed

    def _forget_leases(self, before: float) -> None:
        """Forget older observations: a renewal seen since then may be long past."""
        self._leases = {name: seen for name, seen in self._leases.items() if seen.at > before}

    @property
    def _timeout(self) -> float:
        return MISSED_HEARTBEATS * self._engine.limits.beat


def _key(owner: str) -> Key:
    return Key(key_layout.LIVENESS, owner)
