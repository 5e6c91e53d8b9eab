"""S1 2.5, 3.3 and 5.5: the direct reservation, and what it does to the queue."""

import asyncio
import os
import sqlite3
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chaos.worker_tree import until
from outlast import Handle, NoWorkerAvailable, Outlast, QueueBusy, Run, State
from outlast.clock import from_micros
from outlast.core.reservation import Reservation
from outlast.core.state import RunStatus
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import MANY, TYPE, make_job, take_many
from outlast.testing.conformance.reservations import make_reservation, reserve

from .child_process import Child
from .database_file import Sql
from .direct import QUEUE, call, call_at_once, executed, s1
from .timeouts import PATIENCE, SOON

SPAN = timedelta(minutes=5)
ACTIVE = "SELECT count(*) FROM outlast_reservations WHERE status = 'active'"


@pytest.fixture
async def lane(app: Outlast) -> Any:
    """S1's queue, and a handler that waits to be let go."""
    await app.queues.save("default", ordering="position", concurrency=1)
    gates: dict[str, asyncio.Event] = {}

    @app.job
    async def story(run: Run, title: str, fails: bool = False) -> str:
        gate = gates.setdefault(title, asyncio.Event())
        await gate.wait()
        if fails:
            raise ValueError(title)
        return title

    story.gates = gates  # type: ignore[attr-defined]
    return story


def let_go(story: Any, title: str) -> None:
    story.gates.setdefault(title, asyncio.Event()).set()


async def active(store: SqliteStore) -> Reservation:
    """The one there is, as soon as there is one."""
    async with asyncio.timeout(PATIENCE):
        while not (held := await store.reservations(active_only=True, limit=1)):  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0.001)
    return held[0]


async def states(*handles: Handle[Any]) -> list[State]:
    return [(await handle.read()).state for handle in handles]


@pytest.mark.req("S1-1.2.k")
def test_reservation_of_a_killed_process_is_still_active_on_disk(
    path: Path, sql: Sql, tmp_path: Path
) -> None:
    with Child(call, path, tmp_path / "ledger", "direct") as caller:
        until(lambda: path.exists() and _counted(sql), what="its reservation")
        caller.kill()

    assert sql.rows(QUEUE) == [("active", None)]
    assert sql.value("SELECT state FROM outlast_waiting") == "queued"


def _counted(sql: Sql) -> int:
    try:
        return int(sql.value(ACTIVE))
    except sqlite3.OperationalError:  # the tables are not there yet
        return 0


@pytest.mark.req("S1-2.5.b", "S1-2.5.k")
async def test_two_in_turn_have_two_uuids_and_are_released_at_their_end(
    app: Outlast, store: SqliteStore, lane: Any, sql: Sql
) -> None:
    for title in ("one", "two"):
        let_go(lane, title)
    async with app.worker():
        for title, fails in (("one", False), ("two", True)):
            handle = await lane.run_now(title, fails=fails)
            await handle.wait(SOON)

    found = sql.rows("SELECT id, status, reason FROM outlast_reservations ORDER BY seq")
    assert [row[1:] for row in found] == [("released", None)] * 2, "after failure too"
    assert len({uuid.UUID(row[0]) for row in found}) == 2
    assert sorted(await _ends(store)) == [State.DEAD_LETTER, State.SUCCEEDED]


async def _ends(store: SqliteStore) -> list[State]:
    return [state for (_, state), count in (await store.counts()).items() if count]


@pytest.mark.req("S1-2.5.c", "S1-2.5.d", "S1-2.5.f")
async def test_reservation_says_when_by_whom_and_until_when(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    async with Outlast(store, reservation="7m", poll="5ms") as app:

        @app.job
        def story() -> None: ...

        calling = asyncio.create_task(story.options(request="req-7", wait=SOON).run_now())
        held = await active(store)
        calling.cancel()
        await asyncio.wait([calling])

    at, until = sql.rows("SELECT reserved_at, expires_at FROM outlast_reservations")[0]
    assert (from_micros(at), from_micros(until)) == (
        clock.now(),
        clock.now() + timedelta(minutes=7),
    )
    assert str(os.getpid()) in held.reserved_by
    assert held.reserved_by.endswith(" for req-7")


@pytest.mark.req("S1-2.5.e")
async def test_database_refuses_any_other_status(store: SqliteStore, sql: Sql) -> None:
    await reserve(store)

    refusal = sql.refuses("UPDATE outlast_reservations SET status = 'waiting'")

    assert "reservation_status" in refusal


@pytest.mark.req("S1-2.5.h", "S1-3.3.e", "S1-3.3.f")
async def test_while_one_is_active_nothing_is_dispatched_and_nothing_moves(
    app: Outlast, store: SqliteStore, lane: Any
) -> None:
    titles = ("a", "b", "c")
    waiting = [await lane.enqueue(title) for title in titles]
    before = await store.peek("default", limit=MANY)
    assert await store.acquire_lock("caller.1") is not None  # the caller lives
    held = await reserve(store, type="unknown")

    async with app.worker(types=["story"]) as worker:
        for _ in range(5):
            await worker.drained()  # it looked, and found nothing to take
        during = await store.peek("default", limit=MANY)
        assert await states(*waiting) == [State.QUEUED] * 3
        await app.cancel(held.job_id)
        for title, handle in zip(titles, waiting, strict=True):
            let_go(lane, title)
            await handle.wait(SOON)

    assert during == before
    starts = [(await app.runs(job.id))[0].started_at for job in before]
    assert starts == sorted(starts)


@pytest.mark.req("S1-2.5.h", "S1-2.5.j")
async def test_reservation_is_there_before_execution_and_holds_the_queue_until_its_end(
    app: Outlast, store: SqliteStore, lane: Any, sql: Sql
) -> None:
    seen: list[tuple[Any, ...]] = []

    @app.job
    def looks(run: Run) -> None:
        seen.extend(sql.rows("SELECT status, job_id = ? FROM outlast_reservations", run.job_id))

    head = await lane.enqueue("head")
    let_go(lane, "head")
    async with app.worker(concurrency=5):
        await head.wait(SOON)
        await (await looks.run_now()).wait(SOON)
        direct = await lane.run_now("direct")
        behind = await lane.enqueue("behind")
        let_go(lane, "behind")
        assert await states(direct, behind) == [State.RUNNING, State.QUEUED]
        let_go(lane, "direct")
        await behind.wait(SOON)

    assert seen == [("active", 1)]
    [first], [second] = await app.runs(direct.id), await app.runs(behind.id)
    assert first.finished_at is not None
    assert first.finished_at <= second.started_at


@pytest.mark.req("S1-2.5.i")
async def test_expired_with_the_caller_still_up_the_queue_moves_again(
    app: Outlast, store: SqliteStore, lane: Any, clock: FakeClock
) -> None:
    caller = await store.acquire_lock("caller.alive")
    assert caller is not None
    new = make_reservation(caller="caller.alive", span=SPAN)
    await store.reserve(new, make_job(type="unknown"))
    head = await lane.enqueue("head")
    let_go(lane, "head")

    async with app.worker(types=["story"]) as worker:
        clock.advance(SPAN - timedelta(microseconds=1))
        for _ in range(3):
            await worker.drained()
        in_time = await states(head)
        clock.advance("1s")
        await head.wait(SOON)

    held = await store.reservation(new.id)
    assert held is not None
    assert in_time == [State.QUEUED]
    assert (held.status, held.reason) == ("expired", "caller_silent")


@pytest.mark.req("S1-2.5.m")
async def test_two_direct_calls_at_once_have_one_active_row(
    app: Outlast, store: SqliteStore, lane: Any, sql: Sql
) -> None:
    calls = [asyncio.create_task(lane.run_now(title)) for title in ("one", "two")]
    await active(store)
    seen = {sql.value(ACTIVE)}
    async with app.worker():
        for title in ("one", "two"):
            let_go(lane, title)
        for handle in await asyncio.gather(*calls):
            seen.add(sql.value(ACTIVE))
            await handle.wait(SOON)

    assert seen <= {0, 1}
    assert sql.rows(QUEUE) == [("released", None)] * 2


@pytest.mark.req("S1-2.5.n")
async def test_second_caller_waits_for_the_first_or_is_rejected_at_once(
    app: Outlast, lane: Any, sql: Sql
) -> None:
    async with app.worker():
        first = await lane.run_now("one")
        with pytest.raises(QueueBusy, match="resource busy"):
            await lane.options(on_busy="reject").run_now("two")
        waits = asyncio.create_task(lane.options(on_busy="wait").run_now("three"))
        let_go(lane, "three")
        let_go(lane, "one")
        await first.wait(SOON)
        second = await waits
        await second.wait(SOON)

    [one], [three] = await app.runs(first.id), await app.runs(second.id)
    assert one.finished_at is not None
    assert one.finished_at <= three.started_at
    assert sql.value("SELECT count(*) FROM outlast_jobs") == 2


@pytest.mark.req("S1-5.5.b")
async def test_wait_for_a_held_queue_ends_with_an_error_when_its_time_has_passed(
    app: Outlast, store: SqliteStore, lane: Any
) -> None:
    await reserve(store)
    loop = asyncio.get_running_loop()
    began = loop.time()

    with pytest.raises(QueueBusy, match=r"resource busy.*caller\.1 for req-7"):
        await lane.options(wait="1s").run_now("two")

    assert loop.time() - began >= 1.0


@pytest.mark.req("S1-5.5.a", "S1-5.5.c")
@pytest.mark.slow
async def test_of_twenty_processes_that_call_at_once_one_holds_the_queue(
    path: Path, tmp_path: Path, sql: Sql
) -> None:
    await (await s1(path)).close()
    children = [Child(call_at_once, path, tmp_path / "ledger") for _ in range(20)]
    try:
        assert [child.hear() for child in children] == ["ready"] * 20
        for child in children:
            child.tell("go")
        reported = [child.hear() for child in children]
        rows = sql.rows(QUEUE)
        for child in children:
            child.tell("leave")
        assert [child.hear() for child in children] == ["left"] * 20
    finally:
        for child in children:
            child.__exit__(None, None, None)

    assert sorted(reported) == ["QueueBusy"] * 19 + ["holds"]
    assert rows == [("active", None)]
    assert sql.rows(QUEUE) == [("released", None)]
    assert sql.value("SELECT count(*) FROM outlast_jobs") == 1
    assert executed(tmp_path / "ledger") == []


@pytest.mark.req("S1-2.5.h")
async def test_direct_run_counts_as_the_one_that_runs(
    app: Outlast, store: SqliteStore, lane: Any
) -> None:
    running = await lane.enqueue("first")
    async with app.worker(concurrency=5):
        async with asyncio.timeout(PATIENCE):
            while await states(running) != [State.RUNNING]:  # noqa: ASYNC110 - nobody signals it
                await asyncio.sleep(0.005)
        with pytest.raises(NoWorkerAvailable):
            await lane.options(wait="200ms").run_now("direct")
        let_go(lane, "first")
        await running.wait(SOON)

    assert [run.status for run in await app.runs(running.id)] == [RunStatus.SUCCEEDED]
    assert await take_many(store, types=[TYPE, "story"]) == []
