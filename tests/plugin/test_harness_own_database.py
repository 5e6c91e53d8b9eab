"""Code that enqueues in its own transaction is tested in its own database, on either store."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Connection, column, create_engine, table, text
from sqlalchemy.orm import Session

from outlast import Outlast
from outlast.store.postgres.store import PostgresStore
from outlast.testing import FakeClock, Harness, stores
from outlast.testing.clock import START
from outlast.testing.servers.postgres import PostgresServer
from outlast.testing.stores import store_in_database

app = Outlast("sqlite:////nowhere/that/exists/jobs.db")
orders = table(f"orders_{uuid4().hex}", column("number"))


@app.job
async def confirm(number: int) -> int:
    return number


app.schedule(
    "nightly", "0 2 * * *", confirm, params={"number": 9}, coalesce=True, misfire_grace="5m"
)


async def place_order(session: Session, number: int) -> None:
    session.execute(orders.insert().values(number=number))
    await confirm.options(tx=session).enqueue(number)


@pytest.fixture
def outlast_app() -> Outlast:
    return app


@pytest.fixture(params=["sqlite", "postgresql"])
def outlast_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url("postgres")


@pytest.fixture
def session(outlast_url: str) -> Iterator[Session]:
    engine = create_engine(outlast_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as conn:  # its own tables come first
        _create_orders(conn)
    with Session(engine) as session:
        yield session
    engine.dispose()


def _create_orders(conn: Connection) -> None:
    conn.execute(text(f"DROP TABLE IF EXISTS {orders.name}"))
    conn.execute(text(f"CREATE TABLE {orders.name} (number INTEGER)"))


async def test_an_order_and_its_job_are_committed_or_rolled_back_together(
    session: Session, outlast: Harness
) -> None:
    await place_order(session, 1)
    session.rollback()
    outlast.assert_not_enqueued(confirm)

    await place_order(session, 2)
    session.commit()
    outlast.assert_enqueued(confirm, number=2, count=1)
    assert [ran.result for ran in await outlast.drain()] == [2]
    assert session.scalars(orders.select()).all() == [2]


async def test_nothing_is_left_of_another_test_and_the_clock_is_that_of_the_test(
    outlast: Harness,
) -> None:
    assert outlast.jobs() == []
    await confirm.options(delay="1h").enqueue(3)
    outlast.advance("1d")

    drained = await outlast.drain()

    assert [ran.result for ran in drained] == [3, 9]
    assert drained[0].job.created_at == START


def test_plain_functions_work_too(outlast: Harness, session: Session) -> None:
    outlast.complete(place_order(session, 1))
    session.commit()

    assert len(outlast.complete(outlast.drain())) == 1


@pytest.mark.parametrize("is_left_open", [False, True])
def test_the_schema_of_a_test_is_dropped(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, is_left_open: bool
) -> None:
    monkeypatch.setattr(stores, "DROP_TIMEOUT_S", 1 if is_left_open else 120)
    url = postgres.url("postgres")

    with psycopg.connect(url) as conn, ExitStack() as stack:
        store = stack.enter_context(store_in_database(url, FakeClock()))
        assert isinstance(store, PostgresStore)
        query = sql.SQL("SELECT count(*) FROM {}").format(
            sql.Identifier(store.address.schema, "jobs")
        )
        conn.execute(query)
        if is_left_open:
            with pytest.raises(RuntimeError, match="a transaction of the test is still open"):
                stack.close()
        conn.rollback()
        stack.close()
        left = conn.execute(
            "SELECT 1 FROM pg_namespace WHERE nspname = %s", [store.address.schema]
        ).fetchall()
        conn.execute(
            sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(store.address.schema))
        )

    assert bool(left) is is_left_open
