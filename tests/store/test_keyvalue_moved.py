"""A job that moves while it is read is found: it is gone only if its pointer leads nowhere."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from outlast.core.event import Failed
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, StoredItem, Write
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import job_of, put, settle, started
from support.engines.memory import MemoryEngine

MINUTE = timedelta(minutes=1)


class Torn(MemoryEngine):
    """Batches are no snapshots: `between` happens after the records were read, before the rest."""

    between = None

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        act, self.between = self.between, None
        if act is None or not any(key.part == key_layout.JOB for key in keys):
            self.between = act
            return await super().get(keys)
        early = {key: (await super(Torn, self).get([key]))[0] for key in keys if key.part == "job"}
        await act()
        late = await super().get(keys)
        return [early.get(key, entry) for key, entry in zip(keys, late, strict=True)]


@pytest.fixture
async def engine() -> Torn:
    return Torn(most_writes=10)


@pytest.fixture
async def store(engine: Torn) -> KeyValueStore:
    keyvalue = KeyValueStore(engine, clock=FakeClock())
    await keyvalue.open()
    return keyvalue


async def test_job_that_moves_between_two_reads_of_a_batch_is_found(
    store: KeyValueStore, engine: Torn
) -> None:
    claim = await started(store)
    moved = (await job_of(store, claim.id)).available_at + MINUTE
    seen = store._context.units._seen
    seen.note(claim.id, f"scheduled#{key_layout.time_key(moved)}#{claim.id}")  # as a move does

    async def move() -> None:
        assert await settle(store, claim, Failed("it broke", delay=MINUTE))

    engine.between = move

    assert (await job_of(store, claim.id)).available_at == moved


async def test_job_whose_record_was_deleted_by_hand_is_none(
    store: KeyValueStore, engine: Torn
) -> None:
    job_id = await put(store)
    key = key_layout.job_key(await job_of(store, job_id))
    await engine.transact({}, [Write(key, None)])

    assert await store.get([job_id]) == [None]
