"""Groups are stopped, swept and expired."""

from outlast.core.group import ClosePolicy, ClosingGroup, GroupState
from outlast.core.limits import MAX_REASON
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    MANY,
    SUCCEEDED,
    TICK,
    group_of,
    job_of,
    make_job,
    put_group,
    settle,
    sweep,
    take,
)


async def test_stopped_group_gives_out_who_is_left(store: Store) -> None:
    group_id, [_, second, third] = await put_group(store)
    first = await take(store)

    stopped = await store.stop_group(group_id, reason="enough")

    assert stopped
    group = await group_of(store, group_id)
    assert (group.closing, group.reason) == (ClosePolicy.STOP, "enough")
    assert await store.closing_groups(limit=MANY) == [ClosingGroup(group_id, ClosePolicy.STOP)]
    left = await store.remaining_members(group_id, limit=MANY)
    assert [job.id for job in left] == [first.id, second, third]
    page = await store.remaining_members(group_id, after=left[0].seq, limit=1)
    assert [job.id for job in page] == [second]


async def test_swept_group_has_cancelled_who_waited_and_asked_who_ran(store: Store) -> None:
    group_id, [_, second, third] = await put_group(store)
    first = await take(store)
    await store.stop_group(group_id, reason="enough")

    swept = await sweep(store)

    assert swept == 3
    assert (await job_of(store, first.id)).cancel_requested
    for job_id in (second, third):
        job = await job_of(store, job_id)
        assert (job.state, job.reason) == (State.CANCELLED, "group_stopped")
    assert await store.remaining_members(group_id, limit=MANY) == []
    assert await store.closing_groups(limit=MANY) != []  # one still runs
    await settle(store, first, FAILED)
    assert await sweep(store) == 0
    assert await store.closing_groups(limit=MANY) == []
    assert (await group_of(store, group_id)).counts == {State.CANCELLED: 3}
    assert (await group_of(store, group_id)).state is GroupState.CANCELLED


async def test_skipping_leaves_alone_who_runs(store: Store) -> None:
    group_id, [_, second, _] = await put_group(store)
    first = await take(store)

    await store.stop_group(group_id, reason=None, skip=True)
    await sweep(store)

    assert not (await job_of(store, first.id)).cancel_requested
    assert (await job_of(store, second)).reason == "group_skipped"
    await settle(store, first, SUCCEEDED)
    assert (await group_of(store, group_id)).counts == {State.SUCCEEDED: 1, State.SKIPPED: 2}


async def test_group_is_stopped_once(store: Store) -> None:
    group_id, _ = await put_group(store)

    first = await store.stop_group(group_id, reason="first")
    second = await store.stop_group(group_id, reason="second", skip=True)

    assert (first, second) == (True, False)
    group = await group_of(store, group_id)
    assert (group.closing, group.reason) == (ClosePolicy.STOP, "first")


async def test_group_that_is_over_is_not_stopped(store: Store) -> None:
    group_id, _ = await put_group(store, make_job())
    await settle(store, await take(store), SUCCEEDED)

    assert not await store.stop_group(group_id, reason="too late")
    assert (await group_of(store, group_id)).state is GroupState.SUCCEEDED


async def test_reason_of_a_stop_is_cut(store: Store) -> None:
    group_id, _ = await put_group(store)

    await store.stop_group(group_id, reason="x" * 5000)

    assert len((await group_of(store, group_id)).reason or "") <= MAX_REASON


async def test_only_groups_that_nobody_completed_expire(store: Store, clock: FakeClock) -> None:
    sealed, _ = await put_group(store)
    old, _ = await put_group(store, is_sealed=False)
    clock.advance(HOUR + TICK)
    young, _ = await put_group(store, is_sealed=False)

    expired = await store.expire_groups(older_than=HOUR, limit=MANY)

    assert expired == 1
    assert await store.closing_groups(limit=MANY) == [ClosingGroup(old, ClosePolicy.STOP)]
    assert (await group_of(store, old)).reason == "never_completed"
    assert [(await group_of(store, g)).closing for g in (sealed, young)] == [None, None]
    assert await store.expire_groups(older_than=HOUR, limit=MANY) == 0
