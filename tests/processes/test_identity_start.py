"""A worker that cannot take its whole identity takes none of it."""

import pytest

from outlast.errors import StoreUnavailable
from outlast.worker.supervisor.identity import identify
from outlast.worker.supervisor.options import WorkerOptions

OPTIONS = WorkerOptions(app="none:app", instance_id="one", topology="single")


class Lock:
    is_lost = False

    def __init__(self, held: set[str], name: str) -> None:
        self._held, self._name = held, name
        held.add(name)

    async def release(self) -> None:
        self._held.discard(self._name)


class Locks:
    """Exclusive locks; the server does not answer the request for a shared one, once."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.is_away = True

    async def acquire_lock(self, name, *, shared=False, lasting=False):
        if shared and self.is_away:
            self.is_away = False
            raise StoreUnavailable("the server does not answer")
        return None if name in self.held else Lock(self.held, name)

    async def free_locks(self, names):
        return frozenset(names) - self.held


async def test_a_start_cut_off_between_two_locks_can_be_repeated():
    store = Locks()
    with pytest.raises(StoreUnavailable):
        await identify(store, OPTIONS, "boot-1")
    assert store.held == set()

    identity = await identify(store, OPTIONS, "boot-1")

    assert identity.holder.instance_id == "one"
    assert len(identity.locks) == 3
