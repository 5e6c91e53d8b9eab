"""Recovery repairs successors, orphan runs and reservations. Needs the fixture `corrupter`."""

import json
from dataclasses import replace

import pytest

from outlast.core.event import CancelRequested, EventKind, Failed, SuccessorMissing
from outlast.core.job import Job
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.corruption import CorruptionInjector
from outlast.testing.conformance.corruption_recovery import LINKED, keyed_job
from outlast.testing.conformance.factories import (
    FAILED,
    MANY,
    SECOND,
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    kinds,
    last_run,
    new_id,
    put,
    settle,
    take,
)
from outlast.testing.conformance.reservations import reserve

CONTINUED = SuccessorMissing("startup_recovery")


def _spent(job: Job) -> Job:
    """The same with no attempt left, as if the limit had been written another time."""
    return replace(job, max_attempts=job.failures)


async def test_failed_link_without_successor_gets_exactly_one(
    store: Store, corrupter: CorruptionInjector, clock: FakeClock
) -> None:
    over = {"params": '{"n":1}', "priority": 3, "queue": "lane", "active_key": "key"}
    job_id = await ended(store, FAILED, **over, **LINKED)
    await corrupter.drop_successor(job_id)
    [job] = await store.missing_successors(limit=MANY)
    clock.advance(SECOND)

    answers = [await settle(store, job, CONTINUED), await settle(store, job, CONTINUED)]

    root, successor = await store.chain(job_id)
    assert answers == [True, False]
    assert root == job, "the failed job itself stays as it was"
    assert (successor.params, successor.priority, successor.queue) == ('{"n":1}', 3, "lane")
    assert (successor.retry_of, successor.root_id, successor.failures) == (job_id, job_id, 1)
    assert (successor.state, successor.created_at) == (State.QUEUED, clock.now())
    assert await kinds(store, job_id) == [EventKind.CHAINED, EventKind.CHAINED]
    assert await store.missing_successors(limit=MANY) == []
    assert not (await store.add([keyed_job()]))[0].created, "it has the chain's key"


async def test_failed_link_with_no_attempt_left_is_given_up(
    store: Store, corrupter: CorruptionInjector
) -> None:
    await ended(store, FAILED, max_attempts=3, **LINKED)
    second = await take(store)
    await settle(store, second, FAILED)
    await corrupter.drop_successor(second.id)
    [job] = await store.missing_successors(limit=MANY)

    assert await settle(store, _spent(job), CONTINUED)

    assert (await job_of(store, second.id)).state is State.DEAD_LETTER
    assert len(await store.chain(second.id)) == 2
    assert await store.missing_successors(limit=MANY) == []


@pytest.mark.parametrize("state", [State.QUEUED, State.CANCELLED, State.SUCCEEDED])
async def test_successor_in_any_state_is_enough(store: Store, state: State) -> None:
    job_id = await ended(store, FAILED, **LINKED)
    [_, successor] = await store.chain(job_id)
    if state is State.CANCELLED:
        await settle(store, successor, CancelRequested())
    elif state is State.SUCCEEDED:
        await settle(store, await take(store), SUCCEEDED)

    assert (await job_of(store, successor.id)).state is state
    assert await store.missing_successors(limit=MANY) == []


async def test_lists_come_in_pages_in_the_order_stored(
    store: Store, corrupter: CorruptionInjector
) -> None:
    links = [await ended(store, FAILED, queue=f"queue-{n}", **LINKED) for n in range(3)]
    loose = [await put(store) for _ in range(3)]
    for job_id in links:
        await corrupter.drop_successor(job_id)
    for job_id in loose:
        await corrupter.detach(job_id)

    for listed, expected in ((store.missing_successors, links), (store.detached_jobs, loose)):
        first = await listed(limit=2)
        rest = await listed(after=first[-1].seq, limit=2)
        assert [job.id for job in (*first, *rest)] == expected


async def test_orphan_runs_are_copied_to_the_events_and_removed(
    store: Store, corrupter: CorruptionInjector, clock: FakeClock
) -> None:
    kept = await ended(store, SUCCEEDED)
    lost = [await ended(store, SUCCEEDED), await ended(store, Failed("broke", permanent=True))]
    runs = [await last_run(store, job_id) for job_id in lost]
    for job_id in lost:
        await corrupter.orphan(job_id)
    clock.advance(SECOND)

    first = await store.remove_orphans(limit=1)
    removed = [*first, *await store.remove_orphans(limit=MANY)]

    assert len(first) == 1
    assert await store.remove_orphans(limit=MANY) == []
    assert await store.events(None) == removed
    by_run = {event.run_id: event for event in removed}
    assert by_run.keys() == {run.run_id for run in runs}
    for run in runs:
        event = by_run[run.run_id]
        copy = json.loads(event.detail or "")
        assert (event.job_id, event.kind, event.at) == (
            None,
            EventKind.ORPHAN_RUN_REMOVED,
            clock.now(),
        )
        assert (event.token, event.reason) == (1, run.status)
        assert [copy[name] for name in ("run_id", "status", "result", "error", "holder")] == [
            run.run_id, run.status, run.result, run.error, run.holder,
        ]  # fmt: skip
    assert len(await store.runs(kept)) == 1


async def test_reservation_for_a_job_that_has_ended_is_freed(
    store: Store, corrupter: CorruptionInjector, clock: FakeClock
) -> None:
    over, held, other = await ended(store), await reserve(store), await put(store)
    gone = await reserve(store, queue="lane")
    await corrupter.retarget_reservation(held.id, over)
    await corrupter.retarget_reservation(gone.id, new_id())
    clock.advance(SECOND)

    first = await store.release_stale_reservations(limit=1)
    freed = [*first, *await store.release_stale_reservations(limit=MANY)]

    assert [each.id for each in freed] == [held.id, gone.id]
    assert {(each.status, each.reason) for each in freed} == {("expired", "job_over")}
    assert {each.ended_at for each in freed} == {clock.now()}
    assert await store.reservations(active_only=True, limit=MANY) == []
    assert await claim_order(store) == [held.job_id, other]
