"""Groups are stored, filled, sealed, counted, stopped and pruned."""

from dataclasses import replace

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Failed
from outlast.core.group import (
    ClosePolicy,
    ClosingGroup,
    GroupMode,
    GroupState,
    NewGroup,
    OnMemberFailure,
)
from outlast.core.job import DedupeKey
from outlast.core.limits import MAX_REASON
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
    TICK,
    claim_order,
    group_of,
    job_of,
    make_job,
    new_id,
    put,
    put_group,
    settle,
    sweep,
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
