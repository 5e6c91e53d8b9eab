"""Named locks: one record per lock lists its holders, and only live holders count.

An acquire that meets another holder checks its liveness. So a lock is free soon after all its
holders died, however they died: at once if they ran on this machine, else as `liveness` tells.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Thread
from threading import Lock as Mutex

from outlast.core.limits import check_name
from outlast.errors import OperatorError, StoreClosed
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Engine, Key, StoredItem, Value, Write
from outlast.store.keyvalue.liveness import MISSED_HEARTBEATS, Liveness


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRecord:
    """Holders of a lock: one that has it exclusively, or all that share it."""

    is_shared: bool
    numbers: tuple[str, ...] = ()

    def plus(self, number: str) -> "LockRecord":
        """Return the record with one more holder."""
        return replace(self, numbers=(*self.numbers, number))

    def without(self, number: str) -> "LockRecord":
        """Return the record without a holder."""
        return replace(self, numbers=tuple(n for n in self.numbers if n != number))


class Lock:
    """A lock that this store holds. `number` tells this holder from all others."""

    def __init__(self, locks: "KeyValueLocks", name: str, number: str) -> None:
        """Describe a holder; `KeyValueLocks.acquire_lock` writes it."""
        self._locks = locks
        self.name = name
        self.number = number
        self.is_lost = False
        self.release_attempts = 0

    async def release(self) -> None:
        """Release the lock; no-op if it is lost or released."""
        await self._locks.release(self)

    @property
    def key(self) -> Key:
        """Key of the lock's record."""
        return Key(key_layout.LOCK, self.name)


class KeyValueLocks:
    """All locks that one open store holds. `owner` tells its locks from all others.

    `owner` is a process name, so that the kernel of its machine can prove it dead. `now` returns
    the seconds by which other holders are watched.
    """

    def __init__(
        self, engine: Engine, owner: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Hold no lock yet; the first acquire starts the heartbeat thread."""
        self._engine = engine
        self._owner = owner
        self._owner_pid = os.getpid()
        self._count = 0
        self._held: dict[str, Lock] = {}
        self._acquiring: set[str] = set()
        self._releasing: dict[str, Lock] = {}
        self._liveness = Liveness(engine, owner, now)
        self._released: set[str] = set()
        self._guard = Mutex()
        self._started: Future[None] | None = None
        self._heartbeat_thread: Thread | None = None
        self._is_stopped = Event()

    async def acquire_lock(
        self, name: str, *, shared: bool = False, watch: bool = True
    ) -> Lock | None:
        """Acquire a lock, exclusively or shared; return None if a live holder excludes it.

        Without `watch` a holder of whom nothing is known at once counts as alive. Raises
        StoreClosed in a forked child process: its locks would end with its parent.
        """
        check_name(name, what="lock name")
        if os.getpid() != self._owner_pid:
            raise StoreClosed(
                "the store was opened before a fork; open another store in the child process"
            )
        self._count += 1
        lock = Lock(self, name, f"{self._owner}.{self._count}")
        await self._start_heartbeat()
        # Before the write: a check in this process must not count the holder as dead meanwhile.
        self._acquiring.add(lock.number)
        try:
            if not await self._acquire(lock, shared=shared, watch=watch):
                return None
            self._held[lock.number] = lock
        except BaseException:
            self._releasing[lock.number] = lock  # the write may have happened, or still happen
            raise
        finally:
            self._acquiring.discard(lock.number)
        return lock

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Return those of `names` that no live process holds; wait until each is decided."""
        wanted = list(dict.fromkeys(names))
        found = await self._read(wanted)
        answers = await asyncio.gather(*(self._is_free(item) for item in found))
        return frozenset(name for name, is_free in zip(wanted, answers, strict=True) if is_free)

    async def known_dead(self, names: Collection[str]) -> frozenset[str]:
        """Return those of `names` known to be free, without waiting for undecided ones.

        Leaves out names passed to `mark_released`.
        """
        wanted = sorted(set(names) - self._released)
        answers = await self._are_free(await self._read(wanted))
        return frozenset(name for name, is_free in zip(wanted, answers, strict=True) if is_free)

    def mark_released(self, names: Collection[str]) -> None:
        """Leave `names` out of `known_dead`: their holders left nothing to recover."""
        self._released.update(names)

    async def heartbeat(self) -> None:
        """Renew the liveness record, find lost locks and retry interrupted releases.

        If the engine is unavailable, the next heartbeat tries again.
        """
        with suppress(OperatorError):
            await self._liveness.heartbeat()
            await self._find_lost()
            await self._retry_releases()

    async def release(self, lock: Lock) -> None:
        """Release a lock if this store still holds it; the next heartbeat retries if cancelled."""
        if self._held.pop(lock.number, None) is not None:
            self._releasing[lock.number] = lock
            await self._remove_holder(lock)
            self._releasing.pop(lock.number, None)

    async def close(self) -> None:
        """Stop the heartbeat and release all locks."""
        self.stop()
        if self._heartbeat_thread is not None:
            await asyncio.to_thread(self._heartbeat_thread.join)
        for lock in [*self._held.values(), *self._releasing.values()]:
            await self._remove_holder(lock)
        if self._has_heartbeat:
            await self._liveness.end()

    def stop(self) -> None:
        """Stop the heartbeat."""
        self._is_stopped.set()

    async def _acquire(self, lock: Lock, *, shared: bool, watch: bool) -> bool:
        while True:
            [item] = await self._read([lock.name])
            record = LockRecord(is_shared=shared) if item is None else _from_value(item.value)
            dead: set[str] = set()
            if item is not None and not (shared and record.is_shared):
                is_free = self._is_free(item) if watch else self._is_known_free(item)
                if not await is_free:
                    return False
                dead = {_owner_of(number) for number in record.numbers} - {self._owner}
                record = LockRecord(is_shared=shared)
            if await self._swap(lock.key, item, record.plus(lock.number), dead):
                return True
            if not shared:
                return False  # another process acquired it first

    async def _remove_holder(self, lock: Lock) -> bool:
        """Return False if this store did not hold it; retry while other holders come and go."""
        while True:
            [item] = await self._read([lock.name])
            if item is None or not _has_holder(item, lock.number):
                return False
            if await self._swap(lock.key, item, _from_value(item.value).without(lock.number)):
                return True

    async def _read(self, names: Sequence[str]) -> list[StoredItem | None]:
        return await self._engine.get([Key(key_layout.LOCK, name) for name in names])

    async def _is_free(self, item: StoredItem | None) -> bool:
        """Wait until it is decided whether a holder lives; released meanwhile counts as held."""
        while True:
            [is_free] = await self._are_free([item], closely=True)
            if is_free is not None or item is None:
                return bool(is_free)
            await asyncio.sleep(self._engine.limits.beat / 2)
            [item] = await self._read([item.key.sort])
            if item is None:
                return False

    async def _is_known_free(self, item: StoredItem) -> bool:
        [is_free] = await self._are_free([item])
        return bool(is_free)

    async def _are_free(
        self, found: Sequence[StoredItem | None], *, closely: bool = False
    ) -> list[bool | None]:
        """Return per record: True if free, False if a holder lives, None if undecided."""
        numbers = [() if item is None else _from_value(item.value).numbers for item in found]
        others = {_owner_of(n) for each in numbers for n in each} - {self._owner}
        checked = await self._liveness.check(others, closely=closely) if others else {}
        dead = {n: self._is_dead(n, checked) for each in numbers for n in each}
        return [_all_dead([dead[number] for number in each]) for each in numbers]

    def _is_dead(self, number: str, checked: Mapping[str, bool | None]) -> bool | None:
        if _owner_of(number) == self._owner:
            return number not in self._held and number not in self._acquiring
        return checked[_owner_of(number)]

    async def _swap(
        self, key: Key, item: StoredItem | None, new: LockRecord, dead: Collection[str] = ()
    ) -> bool:
        """Compare and swap the record; delete the liveness records of dead owners with it."""
        version = None if item is None else item.version
        value = _to_value(new) if new.numbers else None
        room = self._engine.limits.most_writes - 1
        deletes = self._liveness.delete_records(sorted(dead)[:room])
        return await self._engine.transact({key: version}, [Write(key, value), *deletes])

    @property
    def _has_heartbeat(self) -> bool:
        started = self._started
        return started is not None and started.done() and started.exception() is None

    async def _start_heartbeat(self) -> None:
        """Start the heartbeat thread and wait for its first heartbeat.

        A thread: a blocked event loop must not count as a dead holder.
        """
        with self._guard:
            if self._started is None or (self._started.done() and not self._has_heartbeat):
                self._started = Future()
                self._heartbeat_thread = Thread(
                    target=self._run, args=(self._started,), name="outlast-locks", daemon=True
                )
                self._heartbeat_thread.start()
            started = self._started
        await asyncio.shield(asyncio.wrap_future(started))

    def _run(self, started: Future[None]) -> None:
        # RuntimeError: the interpreter ends while the store is still open.
        with suppress(RuntimeError), asyncio.Runner() as runner:
            try:
                runner.run(self._liveness.heartbeat())
            except Exception as error:  # noqa: BLE001 - acquire_lock raises it
                started.set_exception(error)
                return
            started.set_result(None)
            while not self._is_stopped.wait(self._engine.limits.beat):
                runner.run(self.heartbeat())
            runner.run(self._engine.release_loop())

    async def _find_lost(self) -> None:
        """Mark locks that another process took because it counted this store as dead."""
        held = list(self._held.values())
        found = await self._read([lock.name for lock in held])
        for lock, item in zip(held, found, strict=True):
            is_ours = item is not None and _has_holder(item, lock.number)
            if not is_ours and self._held.pop(lock.number, None) is not None:
                lock.is_lost = True

    async def _retry_releases(self) -> None:
        """Finish interrupted releases; an abandoned write may arrive late, so try several times."""
        for lock in list(self._releasing.values()):
            lock.release_attempts += 1
            if await self._remove_holder(lock) or lock.release_attempts > MISSED_HEARTBEATS:
                self._releasing.pop(lock.number, None)


def _owner_of(number: str) -> str:
    return number.rpartition(".")[0]


def _to_value(record: LockRecord) -> Value:
    return {"is_shared": record.is_shared, "holders": list(record.numbers)}


def _from_value(value: Value) -> LockRecord:
    return LockRecord(is_shared=value["is_shared"], numbers=tuple(value["holders"]))


def _has_holder(item: StoredItem, number: str) -> bool:
    return number in _from_value(item.value).numbers


def _all_dead(answers: Sequence[bool | None]) -> bool | None:
    if False in answers:
        return False
    return None if None in answers else True
