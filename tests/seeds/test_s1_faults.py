"""S1: when a write fails. The faults are the database's own: a full disk, a refusal, a lock."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast import OperatorError, Outlast
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import job_of, put, take, take_many
from outlast.worker import finisher

from .child_process import ask
from .database_file import Sql
from .store_programs import enqueue_on_a_full_disk

FAULT = "CREATE TRIGGER fault BEFORE {} BEGIN SELECT RAISE(ABORT, 'disk fault'); END"
MENDED = "DROP TRIGGER fault"


@pytest.mark.req("S1-3.4.a")
def test_on_a_full_disk_there_is_no_job_and_the_caller_hears_of_it(path: Path, sql: Sql) -> None:
    error, counted, then = ask(enqueue_on_a_full_disk, path)

    assert error.startswith(("StoreFull", "StoreCorrupt"))
    assert str(path) in error
    assert counted == 3
    assert then == 4
    assert sql.value("SELECT count(*) FROM outlast_jobs") == 4
    assert sql.value("SELECT count(*) FROM outlast_waiting") == 4


@pytest.mark.req("S1-3.4.b")
async def test_a_dispatch_that_fails_once_is_tried_again_at_the_next_tick(
    app: Outlast, store: SqliteStore, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []

    @app.job
    def story() -> None:
        ran.append(1)

    handle = await story.enqueue()
    sql.write(FAULT.format("DELETE ON outlast_waiting"))
    async with app.worker() as worker:
        await until(lambda: "cannot claim jobs" in caplog.text)
        while_faulty = (await handle.read(), await app.runs(handle.id), list(ran))
        sql.write(MENDED)
        await worker.drained()

    assert while_faulty[0].state is State.QUEUED
    assert while_faulty[1:] == ([], [])
    assert (await handle.read()).state is State.SUCCEEDED
    assert ran == [1]


@pytest.mark.req("S1-3.4.c")
@pytest.mark.parametrize("moment", ["BEFORE", "AFTER"])
async def test_a_run_that_cannot_be_inserted_undoes_the_whole_dispatch(
    moment: str, store: SqliteStore, sql: Sql
) -> None:
    job_id = await put(store)
    before = await job_of(store, job_id)
    sql.write(FAULT.replace("BEFORE", moment).format("INSERT ON outlast_open_runs"))

    with pytest.raises(OperatorError, match="disk fault"):
        await take_many(store)

    assert await job_of(store, job_id) == before
    assert before.state is State.QUEUED
    assert await store.runs(job_id) == []
    assert sql.value("SELECT count(*) FROM outlast_open_runs") == 0
    sql.write(MENDED)
    assert (await take(store)).token == 1


@asynccontextmanager
async def a_locked_out_worker(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator:
    """A worker whose handler has just returned, and a lock that keeps it from saying so."""
    monkeypatch.setattr(finisher, "MAX_RETRY_PAUSE_S", 0.005)
    store = SqliteStore(path, clock=FakeClock(), busy=0.01)
    locked, blocker = asyncio.Event(), Sql(path)

    async with Outlast(store, poll="5ms", tick="1h") as app:
        connection = blocker.connect()

        @app.job
        async def story() -> str:
            await locked.wait()
            return "done"

        handle = await story.enqueue()
        async with app.worker() as worker:
            await until(lambda: worker._engine._pool.active)
            connection.execute("BEGIN IMMEDIATE")
            locked.set()
            yield handle, worker, connection
        connection.close()


@pytest.mark.req("S1-3.4.d")
async def test_an_end_that_cannot_be_written_is_retried_until_it_can(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_locked_out_worker(path, monkeypatch) as (handle, worker, lock):
        await until(lambda: "not written after 2 tries" in caplog.text)
        open_still = await handle.read()
        lock.execute("ROLLBACK")
        await worker.drained()

        assert open_still.state is State.RUNNING
        assert await handle.result() == "done"
        assert worker.unwritten == []
        assert len(await worker._store.runs(handle.id)) == 1


@pytest.mark.req("S1-3.4.d")
async def test_an_end_that_can_never_be_written_is_raised_for_a_person(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def alerts() -> list[str]:
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        return [error.getMessage() for error in errors if "ends not written" in error.msg]

    async with a_locked_out_worker(path, monkeypatch) as (handle, worker, lock):
        await until(alerts)

        assert worker.unwritten == [handle.id]
        assert str(path) in alerts()[0]
        assert (await handle.read()).state is State.RUNNING
        lock.execute("ROLLBACK")


async def until(is_so: Callable[[], object]) -> None:
    """Let the loop turn until it is so; the test's own time limit says when to give up."""
    while not is_so():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)
