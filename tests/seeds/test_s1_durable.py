"""S1: the durable tier. The file is the truth, all of it, and nothing else is needed."""
# ruff: noqa: S608 - the words that make up these statements are ours

import shutil
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested
from outlast.core.ordering import Ordering
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    put,
    started,
    take,
)
from support.crash.sqlite_target import dump

from .app_helpers import drain, live, order_of
from .child_process import Child, ask
from .database_file import Sql, copy_of, opened
from .random_operations import random_work, work_until_killed
from .store_programs import read_jobs, settle_elsewhere


@pytest.mark.req("S1-1.2.a")
async def test_what_another_process_changed_is_what_this_one_acts_on(
    store: SqliteStore, path: Path
) -> None:
    gone, kept = await put(store), await put(store)
    seen = [await order_of(store), await store.counts()]

    assert ask(settle_elsewhere, path, gone, CancelRequested())

    assert seen == [[gone, kept], {("default", State.QUEUED): 2}]
    assert (await job_of(store, gone)).state is State.CANCELLED
    assert await store.counts() == {("default", State.QUEUED): 1, ("default", State.CANCELLED): 1}
    assert await claim_order(store) == [kept]


@pytest.mark.req("S1-1.2.d")
async def test_a_copy_of_the_file_elsewhere_gives_the_same_order(
    store: SqliteStore, path: Path, tmp_path: Path, clock: FakeClock
) -> None:
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    for priority in (0, 3, 0, 9, 3, 0):
        await put(store, priority=priority)
    order = await order_of(store)
    while_open = copy_of(path, tmp_path / "while_open.db")
    await store.close()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(path, elsewhere)

    for copy in (while_open, elsewhere / path.name):
        other = await opened(copy, clock=clock)
        assert await order_of(other) == order
        assert await claim_order(other) == order
        await other.close()


@pytest.mark.req("S1-1.2.e")
async def test_an_enqueued_job_is_read_by_a_fresh_process(path: Path) -> None:
    app = live(path)

    @app.job
    def story(title: str) -> None: ...

    async with app:
        handle = await story.enqueue("The Kraken")
        [job], runs = ask(read_jobs, path)

    assert (job.id, job.type, job.state) == (handle.id, "story", State.QUEUED)
    assert job.params == '{"title":"The Kraken"}'
    assert runs == []


@pytest.mark.req("S1-1.2.f")
async def test_an_executed_run_is_read_by_a_fresh_process(app: Outlast, path: Path) -> None:
    @app.job
    def story(title: str) -> str:
        return title.lower()

    handle = await story.enqueue("The Kraken")
    worker = await drain(app)

    [job], [run] = ask(read_jobs, path)

    assert [run] == await app.runs(handle.id)
    assert (run.job_id, run.status, run.result) == (handle.id, "succeeded", '"the kraken"')
    assert run.holder == worker.holder.instance_id
    assert run.started_at == job.started_at
    assert run.finished_at is not None


@pytest.mark.req("S1-1.2.i")
async def test_every_row_has_what_orders_it(store: SqliteStore, sql: Sql) -> None:
    await ended(store, SUCCEEDED, priority=2)
    await ended(store, FAILED)
    await started(store, type="other")
    await put(store, delay=HOUR, priority=-4)
    await put(store, queue="lane")

    columns = "priority, position, created_at"
    rows = sql.rows(f"SELECT {columns} FROM outlast_job_state")

    assert len(rows) == 5
    assert all(value is not None for row in rows for value in row)
    for column in columns.split(", "):
        sql.refuses(f"UPDATE outlast_waiting SET {column} = NULL")
    assert "NOT NULL" in sql.refuses(
        "INSERT INTO outlast_jobs (id, type, name, queue, delivery, params)"
        f" VALUES ('{'x' * 36}', 'a', 'a', 'a', 'lease', '{{}}')"
    )


@pytest.mark.req("S1-1.2.j")
async def test_a_retry_names_its_predecessor_in_a_column(store: Store, sql: Sql) -> None:
    first = await ended(store, FAILED, delivery=Delivery.LINKED)
    second = (await take(store)).id

    links = dict(sql.rows("SELECT id, retry_of FROM outlast_job_state"))
    stored = sql.rows(
        "SELECT j.id, p.id FROM outlast_jobs AS j JOIN outlast_jobs AS p ON p.seq = j.retry_of"
    )

    assert links == {first: None, second: first}
    assert stored == [(second, first)]


@pytest.mark.req("S1-1.2.l")
async def test_the_file_is_in_wal_mode(store: Store, sql: Sql) -> None:
    assert sql.value("PRAGMA journal_mode") == "wal"
    assert store._writer._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.req("S1-1.2.n")
@pytest.mark.parametrize("seed", range(4))
async def test_killed_at_random_the_state_is_the_last_committed_one(
    seed: int, path: Path, tmp_path: Path
) -> None:
    undisturbed = tmp_path / "undisturbed.db"
    states = [dump(undisturbed) async for _ in random_work(undisturbed, seed)]

    with Child(work_until_killed, path, seed) as worker:
        acknowledged = worker.hear_all()[-1]
        assert worker.end() == -9
    elsewhere = tmp_path / "elsewhere"  # with the file and its log alone
    elsewhere.mkdir()
    for file in (path, path.with_name(f"{path.name}-wal")):
        shutil.copy(file, elsewhere)

    found = dump(elsewhere / path.name)
    assert found in states[acknowledged : acknowledged + 2]
