"""Groups are stored, filled, sealed, counted and listed."""

from dataclasses import replace

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Failed
from outlast.core.group import GroupMode, GroupState, NewGroup, OnMemberFailure
from outlast.core.job import DedupeKey
from outlast.core.state import State
from outlast.errors import InvalidGroup
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    MANY,
    SECOND,
    SUCCEEDED,
    claim_order,
    group_of,
    job_of,
    make_job,
    new_id,
    put,
    put_group,
    settle,
    take,
    take_many,
)

SEQUENTIAL = GroupMode.SEQUENTIAL
MISSING = "00000000-0000-7000-8000-ffffffffffff"


async def test_group_is_kept_as_it_was_given(store: Store) -> None:
    group_id = new_id()
    mode, on_failure = GroupMode.SEQUENTIAL, OnMemberFailure.SKIP

    added = await store.add_group(
        NewGroup(id=group_id, total=7, mode=mode, on_failure=on_failure, name="nightly")
    )

    assert added
    group = await group_of(store, group_id)
    assert (group.id, group.name, group.mode, group.on_failure, group.total) == (
        group_id,
        "nightly",
        mode,
        on_failure,
        7,
    )
    assert (group.created_at, group.sealed_at, group.closing, group.reason) == (
        START,
        None,
        None,
        None,
    )
    assert (group.state, group.counts, group.done) == (GroupState.FILLING, {}, 0)


async def test_group_added_twice_stays_as_it_was(store: Store) -> None:
    group_id, _ = await put_group(store)

    again = await store.add_group(NewGroup(id=group_id, total=9, name="other"))

    assert not again
    assert (await group_of(store, group_id)).total == 3


@pytest.mark.parametrize(
    "over", [{"id": "short"}, {"total": 0}, {"total": 1_000_001}, {"name": ""}, {"name": "x" * 513}]
)
async def test_group_that_cannot_be_kept_is_refused(store: Store, over: dict[str, object]) -> None:
    plain: dict[str, object] = {"id": new_id(), "total": 1}

    with pytest.raises(InvalidGroup):
        await store.add_group(NewGroup(**{**plain, **over}))  # type: ignore[arg-type]

    assert await store.find_groups(limit=MANY) == []


async def test_members_are_blocked_until_the_group_is_sealed(store: Store) -> None:
    group_id, members = await put_group(store, is_sealed=False)

    before = await take_many(store)
    sealed = await store.seal_group(group_id)

    assert before == []
    assert sealed
    assert await claim_order(store) == members


async def test_sealed_members_wait_for_their_own_time(store: Store, clock: FakeClock) -> None:
    _, [late, now] = await put_group(store, make_job(delay=HOUR), make_job())

    assert await claim_order(store) == [now]
    clock.advance(HOUR)
    assert await claim_order(store) == [late]


async def test_group_is_not_sealed_before_all_its_members_are_there(store: Store) -> None:
    group_id, _ = await put_group(store, is_sealed=False, total=4)

    assert not await store.seal_group(group_id)
    assert (await group_of(store, group_id)).state is GroupState.FILLING
    assert await take_many(store) == []
    await put(store, group_id=group_id, member=True)
    assert await store.seal_group(group_id)
    assert len(await take_many(store)) == 4


async def test_group_with_too_many_members_is_not_sealed(store: Store) -> None:
    group_id, _ = await put_group(store, is_sealed=False, total=2)

    assert not await store.seal_group(group_id)


async def test_sealing_twice_is_harmless(store: Store, clock: FakeClock) -> None:
    group_id, _ = await put_group(store, mode=SEQUENTIAL)
    clock.advance(SECOND)

    assert await store.seal_group(group_id)
    assert (await group_of(store, group_id)).sealed_at == START
    assert len(await take_many(store)) == 1


async def test_unknown_group_is_nothing(store: Store) -> None:
    assert not await store.seal_group(MISSING)
    assert not await store.stop_group(MISSING, reason=None)
    assert await store.group(MISSING) is None
    assert await store.groups_finished([MISSING]) == [None]
    assert await store.remaining_members(MISSING, limit=MANY) == []
    assert await store.find(Filter(group=MISSING), limit=MANY) == []


async def test_member_of_no_group_is_refused_and_takes_no_key(store: Store) -> None:
    lost = make_job(group_id=MISSING, member=True, key=DedupeKey(key="k"))
    bare = make_job(member=True)

    answers = await store.add([lost, bare, make_job(key=DedupeKey(key="k"))])

    assert [a.refused is None for a in answers] == [False, False, True]
    assert answers[2].created
    assert await store.get([lost.id, bare.id]) == [None, None]


async def test_refused_members_sink_no_neighbour(store: Store) -> None:
    sealed, _ = await put_group(store)
    filling, _ = await put_group(store, is_sealed=False)
    batch = [make_job(group_id=g, member=True) for g in (sealed, filling, sealed, filling)]

    answers = await store.add([*batch, make_job()])

    assert [answer.created for answer in answers] == [False, True, False, True, True]
    assert (await group_of(store, sealed)).counts == {State.SCHEDULED: 3}


async def test_closing_group_takes_no_member(store: Store) -> None:
    group_id, _ = await put_group(store, is_sealed=False)
    await store.stop_group(group_id, reason=None)

    [answer] = await store.add([make_job(group_id=group_id, member=True)])

    assert answer.refused is not None
    assert not await store.seal_group(group_id)


async def test_repeated_member_is_answered_even_when_the_group_is_sealed(store: Store) -> None:
    group_id, _ = await put_group(store, is_sealed=False, total=4)
    again = make_job(group_id=group_id, member=True)
    await store.add([again])
    await store.seal_group(group_id)

    [answer] = await store.add([again])

    assert (answer.id, answer.created, answer.refused) == (again.id, False, None)


async def test_retry_is_no_new_member(store: Store) -> None:
    group_id, _ = await put_group(store, is_sealed=False)
    dead = await put(store)
    await settle(store, await take(store), Failed("broke", permanent=True))

    [answer] = await store.add([make_job(group_id=group_id, member=True, retry_of=dead)])

    assert answer.refused is not None


async def test_bare_group_id_makes_no_member(store: Store) -> None:
    group_id, members = await put_group(store, is_sealed=False)
    bare = await put(store, group_id=group_id)

    assert await claim_order(store) == [bare]
    assert [j.id for j in await store.find(Filter(group=group_id), limit=9)] == members[::-1]
    assert (await group_of(store, group_id)).counts == {State.BLOCKED: 3}


async def test_counts_have_each_member_once_by_the_last_of_its_chain(store: Store) -> None:
    chain = make_job(delivery=Delivery.LINKED)
    group_id, _ = await put_group(store, chain, make_job(), make_job())
    first, second, _ = await take_many(store)
    await settle(store, first, FAILED)
    await settle(store, second, SUCCEEDED)

    group = await group_of(store, group_id)

    assert group.counts == {State.QUEUED: 1, State.SUCCEEDED: 1, State.RUNNING: 1}
    assert (group.state, group.done) == (GroupState.RUNNING, 1)
    assert group.progress == pytest.approx(1 / 3)
    assert len(await store.find(Filter(group=group_id), limit=MANY)) == 4


async def test_retry_by_hand_leaves_the_group_as_it_is(store: Store) -> None:
    group_id, [only] = await put_group(store, make_job())
    await settle(store, await take(store), Failed("broke", permanent=True))

    retry = await put(store, retry_of=only)
    await settle(store, await take(store), SUCCEEDED)

    assert (await job_of(store, retry)).state is State.SUCCEEDED
    assert (await group_of(store, group_id)).counts == {State.DEAD_LETTER: 1}


async def test_group_is_over_when_its_last_member_has_ended(store: Store) -> None:
    group_id, _ = await put_group(store, make_job(), make_job())
    other, _ = await put_group(store, is_sealed=False)
    first, second = await take_many(store)

    await settle(store, first, SUCCEEDED)
    one_left = await store.groups_finished([group_id, MISSING, other])
    await settle(store, second, SUCCEEDED)

    assert one_left == [False, None, False]
    assert await store.groups_finished([other, group_id]) == [False, True]
    assert (await group_of(store, group_id)).state is GroupState.SUCCEEDED


async def test_groups_are_listed_newest_first_by_page(store: Store) -> None:
    groups = [(await put_group(store, make_job()))[0] for _ in range(3)]

    page = await store.find_groups(limit=2)
    rest = await store.find_groups(limit=2, before=page[-1].seq)

    assert [group.id for group in (*page, *rest)] == groups[::-1]
    assert page[0].counts == {State.SCHEDULED: 1}


async def test_members_are_found_by_page_and_by_state(store: Store) -> None:
    group_id, members = await put_group(store)
    await put_group(store)
    await put(store, queue="lane")
    done = await take(store)
    await settle(store, done, SUCCEEDED)

    page = await store.find(Filter(group=group_id), limit=2)
    rest = await store.find(Filter(group=group_id), limit=9, before=page[-1].seq)
    ended = await store.find(Filter(group=group_id, states=frozenset({State.SUCCEEDED})), limit=9)

    assert [job.id for job in (*page, *rest)] == members[::-1]
    assert [job.id for job in ended] == [done.id]


async def test_members_take_their_place_in_a_queue_like_others(store: Store) -> None:
    before = await put(store)
    _, [low, high] = await put_group(store, make_job(), make_job(priority=5))

    assert await claim_order(store) == [high, before, low]


async def test_cancelling_a_member_before_the_seal_does_not_start_another(store: Store) -> None:
    jobs = [replace(make_job(), name=f"n{n}") for n in range(3)]
    group_id, [first, second, _] = await put_group(
        store, *jobs, is_sealed=False, mode=SEQUENTIAL, on_failure=OnMemberFailure.CONTINUE
    )
    await settle(store, await job_of(store, first), CancelRequested())

    early = await take_many(store)
    await store.seal_group(group_id)

    assert early == []
    assert await claim_order(store) == [second]
