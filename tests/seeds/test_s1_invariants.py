"""S1: no run without a job, no second execution, and a database that refuses both by itself."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from outlast import Outlast
from outlast.core.decide import succeed
from outlast.core.delivery import Delivery
from outlast.core.event import Failed
from outlast.core.run import Lease
from outlast.core.state import State
from outlast.store.contract.jobs import Renewal
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    LEASE,
    LOST,
    SUCCEEDED,
    ended,
    job_of,
    make_holder,
    new_id,
    put,
    settle,
    started,
    take,
    take_many,
)

from .database_file import Sql

LINKED = {"delivery": Delivery.LINKED}
NEW_RUN = (
    "INSERT INTO outlast_runs (job, token, run_id, status, worker, started_at, finished_at)"
    " VALUES ({}, 1, 'x', 'failed', 1, 1, 1)"
)
NEW_OPEN_RUN = (
    "INSERT INTO outlast_open_runs (job, run_id, token, worker, started_at, lease_until,"
    " queue, name, delivery, priority, position, available_at, failures, losses)"
    " VALUES ({}, 'x', {}, 1, 1, 1, 'default', 'a', '{}', 0, 0, 1, 0, 0)"
)
PUT_BACK = (
    "INSERT INTO outlast_waiting (job, state, queue, type, name, delivery, priority, position,"
    " available_at, created_at, token, failures, losses)"
    " SELECT seq, 'queued', queue, type, name, {}, 0, 0, created_at, created_at, {}, 0, 0"
    " FROM outlast_jobs"
)


@pytest.mark.req("S1-5.2.a")
async def test_a_foreign_key_ties_each_run_to_its_job(store: SqliteStore, sql: Sql) -> None:
    await ended(store)

    assert sql.rows("PRAGMA foreign_keys") == [(1,)]
    assert "FOREIGN KEY" in sql.refuses(NEW_RUN.format(999))
    assert "FOREIGN KEY" in sql.refuses(NEW_OPEN_RUN.format(999, 1, "lease"))
    # Foreign keys are a promise of each connection, so the store must make it on its own.
    assert store._writer._connection.execute("PRAGMA foreign_keys").fetchone() == (1,)


@pytest.mark.req("S1-5.2.b")
async def test_for_a_job_that_does_not_exist_no_run_is_written(
    store: SqliteStore, sql: Sql
) -> None:
    await ended(store)
    runs = sql.rows("SELECT * FROM outlast_runs")
    nobody = new_id()

    answers = await store.apply([succeed(nobody, 1, None)])
    attached = await store.attach(Lease(nobody, 1), ["a.txt"])
    [renewed] = await store.renew([Lease(nobody, 1)], span=LEASE)

    assert (answers, attached, renewed) == ([False], False, Renewal(held=False))
    assert "FOREIGN KEY" in sql.refuses(NEW_RUN.format(999))
    assert sql.rows("SELECT * FROM outlast_runs") == runs
    assert sql.rows("SELECT * FROM outlast_open_runs") == []


@pytest.mark.req("S1-5.3.a")
async def test_no_linked_job_ever_has_a_second_run(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    for event in (SUCCEEDED, FAILED, LOST, Failed("no", permanent=True)):
        for _ in range(3):
            await put(store, **LINKED)
        for claim in await take_many(store):
            await settle(store, claim, event)
            await settle(store, claim, FAILED)  # its worker says it twice
        clock.advance("1h")
        assert len(await store.expired_leases(limit=10)) == 0

    per_job = sql.rows(
        "SELECT count(*) FROM (SELECT job FROM outlast_runs UNION ALL SELECT job FROM"
        " outlast_open_runs) GROUP BY job"
    )
    assert len(per_job) > 12
    assert set(per_job) == {(1,)}
    waiting = (await job_of(store, await put(store, **LINKED))).seq
    assert "one_run" in sql.refuses(NEW_OPEN_RUN.format(waiting, 2, "linked"))


@pytest.mark.req("S1-5.3.b")
@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([PUT_BACK.format("delivery", 1)], id="as it is"),
        pytest.param([PUT_BACK.format("delivery", 0)], id="as if it had never run"),
        pytest.param([PUT_BACK.format("'lease'", 1)], id="as if it might run again"),
        pytest.param(
            ["DELETE FROM outlast_open_runs", PUT_BACK.format("delivery", 0)],
            id="with its run taken away",
        ),
    ],
)
async def test_a_running_linked_job_cannot_be_set_back_to_queued(
    statements: list[str], store: SqliteStore, sql: Sql
) -> None:
    claim = await started(store, **LINKED)

    sql.refuses(*statements)

    assert (await job_of(store, claim.id)).state is State.RUNNING
    assert await take_many(store) == []


@pytest.mark.req("S1-5.3.c")
def test_of_two_dispatchers_one_gets_the_row_and_the_other_nothing(path: Path) -> None:
    rounds, together = 12, Barrier(2)

    async def dispatch(name: str) -> list[list[str]]:
        store = SqliteStore(path)
        await store.open()
        taken = []
        for _ in range(rounds):
            if name == "first":
                await put(store)
            await asyncio.to_thread(together.wait)
            claims = await store.claim(
                make_holder(name), queue="default", types=["feed.fetch"], limit=1, lease=LEASE
            )
            await asyncio.to_thread(together.wait)
            taken.append([claim.id for claim in claims])
        await store.close()
        return taken

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda name: asyncio.run(dispatch(name)), ("first", "second"))

    got = [len(mine) + len(theirs) for mine, theirs in zip(one, two, strict=True)]
    ids = [job_id for claims in (*one, *two) for job_id in claims]
    assert got == [1] * rounds
    assert len(set(ids)) == rounds


@pytest.mark.req("S1-5.3.d")
async def test_when_somebody_else_has_it_the_loop_goes_on_without_executing(
    app: Outlast, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []

    @app.job
    def story(number: int) -> None:
        ran.append(number)

    caplog.set_level(logging.DEBUG, "outlast.worker")
    taken = await story.enqueue(1)
    await take(store, types=["story"], holder="somebody else")
    async with app.worker() as worker:
        await worker.drained()
        quiet = [each for each in caplog.records if each.levelno == logging.DEBUG]
        while_taken = list(ran)
        await story.enqueue(2)
        await worker.drained()

    assert (while_taken, ran) == ([], [2])
    assert len(await store.runs(taken.id)) == 1
    assert [each for each in quiet if each.name == "outlast.worker"], "no debug line"
