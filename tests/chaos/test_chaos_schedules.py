"""A frozen worker that holds the scheduler lock: another one fires its slots."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from outlast import Outlast
from outlast.core.schedule import SlotOutcome
from outlast.scheduler.loop import LEADER_LOCK
from outlast.store.open import open_store
from outlast.verify import verify

from .worker_app import register
from .worker_tree import LONG, freeze, thaw, until

pytestmark = pytest.mark.slow

SLOTS = 2


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, ledger):
    if request.param == "sqlite":
        return f"sqlite:///{ledger.path}"
    return request.getfixturevalue("postgres_url")


async def in_store(url, step):
    store = open_store(url)
    await store.open()
    try:
        return await step(store)
    finally:
        await store.close()


async def every_second(url, notes):
    async with register(Outlast(url), notes) as app:
        saved = await app.schedules.save(
            "s",
            None,
            "brief",
            every="1s",
            params={"n": 1, "seconds": 0},
            coalesce=False,
            misfire_grace="1h",
        )
        return saved.id


async def is_locked(store):
    lock = await store.acquire_lock(LEADER_LOCK)
    if lock is not None:
        await lock.release()
    return lock is None


def frozen_between_writes(tree, url):
    """Freeze the tree, but not in a transaction, which would block every other writer."""

    async def fires_nothing(store):
        """A write to the schedules must get its locks at once."""
        [schedule] = await store.schedules(limit=1)
        expected = schedule.version + 1  # refused: it only takes the locks
        await asyncio.wait_for(
            store.set_schedule(schedule.id, expected=expected, value=None), timeout=2
        )
        return True

    while True:
        freeze(tree.members())
        try:
            return asyncio.run(in_store(url, fires_nothing))
        except Exception:  # noqa: BLE001 - busy, or no answer in time
            thaw(tree.members())


def test_slots_are_fired_while_the_worker_with_the_lock_is_frozen(url, grow, notes):
    schedule = asyncio.run(every_second(url, notes))

    def slots():
        return asyncio.run(in_store(url, lambda store: store.slots(schedule, limit=1000)))

    trees = [grow(env={"CHAOS_URL": url}, **LONG) for _ in range(2)]
    for tree in trees:
        tree.ready()
    [holder] = until(lambda: [tree for tree in trees if tree.lines("scheduler lock acquired")])
    until(slots, what="a slot")

    frozen_between_writes(holder, url)
    last = max(row.slot.at for row in slots())
    until(lambda: max(row.slot.at for row in slots()) > last + SLOTS * timedelta(seconds=1))
    assert asyncio.run(in_store(url, is_locked)), "the frozen worker has lost the lock"
    holder.thaw()

    found = Counter(row.outcome for row in slots())
    assert set(found) <= {SlotOutcome.RAN, SlotOutcome.LATE}
    times = [row.slot.at for row in slots()][::-1]
    assert times == [times[0] + n * timedelta(seconds=1) for n in range(len(times))]
    assert asyncio.run(in_store(url, verify)).violations == ()
