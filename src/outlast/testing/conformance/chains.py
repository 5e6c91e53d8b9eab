"""The write that ends a link of a retry chain also inserts its successor."""

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, Failed
from outlast.core.job import Job, Slot
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LOST,
    SECOND,
    SUCCEEDED,
    ended,
    job_of,
    kinds,
    make_job,
    new_id,
    put,
    settle,
    started,
    take,
    take_many,
)

COPIED = (
    "type",
    "params",
    "name",
    "queue",
    "delivery",
    "priority",
    "max_attempts",
    "slot_at",
    "group_id",
    "template_id",
    "schedule_id",
    "metadata",
)


def _asked(job: Job) -> list[object]:
    return [getattr(job, name) for name in COPIED]


async def test_successor_is_a_copy_that_has_done_nothing_yet(
    store: Store, clock: FakeClock
) -> None:
    claim = await started(
        store,
        delivery=Delivery.LINKED,
        params='{"n":1}',
        priority=3,
        slot=Slot(series="daily", at=clock.now()),
        start_within=HOUR,
        group_id="group-1",
        template_id="template-1",
        schedule_id="schedule-1",
        metadata='{"tags":["t"]}',
    )
    clock.advance(SECOND)

    await settle(store, claim, FAILED)

    root, successor = await store.chain(claim.id)
    assert _asked(successor) == _asked(root)
    assert (successor.retry_of, successor.root_id) == (root.id, root.id)
    assert (successor.state, successor.token) == (State.QUEUED, 0)
    assert (successor.created_at, successor.available_at) == (clock.now(), clock.now())
    assert (successor.start_deadline, successor.started_at) == (None, None)
    assert (successor.holder, successor.finished_at, successor.reason) == (None, None, None)
    assert await store.runs(successor.id) == []
    assert await store.events(successor.id) == []


async def test_delayed_successor_is_scheduled(store: Store, clock: FakeClock) -> None:
    claim = await started(store, delivery=Delivery.LINKED)

    await settle(store, claim, Failed("it broke", delay=HOUR))

    [_, successor] = await store.chain(claim.id)
    assert (successor.state, successor.available_at) == (State.SCHEDULED, clock.now() + HOUR)
    assert await take_many(store) == []


@pytest.mark.parametrize(("event", "losses"), [(FAILED, 0), (LOST, 1)], ids=["failed", "lost"])
async def test_successor_carries_the_count_on(store: Store, event: Failed, losses: int) -> None:
    claim = await started(store, delivery=Delivery.LINKED)

    await settle(store, claim, event)

    root, successor = await store.chain(claim.id)
    assert (root.failures, root.losses) == (1, losses)
    assert (successor.failures, successor.losses) == (1, losses)


async def test_chain_ends_when_its_attempts_are_used_up(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED, max_attempts=2)
    await settle(store, claim, FAILED)

    await settle(store, await take(store), LOST)

    root, last = await store.chain(claim.id)
    assert (root.state, last.state) == (State.FAILED, State.DEAD_LETTER)
    assert (last.failures, last.losses) == (2, 1)
    assert (await kinds(store, root.id), await kinds(store, last.id)) == (
        [EventKind.CHAINED],
        [EventKind.DEAD_LETTER],
    )


async def test_each_job_of_a_chain_runs_at_most_once(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED, max_attempts=4)
    await settle(store, claim, LOST)
    await settle(store, await take(store), FAILED)
    await settle(store, await take(store), SUCCEEDED)

    jobs = await store.chain(claim.id)

    assert [len(await store.runs(job.id)) for job in jobs] == [1, 1, 1]
    assert [job.state for job in jobs] == [State.FAILED, State.FAILED, State.SUCCEEDED]


async def test_chain_is_the_same_from_any_of_its_jobs(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED)
    await settle(store, claim, FAILED)
    second = await take(store)
    await settle(store, second, FAILED)
    await put(store)

    chain = await store.chain(claim.id)

    assert [job.id for job in chain[:2]] == [claim.id, second.id]
    assert [job.retry_of for job in chain] == [None, claim.id, second.id]
    assert {job.root_id for job in chain} == {claim.id}
    assert await store.chain(second.id) == chain
    assert await store.chain(chain[2].id) == chain


async def test_job_by_itself_is_a_chain_of_one(store: Store) -> None:
    job_id = await put(store)

    assert await store.chain(job_id) == [await job_of(store, job_id)]
    assert await store.chain(new_id()) == []


async def test_retry_by_hand_joins_the_chain_and_counts_anew(store: Store) -> None:
    root = await ended(store, Failed("no", permanent=True), delivery=Delivery.LINKED)
    first = await put(store, retry_of=root)
    await settle(store, await take(store), Failed("no", permanent=True))

    second = await put(store, retry_of=first)

    job = await job_of(store, second)
    assert (job.retry_of, job.root_id, job.failures) == (first, root, 0)
    assert [each.id for each in await store.chain(root)] == [root, first, second]


@pytest.mark.parametrize("runs", [False, True])
async def test_job_that_has_not_ended_is_not_retried(store: Store, runs: bool) -> None:
    job_id = (await started(store)).id if runs else await put(store)

    [added] = await store.add([make_job(retry_of=job_id)])

    assert (added.created, bool(added.refused)) == (False, True)


async def test_job_is_retried_once_only(store: Store) -> None:
    dead = await ended(store, Failed("no", permanent=True))
    retry = make_job(retry_of=dead)

    first, second, same = await store.add([retry, make_job(retry_of=dead), retry])

    assert (first.created, second.created, same.created) == (True, False, False)
    assert second.refused
    assert (same.id, same.refused) == (retry.id, None), "repeating an enqueue is harmless"


async def test_job_chained_already_is_not_retried_by_hand(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED)
    await settle(store, claim, FAILED)

    [added] = await store.add([make_job(retry_of=claim.id)])

    assert added.refused
    assert len(await store.chain(claim.id)) == 2
