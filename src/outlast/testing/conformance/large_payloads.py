"""Jobs whose payload is as large as one may be are claimed, queued, moved and ended together.

A store whose transactions are smaller than such a batch cuts it.
"""

from typing import Any

import pytest

from outlast.core.decide import decide
from outlast.core.event import Succeeded
from outlast.core.group import GroupMode
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.ordering import Ordering
from outlast.core.position import Anchor
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    claim_order,
    job_of,
    make_job,
    new_id,
    next_ids,
    put,
    put_group,
    take_many,
)
from outlast.testing.conformance.move import move

LARGEST = 256 * 1024 - len('{"text":""}')
"""Characters of a text in a payload of 256 KiB."""

JOBS = 6
"""Their payloads are 1.5 MiB: more than etcd takes in one transaction, but not too many records."""


def _jobs(**over: Any) -> list[NewJob]:
    return [make_job(params=f'{{"text":"{"x" * LARGEST}"}}', **over) for _ in range(JOBS)]


async def _put_all(store: Store, **over: Any) -> list[JobId]:
    jobs = _jobs(**over)
    added = await store.add(jobs)
    assert all(each.created for each in added)
    return [job.id for job in jobs]


async def test_largest_payloads_are_claimed_together(store: Store) -> None:
    ids = await _put_all(store)

    claims = await take_many(store)

    assert [claim.id for claim in claims] == ids
    assert {len(claim.params) for claim in claims} == {256 * 1024}


async def test_largest_payloads_that_become_due_stop_no_queue(
    store: Store, clock: FakeClock
) -> None:
    ids = await _put_all(store, delay=SECOND)
    small = await put(store, queue="other")
    clock.advance(2 * SECOND)

    assert await claim_order(store, queue="other") == [small]
    assert await claim_order(store) == ids


async def test_group_of_largest_payloads_is_unblocked(store: Store) -> None:
    _, ids = await put_group(store, *_jobs(), mode=GroupMode.PARALLEL)

    assert sorted(await claim_order(store)) == sorted(ids)


async def test_queue_of_largest_payloads_is_renumbered(store: Store) -> None:
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION, gap=100))
    ids = await _put_all(store, queue="lane")
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION, gap=50))

    changed = await store.renumber("lane")

    assert changed == JOBS
    assert [(await job_of(store, each)).position for each in ids[:2]] == [50, 100]
    assert await claim_order(store, queue="lane") == ids


@pytest.mark.parametrize("where", [Anchor.FRONT, Anchor.BACK])
async def test_job_is_moved_past_largest_payloads(store: Store, where: Anchor) -> None:
    ids = await _put_all(store, queue="lane")
    moved, rest = (ids[-1], ids[:-1]) if where is Anchor.FRONT else (ids[0], ids[1:])

    assert await move(store, moved, where)

    wanted = [moved, *rest] if where is Anchor.FRONT else [*rest, moved]
    assert await next_ids(store, "lane") == wanted


async def test_largest_payloads_and_results_are_ended_together(store: Store) -> None:
    await _put_all(store)
    claims = await take_many(store)
    result = f'"{"y" * (64 * 1024 - 2)}"'

    ended = [decide(claim, Succeeded(result), new_id=new_id) for claim in claims]

    assert await store.apply(ended) == [True] * JOBS
    assert [run.result for run in await store.runs(claims[0].id)] == [result]


async def test_largest_payloads_are_pruned_together(store: Store, clock: FakeClock) -> None:
    await _put_all(store)
    claims = await take_many(store)
    await store.apply([decide(claim, Succeeded(None), new_id=new_id) for claim in claims])
    clock.advance(2 * HOUR)

    assert await store.prune(older_than=HOUR, limit=JOBS) == JOBS
