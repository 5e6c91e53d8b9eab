"""Enqueueing inside the caller's own transaction, and effects committed with the finish."""

import sqlite3
from typing import Any

import pytest

from outlast import InvalidArgument, Outlast, Run, State


@pytest.fixture
async def file(tmp_path):
    path = tmp_path / "jobs.db"
    async with Outlast(f"sqlite:///{path}", poll="20ms") as app:
        yield app, path


@pytest.fixture
def conn(file):
    connection = sqlite3.connect(file[1], isolation_level=None)
    connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
    yield connection
    connection.close()


def with_send(app):
    @app.job
    def send(number: int) -> int:
        return number

    return send


async def test_a_job_exists_when_the_callers_transaction_commits(file, conn):
    app, _ = file
    send = with_send(app)

    conn.execute("BEGIN IMMEDIATE")
    conn.execute("INSERT INTO orders VALUES (1)")
    handle = await send.options(tx=conn).enqueue(1)
    many = await app.enqueue_many([send.bind(2), send.bind(3)], tx=conn)
    before = [job for job in await app._store.get([handle.id]) if job]
    conn.execute("COMMIT")

    assert before == []
    assert {(await each.read()).state for each in [handle, *many]} == {State.QUEUED}


async def test_a_job_is_gone_when_the_callers_transaction_is_rolled_back(file, conn):
    app, _ = file
    send = with_send(app)

    conn.execute("BEGIN IMMEDIATE")
    handle = await send.options(tx=conn).enqueue(1)
    conn.execute("ROLLBACK")

    assert await app._store.get([handle.id]) == [None]


async def test_a_connection_to_something_else_is_refused(file, tmp_path):
    app, _ = file
    send = with_send(app)
    other = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    for tx in (other, object()):
        with pytest.raises(InvalidArgument):
            await send.options(tx=tx).enqueue(1)

    other.close()


async def test_a_store_without_transactions_says_so(app, hand):
    send = with_send(app)

    with pytest.raises(InvalidArgument, match="tx was given, but this store cannot join"):
        await send.options(tx=object()).enqueue(1)

    assert await hand.stored() == []


@pytest.mark.parametrize("fails", [False, True])
async def test_effects_are_committed_with_the_finish_or_not_at_all(file, conn, fails):
    app, _ = file

    @app.job(errors={KeyError: "permanent"})
    async def order(run: Run, number: int) -> int:
        async with run.transaction() as mine:
            mine.execute("INSERT INTO orders VALUES (?)", [number])
        if fails:
            raise KeyError(number)
        return number

    @app.job(errors={KeyError: "permanent"})
    def order_in_thread(run: Run, number: int) -> Any:
        with run.transaction() as mine:
            mine.execute("INSERT INTO orders VALUES (?)", [number])
        if fails:
            raise KeyError(number)
        return number

    async with app.worker():
        first = await (await order.enqueue(1)).wait("2m")
        second = await (await order_in_thread.enqueue(2)).wait("2m")

    rows = conn.execute("SELECT number FROM orders ORDER BY number").fetchall()
    assert rows == ([] if fails else [(1,), (2,)])
    assert {first.state, second.state} == {State.DEAD_LETTER if fails else State.SUCCEEDED}
