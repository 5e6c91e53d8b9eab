"""Numbers of events: one counter for each shard, and an order that followers can rely on.

An event of a shard gets the number `step * shards + shard`. Its step is above that of every event
which its unit of work can see, in any shard, and only the shard's own counter is compared: units
of two shards do not conflict. Before a follower reads, `settle` raises the counters that lag, so
that no event with a lower number becomes visible later.
"""

import asyncio

from outlast.store.keyvalue import key_layout, shards
from outlast.store.keyvalue.engine import LAST, Engine, Key, StoredItem, Write
from outlast.store.keyvalue.unit_of_work import UnitOfWork


async def take(unit: UnitOfWork, job_id: str | None) -> int:
    """Return the number of the next event of a job, or of no job.

    Of two units that take one number only one commits.
    """
    counters = _counters(unit.engine)
    await unit.fetch(counters)
    last = [value[LAST] if (value := await unit.get(key)) else 0 for key in counters]
    own = shards.of_text(job_id or key_layout.NO_JOB, len(counters))
    unit.put(counters[own], {LAST: max(last) + 1})
    return (max(last) + 1) * len(counters) + own


async def settle(engine: Engine) -> int | None:
    """Return the number up to which every event is visible now; None if all that is visible is.

    The step of the highest counter becomes that of all. A unit of work that was about to take a
    lower one then conflicts, and takes a higher one.
    """
    counters = _counters(engine)
    if len(counters) == 1:
        return None
    found = await engine.get(counters)
    top = max(map(_last, found))
    while any(_last(item) < top for item in found):
        pairs = zip(counters, found, strict=True)
        behind = [(key, item) for key, item in pairs if _last(item) < top]
        await asyncio.gather(*(_raise(engine, key, item, top) for key, item in behind))
        found = await engine.get(counters)
    return (top + 1) * len(counters) - 1


async def highest(engine: Engine) -> int:
    """Return a number that no event exceeds."""
    counters = _counters(engine)
    top = max(map(_last, await engine.get(counters)))
    return (top + 1) * len(counters) - 1 if top else 0


async def raise_to(unit: UnitOfWork, number: int) -> None:
    """Let all later events have numbers above this one."""
    counters = _counters(unit.engine)
    for counter in counters:
        value = await unit.get(counter)
        if number // len(counters) > (value[LAST] if value else 0):
            unit.put(counter, {LAST: number // len(counters)})


def _counters(engine: Engine) -> list[Key]:
    count = engine.limits.shards
    if count == 1:
        return [key_layout.EVENTS]
    return [Key(key_layout.EVENT_COUNTER, key_layout.number(shard)) for shard in range(count)]


def _last(item: StoredItem | None) -> int:
    return 0 if item is None else int(item.value[LAST])


async def _raise(engine: Engine, counter: Key, item: StoredItem | None, step: int) -> None:
    version = None if item is None else item.version
    await engine.transact({counter: version}, [Write(counter, {LAST: step})])
