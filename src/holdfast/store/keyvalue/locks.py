"""Named locks: a record that its holders keep changing, for as long as they live.

Whoever finds one taken watches it: if it changes, somebody who holds it lives; if it does not for a
while, it is taken over. So a lock is free soon after its holders died, however they died.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from threading import Event, Thread

from holdfast.core.limits import check_name
from holdfast.errors import OperatorError
from holdfast.store.keyvalue import layout
from holdfast.store.keyvalue.holders import Holders, from_value, to_value
from holdfast.store.keyvalue.port import Engine, Entry, Key, Write
from holdfast.store.keyvalue.pulse import Pulse


class Lock:
    """One that is held here. `number` tells who holds it from all others who do."""

    def __init__(self, locks: "Locks", name: str, number: str) -> None:
        self._locks = locks
        self.name = name
        self.number = number
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
        self._count = 0
        self._held: dict[str, Lock] = {}
        self._pulse = Pulse(engine)
        self._buried: set[str] = set()
        self._beating: Thread | None = None
        self._is_over = Event()

    async def hold(self, name: str, *, shared: bool = False) -> Lock | None:
        """Take it, alone or with others, or find out that somebody lives who does not let us."""
        check_name(name, what="lock name")
        self._count += 1
        lock = Lock(self, name, f"{self._owner}.{self._count}")
        # From before it is written: whoever of us looks meanwhile knows that it is no dead one's.
        self._held[lock.number] = lock
        is_taken = False
        try:
            is_taken = await self._take(lock, shared=shared)
        finally:
            if not is_taken:
                self._held.pop(lock.number, None)
        if not is_taken:
            return None
        self._beat_on()
        return lock

    async def vacant(self, names: Collection[str]) -> frozenset[str]:
        """Those that nobody has, and those whose holders show no life."""
        wanted = list(dict.fromkeys(names))
        found = await self._pulse.look([Key(layout.LOCK, name) for name in wanted])
        answers = await asyncio.gather(*(self._is_free(entry) for entry in found))
        return frozenset(name for name, is_free in zip(wanted, answers, strict=True) if is_free)

    async def deserted(self, names: Collection[str]) -> frozenset[str]:
        """Those known to be nobody's, without waiting to find out, and not buried yet."""
        wanted = sorted(set(names) - self._buried)
        found = await self._pulse.look([Key(layout.LOCK, name) for name in wanted])
        told = zip(wanted, found, strict=True)
        return frozenset(name for name, entry in told if self._is_deserted(entry))

    def bury(self, names: Collection[str]) -> None:
        """Whoever had them has left nothing: they need not be looked for again."""
        self._buried.update(names)

    def _is_deserted(self, entry: Entry | None) -> bool:
        return entry is None or (not self._is_here(entry) and bool(self._pulse.judged(entry)))

    async def release(self, lock: Lock) -> None:
        """Let go of it, if it is still ours."""
        if self._held.pop(lock.number, None) is None:
            return
        while True:  # whoever shares it beats meanwhile
            [entry] = await self._engine.get([lock.key])
            if entry is None or not from_value(entry.value).has(lock.number):
                return
            left = from_value(entry.value).without(lock.number)
            if await self._swap(lock.key, entry, left):
                return

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

    async def _take(self, lock: Lock, *, shared: bool) -> bool:
        while True:
            [entry] = await self._pulse.look([lock.key])
            there = None if entry is None else from_value(entry.value)
            if entry is not None and there is not None and not (shared and there.is_shared):
                if not await self._is_free(entry):
                    return False
                there = None  # nobody of them is left
            wanted = (there or Holders(is_shared=shared)).beaten(lock.number)
            if await self._swap(lock.key, entry, wanted):
                return True
            if not shared:
                return False  # somebody was quicker

    async def _is_free(self, entry: Entry | None) -> bool:
        if entry is None:
            return True
        return not self._is_here(entry) and await self._pulse.is_gone(entry)

    def _is_here(self, entry: Entry) -> bool:
        return any(number in self._held for number in from_value(entry.value).beats)

    async def _swap(self, key: Key, entry: Entry | None, new: Holders) -> bool:
        version = None if entry is None else entry.version
        value = to_value(new) if new.beats else None
        return await self._engine.transact({key: version}, [Write(key, value)])

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
        """Once: when another one of those who share it was quicker, that was a sign of life too."""
        [entry] = await self._engine.get([lock.key])
        there = None if entry is None else from_value(entry.value)
        if there is not None and there.has(lock.number):
            await self._swap(lock.key, entry, there.beaten(lock.number))
        elif self._held.pop(lock.number, None) is not None:
            lock.is_lost = True  # we were taken for dead
