"""A call with many items promises each item alone; one bad item harms no other."""

from collections.abc import Sequence

import pytest

from outlast.core.decide import Change, JobView, decide
from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Event, Failed, Succeeded
from outlast.core.job import DedupeKey, NewJob
from outlast.core.limits import MAX_ERROR, MAX_PAYLOAD
from outlast.core.ordering import Ordering
from outlast.core.run import Claim, Lease
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import (
    FAILED,
    LEASE,
    LOST,
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    kinds,
    make_job,
    new_id,
    put,
    settle,
    started,
    take_many,
)


def _changes(claims: Sequence[Claim], event: Event = SUCCEEDED) -> list[Change]:
    return [decide(claim, event, new_id=new_id) for claim in claims]


async def _running(store: Store, count: int, **over: object) -> list[Claim]:
    await store.add([make_job(**over) for _ in range(count)])
    return await take_many(store)


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "middle", "last"])
@pytest.mark.parametrize(
    "bad",
    [
        make_job(params="x" * (MAX_PAYLOAD + 1)),
        make_job(params='"\ud800"'),
        make_job(name="two words"),
        make_job(priority=10**30),
        make_job(retry_of=new_id()),
        make_job(key=DedupeKey(key="\ud800")),
        make_job(active_key="\ud800"),
    ],
    ids=["params", "surrogate", "name", "priority", "retry_of", "key", "active_key"],
)
async def test_refused_job_never_sinks_its_neighbours(
    store: Store, bad: NewJob, place: int
) -> None:
    good = [make_job(), make_job(key=DedupeKey(key="k"))]
    batch = [*good[:place], bad, *good[place:]]

    added = await store.add(batch)

    assert [answer.created for answer in added] == [job is not bad for job in batch]
    assert added[place].refused
    assert await claim_order(store) == [job.id for job in good]


async def test_duplicate_never_sinks_its_neighbours(store: Store) -> None:
    holder = await put(store, key=DedupeKey(key="k"))
    jobs = [make_job(), make_job(key=DedupeKey(key="k")), make_job()]

    added = await store.add(jobs)

    assert [answer.id for answer in added] == [jobs[0].id, holder, jobs[2].id]
    assert await claim_order(store) == [holder, jobs[0].id, jobs[2].id]


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "middle", "last"])
async def test_stale_change_never_sinks_its_neighbours(store: Store, place: int) -> None:
    claims = await _running(store, 3)
    await settle(store, claims[place], Succeeded('"another result"'))

    applied = await store.apply(_changes(claims))

    assert applied == [number != place for number in range(3)]
    states = [(await job_of(store, claim.id)).state for claim in claims]
    assert states == [State.SUCCEEDED] * 3


async def test_change_of_an_unknown_job_never_sinks_its_neighbours(store: Store) -> None:
    [before, after] = await _running(store, 2)
    first, last = _changes([before, after])
    unknown = Change(new_id(), 1, first.move)

    applied = await store.apply([first, unknown, last])

    assert applied == [True, False, True]


@pytest.mark.parametrize(
    "event",
    [
        Succeeded('{"half":'),
        Succeeded('"' + "x" * MAX_PAYLOAD + '"'),
        Failed("x" * (MAX_ERROR + 1)),
        Failed("\ud800"),
    ],
    ids=["no-json", "long-result", "long-error", "surrogate"],
)
async def test_change_that_cannot_be_kept_leaves_nothing_and_sinks_nobody(
    store: Store, event: Event
) -> None:
    before, bad, after = await _running(store, 3)
    [refused] = _changes([bad], event)
    first, last = _changes([before, after])

    applied = await store.apply([first, refused, last])

    assert applied == [True, False, True]
    assert (await job_of(store, bad.id)).state is State.RUNNING
    assert await kinds(store, bad.id) == []
    assert await settle(store, bad, SUCCEEDED), "its holder can still end it otherwise"


async def test_changes_of_every_kind_go_together(store: Store) -> None:
    lease, lost, failed = await _running(store, 3)
    chain = await started(store, delivery=Delivery.LINKED)
    waiting = await job_of(store, await put(store))
    decided: list[tuple[JobView, Event]] = [
        (lease, SUCCEEDED),
        (lost, LOST),
        (failed, FAILED),
        (chain, FAILED),
        (waiting, CancelRequested()),
    ]

    applied = await store.apply([decide(job, event, new_id=new_id) for job, event in decided])

    ids = [lease.id, lost.id, failed.id, chain.id, waiting.id]
    states = [(await job_of(store, job_id)).state for job_id in ids]
    assert applied == [True] * 5
    assert states[:3] == [State.SUCCEEDED, State.QUEUED, State.RETRY_WAIT]
    assert states[3:] == [State.FAILED, State.CANCELLED]


async def test_two_changes_of_one_job_are_applied_in_the_order_given(store: Store) -> None:
    claim = await started(store)
    changes = [decide(claim, event, new_id=new_id) for event in (SUCCEEDED, FAILED)]

    applied = await store.apply(changes)

    assert applied == [True, False]
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED


@pytest.mark.parametrize("chain_first", [True, False])
async def test_changes_of_different_jobs_are_applied_in_the_order_given(
    store: Store, chain_first: bool
) -> None:
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION))
    await store.add(
        [make_job(queue="lane", delivery=each) for each in (Delivery.LINKED, Delivery.LEASE)]
    )
    chain, lease = await take_many(store, queue="lane")
    lost = [chain, lease] if chain_first else [lease, chain]

    await store.apply(_changes(lost, LOST))

    [_, successor] = await store.chain(chain.id)
    assert successor.position == (100 if chain_first else 300), "behind those that waited then"
    assert (await job_of(store, lease.id)).position == 200


async def test_cancel_request_and_retry_in_one_call_end_the_job(store: Store) -> None:
    claim = await started(store)
    changes = [decide(claim, event, new_id=new_id) for event in (CancelRequested(), LOST)]

    applied = await store.apply(changes)

    assert applied == [True, True]
    assert (await job_of(store, claim.id)).state is State.CANCELLED


async def test_applying_nothing_answers_nothing(store: Store) -> None:
    assert await store.apply([]) == []


async def test_stale_lease_never_sinks_its_neighbours(store: Store) -> None:
    first, last = await _running(store, 2)
    stale = Lease(await ended(store), 1)

    renewed = await store.renew([first.lease, stale, last.lease], span=LEASE)

    assert [renewal.held for renewal in renewed] == [True, False, True]


async def test_many_jobs_come_and_go_in_one_call_each(store: Store) -> None:
    many = sizes.SIZES.batch_jobs
    jobs = [make_job() for _ in range(many)]

    added = await store.add(jobs)
    claims = await take_many(store, limit=many)
    applied = await store.apply(_changes(claims))

    assert all(answer.created for answer in added)
    assert [claim.id for claim in claims] == [job.id for job in jobs]
    assert applied == [True] * many
    assert dict(await store.counts()) == {("default", State.SUCCEEDED): many}
    assert await kinds(store, jobs[0].id) == []
