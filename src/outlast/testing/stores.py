"""Store factory for one test, and its deterministic ids."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from outlast.clock import Clock
from outlast.core.ids import Ids
from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.testing.loops import in_own_loop
from outlast.testing.model.store import ModelStore


def ids_for_test(clock: Clock, seed: int = 1) -> Ids:
    """Return an id generator that yields the same ids in every run of a test."""
    return Ids(clock.now, Random(seed).getrandbits)


@contextmanager
def store_for_test(kind: str, folder: Path, clock: Clock) -> Iterator[Store]:
    """Return a store: `sqlite` is a file in the folder, `model` in memory without transactions."""
    ids = ids_for_test(clock, seed=2)
    store: Store = ModelStore(clock, ids)
    if kind == "sqlite":
        store = open_store(f"sqlite:///{folder}/jobs.db", clock=clock, ids=ids)
    try:
        yield store
    finally:
        in_own_loop(store.close())
