"""The write that ends a member applies `core.group.action_after_member` to its group."""

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Final

import pytest

from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.event import (
    CancelRequested,
    Event,
    EventKind,
    Failed,
    GivenUp,
    Lost,
    Misfired,
    Skipped,
    Stopped,
    Unblocked,
)
from outlast.core.group import (
    ClosePolicy,
    GroupAction,
    GroupMode,
    OnMemberFailure,
    action_after_member,
)
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.state import Loss, State
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LOST,
    SECOND,
    SUCCEEDED,
    claim_order,
    group_of,
    job_of,
    kinds,
    make_job,
    new_id,
    put_group,
    settle,
    sweep,
    take,
    take_many,
)

SEQUENTIAL = GroupMode.SEQUENTIAL
CONTINUE, STOP, SKIP = OnMemberFailure.CONTINUE, OnMemberFailure.STOP, OnMemberFailure.SKIP

Ending = Callable[[Store, FakeClock], Awaitable[JobId]]
"""Brings the first member to its end, and says which job that was."""


def _by(event: Event) -> Ending:
    async def end(store: Store, _: FakeClock) -> JobId:
        claim = await take(store)
        assert await settle(store, claim, event)
        return claim.id

    return end


async def _yields(store: Store, _: FakeClock) -> JobId:
    """Asked to stop, it fails: the retry gives way to the request."""
    claim = await take(store)
    await settle(store, claim, CancelRequested())
    assert await settle(store, claim, FAILED)
    return claim.id


async def _misfires(store: Store, clock: FakeClock) -> JobId:
    await store.promote_due(limit=10)
    clock.advance(HOUR)
    [late] = await store.missed_start_deadline(limit=1)
    assert await settle(store, late, Misfired())
    return late.id


async def _cancelled_in_its_queue(store: Store, _: FakeClock) -> JobId:
    await store.promote_due(limit=10)
    [first, *_rest] = await store.peek("default", limit=1)
    assert await settle(store, first, CancelRequested())
    return first.id


async def _given_up(store: Store, _: FakeClock) -> JobId:
    claim = await take(store)
    await settle(store, claim, Failed("broke", HOUR))
    assert await settle(store, await job_of(store, claim.id), GivenUp("hopeless"))
    return claim.id


async def _chain_ends(store: Store, _: FakeClock) -> JobId:
    """Its first link fails, which is no end; the second one is."""
    await settle(store, await take(store), FAILED)
    claim = await take(store)
    assert await settle(store, claim, Failed("broke", permanent=True))
    return claim.id


PLAIN: Final[dict[str, object]] = {"max_attempts": 1}
ENDS: Final[dict[str, tuple[Ending, dict[str, object], State]]] = {
    "succeeded": (_by(SUCCEEDED), PLAIN, State.SUCCEEDED),
    "skipped": (_by(Skipped()), PLAIN, State.SKIPPED),
    "stopped": (_by(Stopped()), PLAIN, State.CANCELLED),
    "dead": (_by(FAILED), PLAIN, State.DEAD_LETTER),
    "permanent": (_by(Failed("no", permanent=True)), {}, State.DEAD_LETTER),
    "lost for good": (_by(LOST), PLAIN, State.DEAD_LETTER),
    "once failed": (_by(FAILED), {"delivery": Delivery.ONCE}, State.FAILED),
    "once lost": (_by(Lost(Loss.TIMEOUT)), {"delivery": Delivery.ONCE}, State.FAILED),
    "cancel yields": (_yields, {}, State.CANCELLED),
    "misfire": (_misfires, {"start_within": SECOND}, State.SKIPPED),
    "cancelled in its queue": (_cancelled_in_its_queue, {}, State.CANCELLED),
    "given up": (_given_up, {}, State.DEAD_LETTER),
    "end of a chain": (_chain_ends, {"delivery": Delivery.LINKED}, State.DEAD_LETTER),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(("mode", "on_failure"), [*product(GroupMode, OnMemberFailure)])
async def test_end_of_a_member_moves_its_group_as_core_says(
    store: Store, clock: FakeClock, mode: GroupMode, on_failure: OnMemberFailure, how: str
) -> None:
    ending, over, end = ENDS[how]
    first = make_job(priority=5, name="first", **over)
    group_id, [_, *rest] = await put_group(
        store, first, make_job(), make_job(), mode=mode, on_failure=on_failure
    )

    ended = await ending(store, clock)

    assert (await job_of(store, ended)).state is end
    step = action_after_member(mode, on_failure, end)
    closing = (await group_of(store, group_id)).closing
    assert closing == (ClosePolicy(step) if step in (GroupAction.STOP, GroupAction.SKIP) else None)
    told = [event for event in await store.events(ended) if event.kind is EventKind.GROUP_STOPPED]
    assert [(event.reason, event.detail) for event in told] == (
        [(str(step), group_id)] if closing else []
    )
    blocked = {State.BLOCKED} if mode is SEQUENTIAL else {State.SCHEDULED, State.QUEUED}
    second, third = [await job_of(store, job_id) for job_id in rest]
    assert second.state is State.SCHEDULED if step is GroupAction.NEXT else second.state in blocked
    assert third.state in blocked


async def test_retry_in_place_is_no_end(store: Store) -> None:
    group_id, _ = await put_group(store, mode=SEQUENTIAL, on_failure=STOP)

    await settle(store, await take(store), Failed("broke", HOUR))

    assert await take_many(store) == []
    assert (await group_of(store, group_id)).closing is None


async def test_link_in_the_middle_of_a_chain_is_no_end(store: Store) -> None:
    chain = make_job(delivery=Delivery.LINKED)
    group_id, [_, second] = await put_group(
        store, chain, make_job(), mode=SEQUENTIAL, on_failure=STOP
    )

    await settle(store, await take(store), FAILED)
    link = await take(store)

    assert link.id not in (chain.id, second)
    assert (await group_of(store, group_id)).closing is None
    await settle(store, link, SUCCEEDED)
    assert await claim_order(store) == [second]


async def test_buried_link_that_is_followed_is_no_end(store: Store) -> None:
    chain = make_job(delivery=Delivery.LINKED)
    group_id, _ = await put_group(store, chain, make_job(), mode=SEQUENTIAL, on_failure=STOP)
    await settle(store, await take(store), FAILED)

    assert await settle(store, await job_of(store, chain.id), GivenUp("hopeless"))

    assert (await group_of(store, group_id)).closing is None


async def test_sequential_members_run_one_by_one_in_order(store: Store) -> None:
    jobs = [make_job(priority=n) for n in range(4)]
    _, members = await put_group(store, *jobs, mode=SEQUENTIAL)

    ran: list[JobId] = []
    while claims := await take_many(store):
        assert len(claims) == 1
        ran += [claim.id for claim in claims]
        await settle(store, claims[0], SUCCEEDED)

    assert ran == members


@pytest.mark.parametrize("on_failure", [CONTINUE, STOP])
async def test_member_cancelled_before_its_turn_starts_nobody(
    store: Store, on_failure: OnMemberFailure
) -> None:
    group_id, [_, second, third] = await put_group(store, mode=SEQUENTIAL, on_failure=on_failure)
    first = await take(store)

    await settle(store, await job_of(store, second), CancelRequested())

    assert await take_many(store) == []  # the first one still runs
    await settle(store, first, SUCCEEDED)
    assert await claim_order(store) == ([third] if on_failure is CONTINUE else [])
    assert ((await group_of(store, group_id)).closing is ClosePolicy.STOP) == (on_failure is STOP)


async def test_first_failure_alone_closes_and_tells(store: Store) -> None:
    group_id, _ = await put_group(store, on_failure=STOP)
    claims = await take_many(store)
    changes = [decide(c, Failed("no", permanent=True), new_id=new_id) for c in claims[:2]]

    assert await store.apply(changes) == [True, True]

    told = [EventKind.GROUP_STOPPED in await kinds(store, claim.id) for claim in claims]
    assert told == [True, False, False]
    assert (await group_of(store, group_id)).reason == "member_failed"


async def test_nothing_is_unblocked_in_a_group_that_closes(store: Store) -> None:
    group_id, _ = await put_group(store, mode=SEQUENTIAL, on_failure=CONTINUE)
    first = await take(store)
    await store.stop_group(group_id, reason=None, skip=True)

    await settle(store, first, SUCCEEDED)
    before = await take_many(store)
    await sweep(store)

    assert before == []
    counts = (await group_of(store, group_id)).counts
    assert counts == {State.SUCCEEDED: 1, State.SKIPPED: 2}


async def test_successor_written_while_the_group_stops_is_swept(store: Store) -> None:
    chain = make_job(delivery=Delivery.LINKED)
    group_id, _ = await put_group(store, chain, make_job(), on_failure=SKIP)
    first, second = await take_many(store)
    await settle(store, second, Failed("no", permanent=True))

    await settle(store, first, FAILED)
    await sweep(store)

    assert (await group_of(store, group_id)).counts == {State.SKIPPED: 1, State.DEAD_LETTER: 1}
    assert await store.closing_groups(limit=10) == []


async def test_two_who_sweep_at_once_end_each_member_once(store: Store) -> None:
    group_id, members = await put_group(store)
    await store.stop_group(group_id, reason=None)
    left = await store.remaining_members(group_id, limit=10)
    changes = [decide(job, CancelRequested("group_stopped"), new_id=new_id) for job in left]

    answers = [await store.apply(changes), await store.apply(changes)]

    assert answers == [[True] * 3, [False] * 3]
    assert [await kinds(store, job_id) for job_id in members] == [[EventKind.CANCELLED]] * 3


async def test_two_ends_in_one_call_are_taken_in_turn(store: Store) -> None:
    """One was unblocked by hand; each end lets one more run, as if they came apart."""
    jobs = [make_job() for _ in range(5)]
    _, members = await put_group(store, *jobs, mode=SEQUENTIAL)
    await settle(store, await job_of(store, members[1]), Unblocked())
    claims = await take_many(store)

    await store.apply([decide(claim, SUCCEEDED, new_id=new_id) for claim in claims])

    assert len(claims) == 2
    assert await claim_order(store) == members[2:4]


async def test_unblocking_what_an_end_has_just_unblocked_is_refused(store: Store) -> None:
    _, [_, second, third] = await put_group(store, mode=SEQUENTIAL)
    first, blocked = await take(store), await job_of(store, second)
    ends: list[tuple[object, Event]] = [(first, Skipped()), (blocked, Unblocked())]

    answers = await store.apply([decide(job, event, new_id=new_id) for job, event in ends])  # type: ignore[arg-type]

    assert answers == [True, False]
    assert (await job_of(store, third)).state is State.BLOCKED


async def test_refused_end_moves_nothing(store: Store) -> None:
    _, [first, *_] = await put_group(store, mode=SEQUENTIAL)
    stale = await take(store, lease=SECOND)
    await settle(store, stale, LOST)
    again = await take(store)

    assert not await settle(store, stale, SUCCEEDED)

    assert again.id == first
    assert await take_many(store) == []


async def test_members_of_other_groups_and_of_none_stay_as_they_are(store: Store) -> None:
    other, rest = await put_group(store, make_job(queue="lane"), mode=SEQUENTIAL)
    bare: NewJob = make_job(group_id=other)
    group_id, _ = await put_group(store, on_failure=STOP)
    await settle(store, await take(store), Failed("no", permanent=True))
    await store.add([bare])

    await sweep(store)

    assert (await group_of(store, other)).closing is None
    assert await claim_order(store, queue="lane") == rest
    assert await claim_order(store) == [bare.id]
    assert (await group_of(store, group_id)).done == 3
