"""Enqueueing in a PostgreSQL transaction of the caller's, without a loop of the caller's own."""

import threading

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from outlast import InvalidArgument, Outlast


@pytest.fixture
def own_url(postgres_url):
    return postgres_url.partition("?")[0]


@pytest.fixture
def app(postgres_url):
    return Outlast(postgres_url)


@pytest.fixture
def send(app):
    @app.job
    def send(number: int) -> int:
        return number

    return send


def test_a_blocking_connection_carries_jobs_through_the_bridge(app, send, own_url):
    with app.sync() as wait:
        with psycopg.connect(own_url) as conn:
            kept = wait(send.options(tx=conn).enqueue(1))
            many = wait(app.enqueue_many([send.bind(2), send.bind(3)], tx=conn))
            before = wait(app._store.get([kept.id]))
        with psycopg.connect(own_url) as conn:
            dropped = wait(send.options(tx=conn).enqueue(4))
            conn.rollback()
        found = wait(app._store.get([kept.id, *(each.id for each in many), dropped.id]))

    assert before == [None]
    assert [job is not None for job in found] == [True, True, True, False]


def test_a_session_carries_jobs_through_the_bridge(app, send, own_url):
    engine = create_engine(own_url.replace("postgresql:", "postgresql+psycopg:"))

    with app.sync() as wait:
        with Session(engine) as session, session.begin():
            job = wait(send.options(tx=session).enqueue(1))
        [found] = wait(app._store.get([job.id]))

    engine.dispose()
    assert found is not None


def test_a_refused_job_leaves_the_callers_transaction_as_it_was(app, send, own_url):
    with app.sync() as wait, psycopg.connect(own_url) as conn:
        wait(send.options(tx=conn).enqueue(1))
        with pytest.raises(InvalidArgument):
            wait(send.options(tx=conn).enqueue("three"))
        job = wait(send.options(tx=conn).enqueue(3))
        conn.commit()
        [found] = wait(app._store.get([job.id]))

    assert found is not None


def test_one_caller_that_waits_for_another_does_not_stop_the_bridge_for_it(app, send, own_url):
    """The second waits for a place in an ordered queue, which the first gives when it commits."""
    inside, waiting = threading.Event(), threading.Event()
    stored = []

    with app.sync() as wait:
        wait(app.queues.save("lane", ordering="position"))

        def second():
            inside.wait(120)
            with psycopg.connect(own_url, options="-c lock_timeout=120s") as conn:
                waiting.set()
                stored.append(wait(send.options(tx=conn, queue="lane").enqueue(2)))

        other = threading.Thread(target=second)
        other.start()
        with psycopg.connect(own_url) as conn:
            stored.append(wait(send.options(tx=conn, queue="lane").enqueue(1)))
            inside.set()
            waiting.wait(120)
            stored.append(wait(send.options(tx=conn, queue="lane").enqueue(3)))
        other.join(120)
        jobs = wait(app._store.get([each.id for each in stored]))

    assert [job.position for job in jobs] == [100, 200, 300]
