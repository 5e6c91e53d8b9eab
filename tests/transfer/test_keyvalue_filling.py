"""A key-value store that is filled: killed between any two transactions, it is made whole."""

from random import Random

from outlast.core.ids import Ids
from outlast.store.contract.transfer import TransferStage
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.transfer_rows import FILLING, copied, everything, furnish
from outlast.testing.model.store import ModelStore
from outlast.verify import verify
from support.engines.crashing import CrashingEngine, EngineCrashed
from support.engines.memory import MemoryEngine

EVERY = 3
"""Every so many transactions: they are many, and alike."""


async def test_killed_while_it_is_filled_it_is_filled_by_the_next_one() -> None:
    clock = FakeClock()
    ids = Ids(clock.now, Random(1).getrandbits)
    source = ModelStore(clock, ids)
    await source.open()
    await furnish(source, clock)
    wanted = await everything(source)

    number, is_whole = 0, False
    while not is_whole:
        engine = MemoryEngine(most_writes=10)
        is_whole = await _fill(source, CrashingEngine(engine), clock, ids, number)
        target = KeyValueStore(engine, clock=clock, ids=ids)
        await target.open()
        if (await target.transfer_status()).stage is TransferStage.OPEN:
            await target.change_transfer_status(FILLING)
        while await copied(source, target):
            pass

        assert await everything(target) == wanted, number
        assert (await verify(target)).is_sound, number
        await target.close()
        number += EVERY
    assert number > 10 * EVERY, "it was killed often"


async def _fill(
    source: ModelStore, mortal: CrashingEngine, clock: FakeClock, ids: Ids, number: int
) -> bool:
    """Whether it lived to the end."""
    store = KeyValueStore(mortal, clock=clock, ids=ids)
    await store.open()
    mortal.armed(number)
    try:
        await store.change_transfer_status(FILLING)
        await copied(source, store)
    except EngineCrashed:
        return False
    return True
