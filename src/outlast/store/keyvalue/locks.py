"""Named locks: a record that says who holds it, and is worth nothing when those are dead.

Whoever finds one taken asks whether a holder lives. So a lock is free soon after its holders died,
however they died.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Event, Thread
from threading import Lock as Mutex

from outlast.core.limits import check_name
from outlast.errors import OperatorError
from outlast.store.keyvalue import holders, key_layout
from outlast.store.keyvalue.engine import Engine, Key, StoredItem, Write
from outlast.store.keyvalue.holders import LockRecord, from_value, to_value
from outlast.store.keyvalue.liveness import Liveness
from outlast.store.keyvalue.pulse import PATIENCE


class Lock:
    """One that is held here. `number` tells who holds it from all others who do."""

    def __init__(self, locks: "Locks", name: str, number: str) -> None:
        self._locks = locks
        self.name = name
        self.number = number
        self.is_lost = False
        self.looks = 0  # how often it was let go of in vain

    async def release(self) -> None:
        await self._locks.release(self)

    @property
    def key(self) -> Key:
        return Key(key_layout.LOCK, self.name)


class Locks:
    """Every lock that one open store holds. `owner` tells its locks from all others.

    `now` tells the seconds by which other holders are watched.
    """

    def __init__(
        self, engine: Engine, owner: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._count = 0
        self._held: dict[str, Lock] = {}
        self._wanted: set[str] = set()
        self._leaving: dict[str, Lock] = {}
        self._lives = Liveness(engine, owner, now)
        self._buried: set[str] = set()
        self._guard = Mutex()
        self._begun: Future[None] | None = None
        self._beating: Thread | None = None
        self._is_over = Event()

    async def acquire_lock(self, name: str, *, shared: bool = False) -> Lock | None:
        """Take it, alone or with others, or find out that somebody lives who does not let us."""
        check_name(name, what="lock name")
        self._count += 1
        lock = Lock(self, name, holders.number(self._owner, self._count))
        await self._start_heartbeat()
        # From before it is written: whoever of us looks meanwhile knows that it is no dead one's.
        self._wanted.add(lock.number)
        try:
            if not await self._take(lock, shared=shared):
                return None
            self._held[lock.number] = lock
        except BaseException:
            self._leaving[lock.number] = lock  # it may have been written, or still be
            raise
        finally:
            self._wanted.discard(lock.number)
        return lock

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Those that nobody has, and those whose holders show no life."""
        wanted = list(dict.fromkeys(names))
        found = await self._look(wanted)
        answers = await asyncio.gather(*(self._is_free(entry) for entry in found))
        return frozenset(name for name, is_free in zip(wanted, answers, strict=True) if is_free)

    async def known_dead(self, names: Collection[str]) -> frozenset[str]:
        """Those known to be nobody's, without waiting to find out, and not buried yet."""
        wanted = sorted(set(names) - self._buried)
        verdicts = await self._judged(await self._look(wanted))
        return frozenset(name for name, gone in zip(wanted, verdicts, strict=True) if gone)

    def mark_released(self, names: Collection[str]) -> None:
        """Whoever had them has left nothing: they need not be looked for again."""
        self._buried.update(names)

    async def heartbeat(self) -> None:
        """Show life, see who was not believed, and finish what was cut short."""
        with suppress(OperatorError):  # whoever cannot reach the store tries again
            await self._lives.heartbeat()
            await self._find_lost()
            await self._leave()

    async def release(self, lock: Lock) -> None:
        """Let go of it, if it is still ours; if that is cut short, the next beat does it."""
        if self._held.pop(lock.number, None) is not None:
            self._leaving[lock.number] = lock
            await self._let_go(lock)
            self._leaving.pop(lock.number, None)

    async def close(self) -> None:
        """Let go of all."""
        self.stop()
        if self._beating is not None:
            await asyncio.to_thread(self._beating.join)
        for lock in [*self._held.values(), *self._leaving.values()]:
            await self._let_go(lock)
        if self._is_seen_alive:
            await self._lives.end()

    def stop(self) -> None:
        """Show no more life."""
        self._is_over.set()

    async def _take(self, lock: Lock, *, shared: bool) -> bool:
        while True:
            [entry] = await self._look([lock.name])
            there = LockRecord(is_shared=shared) if entry is None else from_value(entry.value)
            dead: set[str] = set()
            if entry is not None and not (shared and there.is_shared):
                if not await self._is_free(entry):
                    return False
                dead = {holders.owner(number) for number in there.numbers} - {self._owner}
                there = LockRecord(is_shared=shared)
            if await self._swap(lock.key, entry, there.plus(lock.number), dead):
                return True
            if not shared:
                return False  # somebody was quicker

    async def _let_go(self, lock: Lock) -> bool:
        """Whether it was ours to let go of."""
        while True:  # others come to share it, or leave it, meanwhile
            [entry] = await self._look([lock.name])
            if entry is None or not _has(entry, lock.number):
                return False
            if await self._swap(lock.key, entry, from_value(entry.value).without(lock.number)):
                return True

    async def _look(self, names: Sequence[str]) -> list[StoredItem | None]:
        return await self._engine.get([Key(key_layout.LOCK, name) for name in names])

    async def _is_free(self, entry: StoredItem | None) -> bool:
        """Whether nobody of its holders is left; one that is let go of meanwhile is not free."""
        while True:
            [gone] = await self._judged([entry], closely=True)
            if gone is not None or entry is None:
                return bool(gone)
            await asyncio.sleep(self._engine.limits.beat / 2)
            [entry] = await self._look([entry.key.sort])
            if entry is None:
                return False

    async def _judged(
        self, found: Sequence[StoredItem | None], *, closely: bool = False
    ) -> list[bool | None]:
        """Of each: True, it is nobody's; False, some holder lives; None, that is not known yet."""
        numbers = [() if entry is None else from_value(entry.value).numbers for entry in found]
        others = {holders.owner(n) for each in numbers for n in each} - {self._owner}
        lives = await self._lives.check(others, closely=closely) if others else {}
        verdicts = {n: self._verdict(n, lives) for each in numbers for n in each}
        return [_all_gone([verdicts[number] for number in each]) for each in numbers]

    def _verdict(self, number: str, lives: Mapping[str, bool | None]) -> bool | None:
        if holders.owner(number) == self._owner:
            return number not in self._held and number not in self._wanted
        return lives[holders.owner(number)]

    async def _swap(
        self, key: Key, entry: StoredItem | None, new: LockRecord, dead: Collection[str] = ()
    ) -> bool:
        """Where somebody dead had it, what is left of their lives goes too."""
        version = None if entry is None else entry.version
        value = to_value(new) if new.numbers else None
        most = self._engine.limits.most_writes - 1
        left = self._lives.delete_records(sorted(dead)[:most])
        return await self._engine.transact({key: version}, [Write(key, value), *left])

    @property
    def _is_seen_alive(self) -> bool:
        begun = self._begun
        return begun is not None and begun.done() and begun.exception() is None

    async def _start_heartbeat(self) -> None:
        """Be seen alive from now on. On a thread: whatever blocks the event loop is no death."""
        with self._guard:
            if self._begun is None or (self._begun.done() and not self._is_seen_alive):
                self._begun = Future()
                self._beating = Thread(
                    target=self._run, args=(self._begun,), name="outlast-locks", daemon=True
                )
                self._beating.start()
            begun = self._begun
        await asyncio.shield(asyncio.wrap_future(begun))

    def _run(self, begun: Future[None]) -> None:
        # RuntimeError: the interpreter ends, and whoever forgot to close the store need not know.
        with suppress(RuntimeError), asyncio.Runner() as runner:
            try:
                runner.run(self._lives.heartbeat())
            except Exception as error:  # noqa: BLE001 - whoever wants a lock is told
                begun.set_exception(error)
                return
            begun.set_result(None)
            while not self._is_over.wait(self._engine.limits.beat):
                runner.run(self.heartbeat())
            runner.run(self._engine.release_loop())

    async def _find_lost(self) -> None:
        """Those that others took: we were taken for dead."""
        held = list(self._held.values())
        found = await self._look([lock.name for lock in held])
        for lock, entry in zip(held, found, strict=True):
            is_ours = entry is not None and _has(entry, lock.number)
            if not is_ours and self._held.pop(lock.number, None) is not None:
                lock.is_lost = True

    async def _leave(self) -> None:
        """What was cut short. A write that nobody waited for may come late, so look again."""
        for lock in list(self._leaving.values()):
            lock.looks += 1
            if await self._let_go(lock) or lock.looks > PATIENCE:
                self._leaving.pop(lock.number, None)


def _has(entry: StoredItem, number: str) -> bool:
    return number in from_value(entry.value).numbers


def _all_gone(verdicts: Sequence[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return None if None in verdicts else True
