"""Killed between any two transactions of any verb, a key-value store is made whole again.

Where an item takes one transaction it is written or not. Where it takes several, whoever comes next
finishes it: no third state is left when the store has been opened again.
"""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from outlast.core.decide import decide, succeed
from outlast.core.event import Lost, Unblocked
from outlast.core.run import LeaseHolder
from outlast.core.state import FINAL, Loss, State
from outlast.store.contract.jobs import Filter
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Engine, Key
from outlast.store.keyvalue.operations import positions
from outlast.store.keyvalue.repositories import bodies
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.conformance.sizes import SIZES
from outlast.verify import verify
from outlast.worker.maintenance.history_inspector import HistoryInspector
from outlast.worker.maintenance.recovery import Recovery
from support.corruption.keyvalue import KeyValueCorruption
from support.crash.runner import ACT_IDS, clocked
from support.crash.scenarios import SCENARIOS
from support.crash.scenarios_groups import GROUP_SCENARIOS
from support.crash.scenarios_positions import PLACES
from support.crash.scenarios_recovery import broken_scenarios
from support.crash.scenarios_schedules import SCHEDULES
from support.crash.world import HOLDER, LEASE, TYPES, World
from support.engines.crashing import CrashingEngine, EngineCrashed
from support.engines.memory import MemoryEngine

pytestmark = pytest.mark.slow

NEWCOMER = LeaseHolder(instance_id="newcomer", boot_id="boot-9")
VOLATILE = ("counter", key_layout.QUEUE_NAME, positions.PAGES)
"""Numbers that were drawn and not used, names on a list, and plans that were never decided."""


def _engine_of(world: World) -> Engine:
    assert isinstance(world.store, KeyValueStore)
    return world.store.engine


SCENES = (
    SCENARIOS
    | PLACES
    | GROUP_SCENARIOS
    | SCHEDULES
    | broken_scenarios(lambda world: KeyValueCorruption(_engine_of(world)))
)
SOUND = (SCENARIOS | PLACES | GROUP_SCENARIOS | SCHEDULES).keys() - {
    "unblock",
    "edit_blocked",
    "move_blocked",
}
"""Worlds that nobody has broken; in those left out a job is blocked without a group."""

SEVERAL = {
    "add_plain",
    "add_refused_among_good",
    "add_with_everything",
    "apply_mixed",
    "claim_and_count",
    "claim_large",
    "claim_some",
    "group_close_by_several",
    "group_member_too_late",
    "group_members",
    "group_members_succeed",
    "group_prune",
    "group_sweep",
    "group_sweep_members",
    "report",
    "schedule_fire",
    "schedule_fire_together",
}
"""Acts on several items, each of which is written or not."""

WITH_TEXTS = (
    "add_with_everything",
    "apply_mixed",
    "claim_some",
    "continue_chain",
    "edit_everything",
    "fail_linked",
    "fail_retry",
    "group_members",
    "group_next_link",
    "group_prune",
    "lose_linked",
    "move_tight",
    "prune",
    "remove_orphans",
    "resume_without_run_chained",
    "schedule_fire",
    "succeed",
)
"""Acts that write or delete params, results and errors."""


async def _play(engine: MemoryEngine, name: str, dies_at: int | None, *, act: bool = True) -> int:
    """Play a scene until its process dies; how many transactions its act sent."""
    clock, ids = clocked()
    mortal = CrashingEngine(engine)
    store = KeyValueStore(mortal, clock=clock, ids=ids)
    scene = SCENES[name]
    await store.open()
    needs = await scene.prepare(World(store, Path(), clock, count(1)))
    mortal.armed(dies_at)
    if act:
        try:
            await scene.act(World(store, Path(), clock, count(ACT_IDS)), needs)
        except EngineCrashed:
            assert dies_at is not None
    store._locks.stop()  # its threads died, too
    return mortal.sent


async def _opened(engine: MemoryEngine) -> KeyValueStore:
    clock, ids = clocked()
    store = KeyValueStore(engine, clock=clock, ids=ids)
    await store.open()
    return store


async def _dump(engine: MemoryEngine) -> dict[Key, dict[str, Any]]:
    """What is there when somebody has opened the store again."""
    store = await _opened(engine)
    await store.close()
    held = engine.everything()
    return {
        key: {name: value for name, value in held[key].items() if name != "pending"}
        for key in held
        if key.part not in VOLATILE
    }


@pytest.mark.parametrize("most_writes", [10, 128])
@pytest.mark.parametrize("name", sorted(SCENES))
async def test_killed_between_any_two_transactions_it_is_made_whole(
    name: str, most_writes: int
) -> None:
    await _killed_anywhere(name, most_writes)


@pytest.mark.parametrize("name", sorted(SCENES if SIZES.crash_on_either_side else WITH_TEXTS))
async def test_killed_between_any_two_transactions_it_has_every_long_text(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MAX_INLINE", -1)

    await _killed_anywhere(name, 10)


async def _killed_anywhere(name: str, most_writes: int) -> None:
    before, after = MemoryEngine(most_writes=most_writes), MemoryEngine(most_writes=most_writes)
    await _play(before, name, None, act=False)
    steps = await _play(after, name, None)
    ends = [await _dump(before), await _dump(after)]

    for number in range(steps + 1):
        engine = MemoryEngine(most_writes=most_writes)
        await _play(engine, name, number)

        left = await _dump(engine)
        assert name in SEVERAL or left in ends, f"died before {number} of {steps}"
        assert not [key for key in left if key.part == key_layout.PENDING]
        await _everything_ends(engine, sound=name in SOUND)


async def _everything_ends(engine: MemoryEngine, *, sound: bool) -> None:
    """Nothing acknowledged is lost and nothing is stuck: a fresh worker brings all to an end."""
    clock, ids = clocked()
    store = KeyValueStore(engine, clock=clock, ids=ids)
    await store.open()
    assert not sound or (await verify(store)).violations == ()
    known = {job.id for job in await store.find(Filter(), limit=1000)}
    await HistoryInspector(store, ids.job).inspect()
    await Recovery(store, NEWCOMER, scope="instance", new_id=ids.job).run_once()
    for _ in range(10):
        clock.advance("1d")
        for job in await store.expired_leases(limit=100):
            await store.apply([decide(job, Lost(Loss.LEASE_EXPIRED), new_id=ids.job)])
        for job in await store.find(Filter(states=frozenset({State.BLOCKED})), limit=100):
            await store.apply([decide(job, Unblocked(), new_id=ids.job)])
        claims = await store.claim(HOLDER, queue="default", types=TYPES, limit=100, lease=LEASE)
        changes = [succeed(claim.job_id, claim.token, None) for claim in claims]
        assert all(await store.apply(changes))
    found = await store.find(Filter(), limit=1000)
    assert (await verify(store)).violations == ()
    assert known <= {job.id for job in found}
    stuck = [job for job in found if job.state not in FINAL and job.start_deadline is None]
    assert stuck == []
    await store.close()
