"""Copying is the way to another number of shards: everything arrives, and events go on."""

import pytest

from outlast.core.event import CancelRequested
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import MANY, job_of, put, settle
from outlast.testing.conformance.transfer_rows import everything, furnish
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.memory import MemoryEngine

from .store_pairs import move


@pytest.mark.parametrize(("old", "new"), [(1, 8), (8, 1), (8, 3)])
async def test_everything_arrives_in_a_store_with_another_number_of_shards(
    old: int, new: int
) -> None:
    clock = FakeClock()
    source, target = [
        KeyValueStore(MemoryEngine(), clock=clock, ids=ids_for_test(clock), shards=shards)
        for shards in (old, new)
    ]
    await source.open()
    await target.open()
    await furnish(source, clock)
    before = await everything(source)

    assert await move(source, target) is not None

    assert await everything(target) == before
    assert (await verify(target)).is_sound
    last = (await target.stream(limit=MANY))[-1]
    job_id = await put(target, queue="fresh")
    await settle(target, await job_of(target, job_id), CancelRequested("no"))
    [event] = await target.stream(after=last.id, limit=MANY)
    assert event.job_id == job_id
