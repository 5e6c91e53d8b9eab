"""enqueue inside the caller's own transaction: the job exists when that commits, or never."""

import sqlite3
from contextlib import closing

import pytest
from worker_helpers import SOON, query, quick

from outlast import InvalidArgument, Run, State


@pytest.fixture
async def send(app, path):
    @app.job
    async def send(run: Run, number: int) -> int:
        return number

    await app._client.open()
    query(path, "CREATE TABLE orders (number INTEGER PRIMARY KEY)")
    return send


@pytest.fixture
def conn(send, path):
    """As most people open one: it begins a transaction by itself before the first write."""
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        yield connection


def stored(path):
    return query(path, "SELECT count(*) FROM outlast_jobs")[0][0]


async def test_a_worker_runs_it_only_once_the_caller_has_committed(app, send, conn, path):
    async with app.worker() as worker:
        conn.execute("INSERT INTO orders VALUES (3)")
        handle = await send.options(tx=conn).enqueue(3)
        before = stored(path)
        conn.commit()
        result = await handle.result(SOON)
        await worker.drained()

    assert (before, result) == (0, 3)
    assert query(path, "SELECT number FROM orders") == [(3,)]


async def test_with_a_rollback_neither_the_order_nor_its_job_exists(app, send, conn, path):
    async with app.worker() as worker:
        conn.execute("INSERT INTO orders VALUES (3)")
        await send.options(tx=conn).enqueue(3)
        await app.enqueue_many([send.bind(4), send.bind(5)], tx=conn)
        conn.rollback()
        await worker.drained()

    assert stored(path) == 0
    assert query(path, "SELECT number FROM orders") == []


async def test_it_begins_a_transaction_where_the_connection_would_have(send, conn, path):
    await send.options(tx=conn).enqueue(3)
    during = (conn.in_transaction, stored(path))
    conn.commit()

    assert during == (True, 0)
    assert stored(path) == 1


async def test_keys_hold_inside_the_callers_transaction_too(send, conn, path):
    first = await send.options(key="order:3").enqueue(3)

    conn.execute("INSERT INTO orders VALUES (3)")
    again = await send.options(key="order:3", tx=conn).enqueue(3)
    other = await send.options(key="order:4", tx=conn).enqueue(4)
    conn.commit()

    assert (again.id, again.created, other.created) == (first.id, False, True)
    assert stored(path) == 2


async def test_a_refused_job_leaves_the_callers_transaction_as_it_was(send, conn, path):
    conn.execute("INSERT INTO orders VALUES (3)")
    with pytest.raises(InvalidArgument):
        await send.options(tx=conn).enqueue("three")
    await send.options(tx=conn).enqueue(3)
    conn.commit()

    assert stored(path) == 1
    assert query(path, "SELECT number FROM orders") == [(3,)]


@pytest.mark.parametrize("setting", ["row_factory", "text_factory"])
async def test_what_the_caller_set_on_the_connection_makes_no_difference(send, conn, path, setting):
    setattr(conn, setting, {"row_factory": sqlite3.Row, "text_factory": bytes}[setting])

    handle = await send.options(tx=conn).enqueue(3)
    keyed = await send.options(tx=conn, key="k").enqueue(4)
    again = await send.options(tx=conn, key="k").enqueue(4)
    conn.commit()

    assert stored(path) == 2
    assert (await handle.read()).state is State.QUEUED
    assert (again.id, again.created) == (keyed.id, False)


def other_file(tmp_path, path):
    return sqlite3.connect(tmp_path / "other.db")


def another_store(tmp_path, path):
    query(path, f"VACUUM INTO '{tmp_path / 'copy.db'}'")
    return sqlite3.connect(tmp_path / "copy.db")


def deleted_file(tmp_path, path):
    connection = sqlite3.connect(tmp_path / "gone.db")
    connection.execute("CREATE TABLE t (n)")
    (tmp_path / "gone.db").unlink()
    return connection


def closed(tmp_path, path):
    connection = sqlite3.connect(path)
    connection.close()
    return connection


WRONG = {
    "another file": (other_file, "other.db"),
    "a copy of the store": (another_store, "copy.db"),
    "a deleted file": (deleted_file, "gone.db"),
    "memory": (lambda *_: sqlite3.connect(":memory:"), "memory"),
    "no transaction": (lambda _, path: sqlite3.connect(path, isolation_level=None), "BEGIN"),
    "closed": (closed, "closed"),
    "a path": (lambda _, path: str(path), "connection of sqlite3"),
    "a cursor": (lambda _, path: sqlite3.connect(path).cursor(), "connection of sqlite3"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_connection_that_cannot_carry_it_is_refused_with_the_reason(
    app, send, tmp_path, path, what
):
    make, words = WRONG[what]
    wrong = make(tmp_path, path)

    with pytest.raises(InvalidArgument, match=words):
        await send.options(tx=wrong).enqueue(3)
    with pytest.raises(InvalidArgument, match=words):
        await app.enqueue_many([send.bind(3)], tx=wrong)

    assert stored(path) == 0
    if isinstance(wrong, sqlite3.Connection):
        wrong.close()


async def test_a_locked_file_is_a_clear_error_and_the_caller_may_try_again(path):
    async with quick(path) as app:

        @app.job
        async def send(number: int) -> None: ...

        await send.enqueue(0)
        with closing(sqlite3.connect(path, timeout=0.1)) as conn:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(Exception, match="locked") as reported:
                    await send.options(tx=conn).enqueue(1)
                other.execute("ROLLBACK")
            await send.options(tx=conn).enqueue(1)
            conn.commit()

    assert type(reported.value).__name__ == "StoreBusy"
    assert stored(path) == 2
