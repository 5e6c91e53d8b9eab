"""S1: the volatile tier. What may be kept in memory, and what never is there alone."""

from dataclasses import FrozenInstanceError
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from outlast.core.ordering import Ordering
from outlast.core.state import State
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import HOUR, claim_order, job_of, put, take

from .app_helpers import jobs_of, live, order_of
from .app_programs import fail_two_stories, hold_a_story
from .child_process import Child, ask
from .database_file import Sql, opened
from .states import one_of_each
from .store_programs import TYPE, enqueue, read_jobs
from .timeouts import LONG, QUICK, SOON


@pytest.mark.req("S1-1.3.a")
async def test_a_caller_who_changes_a_snapshot_changes_nothing_else(store: SqliteStore) -> None:
    first, second = await put(store), await put(store)
    counted = cast("dict[Any, int]", await store.counts())
    raw = await store._reader.cached_rows("jobs.counts")
    listed = await store.peek("default", limit=10)

    counted.clear()
    raw.append(("default", "succeeded", 5))
    listed.reverse()
    with pytest.raises(FrozenInstanceError):
        listed[0].state = State.SUCCEEDED  # type: ignore[misc]  # that is the point

    assert await store.counts() == {("default", State.QUEUED): 2}
    assert await order_of(store) == [first, second]


@pytest.mark.req("S1-1.3.b")
async def test_what_a_worker_held_in_memory_is_gone_after_a_restart_and_nothing_errs(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Child(hold_a_story, path, "lease", LONG) as first:
        held = first.hear()
        first.kill()
    Sql(path).expire_leases()
    app = live(path, **QUICK)

    @app.job
    def story(title: str) -> str:
        return title

    async with app, app.worker(instance_id="first") as second:
        at_the_start = (second._leases.all(), dict(second._engine._pool.active))
        again = await app.handle(held).result(timeout=SOON)

    assert at_the_start == ([], {})
    assert again == "The Kraken"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.req("S1-1.3.c")
async def test_a_cached_length_is_right_again_after_an_enqueue_by_anyone(path: Path) -> None:
    asked: list[str] = []
    store = await opened(
        path, clock=FakeClock(), probe=lambda name, after: None if after else asked.append(name)
    )
    await put(store)

    lengths = [(await store.counts())["default", State.QUEUED] for _ in range(20)]
    looked = asked.count("jobs.counts")
    await put(store)
    after_ours = await store.counts()
    ask(enqueue, path, [0, 0])
    after_theirs = await store.counts()
    await store.close()

    assert lengths == [1] * 20
    assert looked < 20, "the length is not cached at all"
    assert after_ours["default", State.QUEUED] == 2
    assert after_theirs["default", State.QUEUED] == 4


@pytest.mark.req("S1-1.3.d")
async def test_every_status_is_the_same_with_memory_wiped(store: SqliteStore, path: Path) -> None:
    states = await one_of_each(store)
    before = {job.id: job for job in await jobs_of(store)}

    jobs, _ = ask(read_jobs, path)

    assert {job.id: job for job in jobs} == before
    assert {job_id: before[job_id].state for job_id in states.values()} == {
        job_id: state for state, job_id in states.items()
    }
    assert len(states) == len(State) - 1, "all but `new`, which belongs to the cluster"


@pytest.mark.req("S1-1.3.e")
async def test_positions_and_order_are_the_same_with_memory_wiped(
    store: SqliteStore, sql: Sql, path: Path
) -> None:
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    jobs = [await put(store) for _ in range(4)]
    sql.write("UPDATE outlast_waiting SET position = 50 WHERE job = 4")  # moved to the front
    positions = {job.id: job.position for job in await jobs_of(store)}

    await store.close()
    await store.open()
    elsewhere, _ = ask(read_jobs, path)

    order = [jobs[3], *jobs[:3]]
    assert [positions[job_id] for job_id in order] == [50, 100, 200, 300]
    assert {job.id: job.position for job in elsewhere} == positions
    assert await order_of(store) == order
    assert await claim_order(store) == order


@pytest.mark.req("S1-1.3.f")
def test_killed_in_mid_run_the_run_is_on_disk(path: Path, sql: Sql) -> None:
    with Child(hold_a_story, path, "linked", {}) as worker:
        job_id = worker.hear()
        worker.kill()

    [job], [run] = ask(read_jobs, path)

    assert (job.id, job.state, run.job_id) == (job_id, State.RUNNING, job_id)
    assert run.params_snapshot == '{"title":"The Kraken"}'
    assert run.started_at == job.started_at
    assert run.finished_at is None
    assert sql.value("SELECT started_at FROM outlast_open_runs") > 0


@pytest.mark.req("S1-1.3.g")
async def test_killed_after_a_failure_the_retry_is_there(path: Path) -> None:
    with Child(fail_two_stories, path) as worker:
        chain, lease = worker.hear()
        worker.kill()

    clock = FakeClock(START + HOUR)
    store = await opened(path, clock=clock)
    [_, successor] = await store.chain(chain)
    waiting = await job_of(store, lease)
    taken = {claim.id for claim in [await take(store, types=[t]) for t in ("linked", "lease")]}
    await store.close()

    assert (successor.retry_of, successor.state) == (chain, State.SCHEDULED)
    assert waiting.state is State.RETRY_WAIT
    assert waiting.available_at == successor.available_at == START + timedelta(hours=1)
    assert taken == {successor.id, lease}


@pytest.mark.req("S1-1.3.i")
async def test_a_new_head_of_the_queue_is_seen_whoever_wrote_it(
    store: SqliteStore, path: Path
) -> None:
    old = await put(store, type=TYPE)
    cached = [await order_of(store), await store.counts()]

    ours = await put(store, type=TYPE, priority=5)
    seen, counted = await order_of(store), await store.counts()
    took = await take(store, types=[TYPE])
    theirs = ask(enqueue, path, [9])[0]
    then_seen, then_counted = await order_of(store), await store.counts()
    then_took = await take(store, types=[TYPE])

    assert cached == [[old], {("default", State.QUEUED): 1}]
    assert counted == {("default", State.QUEUED): 2}
    assert then_counted == {("default", State.QUEUED): 2, ("default", State.RUNNING): 1}
    assert (seen, took.id) == ([ours, old], ours)
    assert (then_seen, then_took.id) == ([theirs, old], theirs)


@pytest.mark.req("S1-1.3.j")
async def test_at_start_up_the_cache_is_what_the_file_says(store: SqliteStore, sql: Sql) -> None:
    first = await put(store)
    second = await put(store)
    before = [await store.counts(), await order_of(store)]
    await store.close()

    sql.write(
        "UPDATE outlast_waiting SET state = 'blocked' WHERE job = 1",
        "UPDATE outlast_waiting SET priority = 7 WHERE job = 2",
    )
    await store.open()

    assert before == [{("default", State.QUEUED): 2}, [first, second]]
    assert await store.counts() == {("default", State.BLOCKED): 1, ("default", State.QUEUED): 1}
    assert await order_of(store) == [second]
    assert (await job_of(store, second)).priority == 7
