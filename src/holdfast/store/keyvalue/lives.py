"""Who lives: a store that holds locks has one record that says so, for as long as it does.

Where the engine has leases the record goes when nobody keeps it: what is there, lives. Elsewhere
its writer keeps changing it, and whoever watches it for long enough knows.
"""

from collections.abc import Collection, Mapping
from typing import Final

from holdfast.store.keyvalue import layout
from holdfast.store.keyvalue.port import Engine, Entry, Keep, Key, Write
from holdfast.store.keyvalue.pulse import PATIENCE, Pulse

LEASED: Final = "leased"


class Lives:
    """Our own life, of which `owner` is the name, and what is known of others'."""

    def __init__(self, engine: Engine, owner: str) -> None:
        self._engine = engine
        self._owner = owner
        self._pulse = Pulse(engine)
        self._keep: Keep | None = None
        self._beats = 0

    async def show(self) -> None:
        """A sign of our own life, the first or one more; never two at a time."""
        if self._keep is not None and await self._keep():
            return
        there = Write(_key(self._owner), {LEASED: True})
        self._keep = await self._engine.lease(there, span=PATIENCE * self._engine.limits.beat)
        if self._keep is None:
            self._beats += 1
            beaten = Write(_key(self._owner), {"beats": self._beats})
            await self._engine.transact({}, [beaten])

    async def end(self) -> None:
        """Say that there is none any more."""
        await self._engine.transact({}, self.buried([self._owner]))

    async def judged(self, owners: Collection[str]) -> Mapping[str, bool | None]:
        """Of each: True, it is gone; False, it lives; None, it was not watched for long enough."""
        asked = sorted(owners)
        found = await self._pulse.look([_key(owner) for owner in asked])
        return {owner: self._verdict(entry) for owner, entry in zip(asked, found, strict=True)}

    def buried(self, owners: Collection[str]) -> list[Write]:
        """What takes their records away."""
        return [Write(_key(owner), None) for owner in owners]

    def _verdict(self, entry: Entry | None) -> bool | None:
        if entry is None:
            return True
        return False if LEASED in entry.value else self._pulse.judged(entry)


def _key(owner: str) -> Key:
    return Key(layout.LIFE, owner)
