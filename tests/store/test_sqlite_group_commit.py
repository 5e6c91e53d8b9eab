"""The one writer: what gathers while it is busy is committed together, each item by itself."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from outlast.core.decide import decide
from outlast.core.event import Failed, Succeeded
from outlast.core.job import DedupeKey
from outlast.core.state import State
from outlast.errors import OutlastError
from outlast.store.contract.jobs import Filter
from outlast.store.contract.notifications import Notification
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.writer import MAX_REQUESTS_PER_COMMIT
from outlast.testing.conformance.factories import (
    LEASE,
    MANY,
    SUCCEEDED,
    job_of,
    kinds,
    make_job,
    new_id,
    put,
    settle,
    started,
    take_many,
)
from support.crash.sqlite_target import dump

from .sqlite_helpers import Trace, raw

Gather = Callable[..., Awaitable[list[Any]]]


@pytest.fixture
def together(store: SqliteStore, trace: Trace) -> Gather:
    """Hands all of them to the writer while it is busy with something else."""

    async def gather(*asked: Coroutine[Any, Any, Any]) -> list[Any]:
        busy = trace.acquire_lock("claim.promote")
        first = asyncio.create_task(store.promote_due(limit=1))
        await busy.reached()
        tasks = [asyncio.create_task(one) for one in asked]
        await asyncio.sleep(0)  # each task runs up to its wait for the writer
        trace.steps.clear()
        busy.let_go()
        await first
        return await asyncio.gather(*tasks, return_exceptions=True)

    return gather


async def test_enqueues_that_arrive_together_share_a_commit(
    store: SqliteStore, trace: Trace, together: Gather
) -> None:
    answers = await together(*(store.add([make_job()]) for _ in range(200)))

    assert all(added.created for [added] in answers)
    assert trace.count("unit_of_work.commit") == 2  # the one they met, and theirs
    assert len(trace.done) < 20, "and a few statements do for all"


async def test_one_commit_takes_a_bounded_number(
    store: SqliteStore, trace: Trace, together: Gather
) -> None:
    await together(*(store.add([make_job()]) for _ in range(MAX_REQUESTS_PER_COMMIT + 1)))

    assert trace.count("unit_of_work.commit") == 3
    assert dict(await store.counts()) == {("default", State.QUEUED): MAX_REQUESTS_PER_COMMIT + 1}


async def test_jobs_are_numbered_in_the_order_they_arrived(
    store: SqliteStore, together: Gather
) -> None:
    jobs = [make_job(key=DedupeKey(key=str(n)) if n % 3 else None) for n in range(60)]

    await together(*(store.add([job]) for job in jobs))

    newest_first = await store.find(Filter(), limit=MANY)
    assert [job.id for job in reversed(newest_first)] == [job.id for job in jobs]


async def test_requests_of_every_kind_are_served_in_the_order_they_arrived(
    store: SqliteStore, together: Gather
) -> None:
    job = make_job()

    added, [claim], none_left = await together(
        store.add([job]), take_many(store, limit=1), take_many(store, limit=1)
    )

    assert [answer.created for answer in added] == [True]
    assert claim.id == job.id
    assert none_left == []


async def test_failing_request_never_sinks_its_neighbours_in_the_group(
    store: SqliteStore, together: Gather
) -> None:
    first, second = [await started(store) for _ in range(2)]
    good, bad, last = make_job(), make_job(params="no json"), make_job()
    done = decide(first, SUCCEEDED, new_id=new_id)
    undone = decide(second, Succeeded("no json"), new_id=new_id)

    answers = await together(
        store.add([good]),
        store.add([bad]),
        store.set_queue(Queue(name="two words")),
        store.apply([done]),
        store.apply([undone]),
        store.attach(second.lease, ["x" * 300_000]),
        store.add([last]),
        store.renew([second.lease], span=LEASE),
        take_many(store),
    )

    added, refused, no_queue, applied, not_applied, too_long, also_added, renewed, claims = answers
    assert [one.created for one in (*added, *also_added)] == [True, True]
    assert refused[0].refused
    assert isinstance(no_queue, OutlastError)
    assert (applied, not_applied) == ([True], [False])
    assert isinstance(too_long, OutlastError)
    assert renewed[0].held
    assert [claim.id for claim in claims] == [good.id, last.id]
    assert (await job_of(store, second.id)).state is State.RUNNING


async def test_what_is_done_again_after_a_neighbour_failed_is_done_once(
    store: SqliteStore, together: Gather, path: Path
) -> None:
    claim = await started(store)
    retry = decide(claim, Failed("it broke"), new_id=new_id)

    await together(
        store.add([make_job(key=DedupeKey(key="k"))]),
        store.apply([retry]),
        store.attach(claim.lease, ["a.txt"]),
        store.set_queue(Queue(name="two words")),
    )

    assert await kinds(store, claim.id) == ["retry"]
    assert [run.artifacts for run in await store.runs(claim.id)] == [("a.txt",)]
    assert len(dump(path)["outlast_jobs"]) == 2


async def test_hand_edited_row_sinks_nobody_else_in_the_group(
    store: SqliteStore, together: Gather, db: sqlite3.Connection
) -> None:
    spoiled, sound = await started(store), await started(store)
    db.execute("PRAGMA ignore_check_constraints = ON")
    db.execute("UPDATE outlast_open_runs SET artifacts = '[no json' WHERE job = 1")

    failed, attached, [added] = await together(
        store.attach(spoiled.lease, ["a.txt"]),
        store.attach(sound.lease, ["a.txt"]),
        store.add([make_job()]),
    )

    assert isinstance(failed, OutlastError)
    assert attached is True
    assert added.created


async def test_lone_write_is_committed_at_once(store: SqliteStore, trace: Trace) -> None:
    trace.steps.clear()

    await put(store)
    after_one = trace.count("unit_of_work.commit")
    await put(store)

    assert (after_one, trace.count("unit_of_work.commit")) == (1, 2)


async def test_answer_comes_only_when_the_write_is_durable(
    store: SqliteStore, path: Path, trace: Trace
) -> None:
    before_commit = trace.acquire_lock("unit_of_work.commit")
    after_commit = trace.acquire_lock("unit_of_work.commit", after=True)
    adding = asyncio.create_task(store.add([make_job()]))

    await before_commit.reached()
    answered_before, stored_before = adding.done(), _stored(path)
    before_commit.let_go()
    await after_commit.reached()
    answered_meanwhile, stored_after = adding.done(), _stored(path)
    after_commit.let_go()
    await adding

    assert (answered_before, stored_before) == (False, 0)
    assert (answered_meanwhile, stored_after) == (False, 1)


async def test_caller_who_gave_up_waiting_disturbs_nobody(store: SqliteStore, trace: Trace) -> None:
    busy = trace.acquire_lock("unit_of_work.begin")
    impatient, patient = (asyncio.create_task(store.add([make_job()])) for _ in range(2))
    await busy.reached()

    impatient.cancel()
    busy.let_go()

    [added] = await patient
    assert added.created
    assert dict(await store.counts()) == {("default", State.QUEUED): 2}


async def test_closing_finishes_what_was_asked(store: SqliteStore, trace: Trace) -> None:
    busy = trace.acquire_lock("unit_of_work.begin")
    asked = [asyncio.create_task(store.add([make_job()])) for _ in range(5)]
    await busy.reached()

    closing = asyncio.create_task(store.close())
    busy.let_go()
    await closing

    assert [added.created for [added] in await asyncio.gather(*asked)] == [True] * 5


async def test_listener_that_fails_costs_nobody_his_answer(store: SqliteStore) -> None:
    def fail(_: Notification) -> None:
        raise RuntimeError("Event loop is closed")

    for _ in range(3):
        await put(store)
    store.subscribe(fail)

    [claim] = await take_many(store, limit=1)

    assert await settle(store, claim, SUCCEEDED)
    assert await put(store)
    assert dict(await store.counts()) == {
        ("default", State.QUEUED): 3,
        ("default", State.SUCCEEDED): 1,
    }


def _stored(path: Path) -> int:
    with raw(path) as outsider:
        [count] = outsider.execute("SELECT count(*) FROM outlast_jobs").fetchone()
    return int(count)
