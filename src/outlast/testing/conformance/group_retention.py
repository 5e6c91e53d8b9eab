"""Members stay until their group is over; pruning then removes both."""

from outlast.core.event import Failed
from outlast.core.group import GroupState, NewGroup
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SUCCEEDED,
    group_of,
    make_job,
    new_id,
    put_group,
    settle,
    sweep,
    take,
    take_many,
)
from outlast.testing.conformance.groups import SEQUENTIAL


async def test_members_stay_until_their_group_is_over(store: Store, clock: FakeClock) -> None:
    group_id, members = await put_group(store, make_job(), make_job())
    first, second = await take_many(store, lease=10 * HOUR)
    await settle(store, first, SUCCEEDED)
    clock.advance(2 * HOUR)

    assert await store.prune(older_than=HOUR, limit=MANY) == 0
    await settle(store, second, SUCCEEDED)
    assert await store.prune(older_than=HOUR, limit=1) == 1
    half = await group_of(store, group_id)
    assert (half.counts, half.done, half.progress) == ({State.SUCCEEDED: 1}, 2, 1.0)
    clock.advance(2 * HOUR)
    assert await store.prune(older_than=HOUR, limit=MANY) == 1
    assert await store.group(group_id) is None
    assert await store.get(members) == [None, None]


async def test_waiting_member_keeps_its_group_too(store: Store, clock: FakeClock) -> None:
    group_id, _ = await put_group(store, mode=SEQUENTIAL)
    await settle(store, await take(store), SUCCEEDED)
    clock.advance(2 * HOUR)

    assert await store.prune(older_than=HOUR, limit=MANY) == 0
    assert (await group_of(store, group_id)).done == 1


async def test_dead_letter_keeps_the_record_of_its_group(store: Store, clock: FakeClock) -> None:
    group_id, _ = await put_group(store, make_job(), make_job())
    first, second = await take_many(store)
    await settle(store, first, SUCCEEDED)
    await settle(store, second, Failed("broke", permanent=True))
    clock.advance(2 * HOUR)

    assert await store.prune(older_than=HOUR, limit=MANY) == 1
    group = await group_of(store, group_id)
    assert (group.state, group.done) == (GroupState.FAILED, 2)


async def test_group_that_never_had_a_member_goes_too(store: Store, clock: FakeClock) -> None:
    group_id = new_id()
    await store.add_group(NewGroup(id=group_id, total=1))
    clock.advance(2 * HOUR)
    await store.expire_groups(older_than=HOUR, limit=MANY)

    await store.prune(older_than=HOUR, limit=MANY)
    unswept = await store.group(group_id)
    await sweep(store)
    await store.prune(older_than=HOUR, limit=MANY)

    assert unswept is not None
    assert await store.group(group_id) is None


async def test_named_members_stay_until_their_group_is_over(store: Store, clock: FakeClock) -> None:
    group, members = await put_group(store)
    for _ in members[1:]:
        await settle(store, await take(store), SUCCEEDED)
    clock.advance(2 * HOUR)
    found = await store.ended_jobs(older_than=HOUR, after=None, limit=MANY)

    assert await store.prune_jobs(found, older_than=HOUR) == 0
    await settle(store, await take(store), SUCCEEDED)
    assert await store.prune_jobs(found, older_than=HOUR) == len(members) - 1
    assert await store.group(group) is not None, "its last member is stored"
