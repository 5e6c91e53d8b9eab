"""Named locks: a record that its holder keeps changing, for as long as it lives.

Whoever finds one taken watches it: if it changes, its holder lives; if it does not for a while, it
is taken over. So a lock is free soon after its holder died, however it died.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from threading import Event, Thread
from typing import Final

from holdfast.core.limits import check_name
from holdfast.errors import OperatorError
from holdfast.store.keyvalue import layout
from holdfast.store.keyvalue.port import Engine, Entry, Key, Write

PATIENCE: Final = 5
"""Beats that may be missed before a holder counts as dead."""


class Lock:
    """One that is held here."""

    def __init__(self, locks: "Locks", name: str) -> None:
        self._locks = locks
        self.name = name
        self.beats = 0
        self.is_lost = False

    async def release(self) -> None:
        await self._locks.release(self)

    @property
    def key(self) -> Key:
        return Key(layout.LOCK, self.name)


class Locks:
    """Every lock that one open store holds. `owner` tells its locks from all others."""

    def __init__(self, engine: Engine, owner: str) -> None:
        self._engine = engine
        self._owner = owner
        self._held: dict[str, Lock] = {}
        self._beating: Thread | None = None
        self._is_over = Event()

    async def hold(self, name: str) -> Lock | None:
        """Take it, or find out that its holder lives."""
        check_name(name, what="lock name")
        if name in self._held:
            return None
        lock = self._held[name] = Lock(self, name)
        is_taken = False
        try:
            is_taken = await self._take(lock)
        finally:
            if not is_taken:
                self._held.pop(name, None)
        if not is_taken:
            return None
        self._beat_on()
        return lock

    async def vacant(self, names: Collection[str]) -> frozenset[str]:
        """Those that nobody has, and those whose holder shows no life."""
        others = [name for name in dict.fromkeys(names) if name not in self._held]
        found = await self._engine.get([Key(layout.LOCK, name) for name in others])
        answers = await asyncio.gather(*(self._is_free(entry) for entry in found))
        return frozenset(name for name, is_free in zip(others, answers, strict=True) if is_free)

    async def _is_free(self, entry: Entry | None) -> bool:
        return entry is None or await self._is_abandoned(entry)

    async def release(self, lock: Lock) -> None:
        """Let go of it, if it is still ours."""
        if self._held.get(lock.name) is not lock:
            return
        del self._held[lock.name]
        [entry] = await self._engine.get([lock.key])
        if entry is not None and entry.value["owner"] == self._owner:
            await self._engine.transact({lock.key: entry.version}, [Write(lock.key, None)])

    async def close(self) -> None:
        """Let go of all."""
        self.stop()
        if self._beating is not None:
            await asyncio.to_thread(self._beating.join)
        for lock in list(self._held.values()):
            await self.release(lock)

    def stop(self) -> None:
        """Show no more life."""
        self._is_over.set()

    async def _take(self, lock: Lock) -> bool:
        [entry] = await self._engine.get([lock.key])
        if entry is not None and not await self._is_abandoned(entry):
            return False
        version = None if entry is None else entry.version
        return await self._engine.transact({lock.key: version}, [self._written(lock)])

    async def _is_abandoned(self, entry: Entry) -> bool:
        """Whether nobody changes it for a while; one that is let go of meanwhile is, too."""
        beat = self._engine.limits.beat
        clock = asyncio.get_running_loop().time
        over = clock() + PATIENCE * beat
        while clock() < over:
            await asyncio.sleep(beat / 2)
            [again] = await self._engine.get([entry.key])
            if again is None or again.version != entry.version:
                return False
        return True

    def _written(self, lock: Lock) -> Write:
        lock.beats += 1
        return Write(lock.key, {"owner": self._owner, "beats": lock.beats})

    def _beat_on(self) -> None:
        if self._beating is None:
            # On a thread: whatever blocks the event loop is no death.
            self._beating = Thread(target=self._run, name="holdfast-locks", daemon=True)
            self._beating.start()

    def _run(self) -> None:
        # RuntimeError: the interpreter ends, and whoever forgot to close the store need not know.
        with suppress(RuntimeError), asyncio.Runner() as runner:
            while not self._is_over.wait(self._engine.limits.beat):
                runner.run(self._beat_all())
            runner.run(self._engine.leave())

    async def _beat_all(self) -> None:
        for lock in list(self._held.values()):
            with suppress(OperatorError):  # whoever cannot reach the store tries again
                await self._beat(lock)

    async def _beat(self, lock: Lock) -> None:
        [entry] = await self._engine.get([lock.key])
        if entry is None or entry.value["owner"] != self._owner:
            self._held.pop(lock.name, None)  # we were taken for dead
            lock.is_lost = True
        elif lock.name in self._held:
            await self._engine.transact({lock.key: entry.version}, [self._written(lock)])
