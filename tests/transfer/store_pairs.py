"""Shared by the transfer tests: stores of every kind, and transfers that die on request."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from outlast.core.ids import Ids, JobId
from outlast.errors import StoreMoved, StoreSealed
from outlast.store.contract import Store
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore
from outlast.store.transfer_completion import complete_transfer
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import make_job
from outlast.testing.model.store import ModelStore
from outlast.transfer import CopyResult, StoreCopy
from support.engines.memory import MemoryEngine
from support.postgres.clock import DatabaseClock

FROM, TO = "sqlite:////source.db", "sqlite:////target.db"
SEAL = timedelta(seconds=30)
WRITES = ("change_transfer_status", "load", "apply")


class Died(BaseException):
    """As a killed process would: nothing is caught, nothing is tidied."""


class Life:
    """Ends at the nth write of whichever store; then every call of either does."""

    def __init__(self, ends_at: int | None = None, *, after: bool = False) -> None:
        self.writes: list[str] = []
        self._ends_at = ends_at
        self._after = after
        self.is_over = False

    async def live(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_over:
            raise Died
        is_last = name in WRITES and len(self.writes) == self._ends_at
        if name in WRITES:
            self.writes.append(name)
        if is_last and not self._after:
            self._die()
        answer = await call(*args, **kwargs)
        if is_last:
            self._die()
        return answer

    def _die(self) -> None:
        self.is_over = True
        raise Died


class Mortal:
    """A store as a process with that life uses it."""

    def __init__(self, store: Store, life: Life) -> None:
        self._store = store
        self._life = life

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._store, name)
        if name in {"capabilities", "subscribe", "exists"}:
            return there

        async def call(*args: Any, **kwargs: Any) -> Any:
            if name == "acquire_lock":
                return _Hold()  # the lock of a process dies with it
            return await self._life.live(name, there, *args, **kwargs)

        return call


class _Hold:
    async def release(self) -> None:
        return


async def move(source: Any, target: Any, **over: Any) -> CopyResult | None:
    numbers = count(0x10_0000)
    given: dict[str, Any] = {"from_url": FROM, "to_url": TO, "grace": timedelta(0), "seal": SEAL}
    given |= {"new_id": lambda: JobId(f"00000000-0000-7000-9000-{next(numbers):012x}")}
    return await StoreCopy(source, target, **given | over).run()


async def accepts(store: Store) -> bool:
    try:
        [added] = await store.add([make_job(queue="asked")])
    except (StoreSealed, StoreMoved):
        return False
    return added.created


async def accepting(source: Store, target: Store) -> list[str]:
    """Which of the two accept work, after the next process has opened the target."""
    with suppress(AssertionError):
        await complete_transfer(target, lambda _: Unclosed(source))  # type: ignore[arg-type,return-value]
    return [name for name, each in (("source", source), ("target", target)) if await accepts(each)]


class Unclosed:
    """A store that ignores `close`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self) -> None:
        return


def make_store(kind: str, folder: Path, clock: FakeClock, urls: Iterator[str]) -> Store:
    ids = Ids(clock.now, Random(len(kind)).getrandbits)
    if kind == "model":
        return ModelStore(clock, ids)
    if kind == "keyvalue":
        return KeyValueStore(MemoryEngine(most_writes=10), clock=clock, ids=ids)
    if kind == "sqlite":
        names = (folder / f"{number}.db" for number in count())
        return SqliteStore(next(p for p in names if not p.exists()), clock=clock, ids=ids)
    return PostgresStore(next(urls), clock=DatabaseClock(clock), ids=ids)
