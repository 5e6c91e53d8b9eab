"""Many jobs at once: each alone, in order, and refusals told at the end."""

import asyncio
from datetime import timedelta

import pytest

from outlast import (
    DuplicateJob,
    InvalidArgument,
    InvalidJob,
    InvalidParams,
    PartialEnqueueError,
    StoreBusy,
)
from outlast.jobs.enqueue_many import CHUNK
from outlast.store.contract.jobs import Added


@pytest.fixture
def app(outlast):
    return outlast.app


@pytest.fixture
def send(app):
    @app.job
    def send(number: int) -> int:
        return number

    return send


async def test_many_are_stored_in_the_order_given(app, send, outlast):
    handles = await app.enqueue_many(send.bind(number) for number in range(2 * CHUNK + 1))

    jobs = outlast.jobs()
    assert [job.id for job in jobs] == [handle.id for handle in handles]
    assert [job.params for job in jobs] == [f'{{"number":{n}}}' for n in range(2 * CHUNK + 1)]
    assert all(handle.created for handle in handles)


async def test_none_at_all_is_fine(app):
    assert await app.enqueue_many([]) == []


async def test_types_and_options_may_be_mixed(app, send, outlast):
    @app.job(queue="other")
    def fetch(url: str) -> None: ...

    await app.enqueue_many([send.bind(1), fetch.bind("x"), send.options(priority=9).bind(2)])

    assert [(job.type, job.queue, job.priority) for job in outlast.jobs()] == [
        ("send", "default", 0),
        ("fetch", "other", 0),
        ("send", "default", 9),
    ]


async def test_each_item_chooses_what_a_conflict_means(app, send, outlast):
    first = await send.options(key="k").enqueue(0)

    with pytest.raises(PartialEnqueueError) as refusal:
        await app.enqueue_many(
            [
                send.bind(1),
                send.options(key="k").bind(2),
                send.options(key="k", on_conflict="skip").bind(3),
                send.options(key="k", on_conflict="reject").bind(4),
                send.bind(5),
            ]
        )

    handles, failures = refusal.value.handles, refusal.value.failures
    assert [handle.created for handle in handles] == [True, False, True]
    assert handles[1].id == first.id
    assert list(failures) == [3]
    assert isinstance(failures[3], DuplicateJob)
    assert "1 jobs were not stored, the other 3 are: job 3: a job of type" in str(refusal.value)
    outlast.assert_enqueued(send, count=3)


async def test_a_job_the_store_refuses_does_not_sink_its_neighbours(app, send, outlast):
    add = outlast.store.add

    async def fussy(jobs):
        good = [job for job in jobs if "13" not in job.params]
        added = {each.id: each for each in await add(good)}
        return [added.get(job.id) or Added(job.id, created=False, refused="no 13") for job in jobs]

    outlast.store.add = fussy

    with pytest.raises(
        PartialEnqueueError, match='job 13: a job of type "send" was refused: no 13'
    ) as some:
        await app.enqueue_many(send.bind(number) for number in range(20))

    assert len(some.value.handles) == 19
    outlast.assert_enqueued(send, count=19)
    outlast.assert_not_enqueued(send, number=13)
    assert isinstance(some.value, InvalidJob)


async def test_a_bad_item_of_a_generator_raises_and_what_came_before_is_stored(app, send, outlast):
    items = [*range(CHUNK + 5), "bad"]

    with pytest.raises(InvalidParams, match='field "number"'):
        await app.enqueue_many(send.bind(item) for item in items)

    outlast.assert_enqueued(send, count=CHUNK)


async def test_the_next_chunk_is_prepared_while_one_is_written(app, send, outlast):
    order, add = [], outlast.store.add

    async def slow(jobs):
        order.append("writing")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        order.append("written")
        return await add(jobs)

    def numbers():
        for number in range(2 * CHUNK):
            if number == CHUNK:
                order.append("preparing the second")
            yield send.bind(number)

    outlast.store.add = slow
    await app.enqueue_many(numbers())

    assert order == ["writing", "preparing the second", "written", "writing", "written"]


async def test_a_transaction_is_given_to_the_whole_call(app, send, outlast):
    with pytest.raises(InvalidArgument, match="has a tx of its own"):
        await app.enqueue_many([send.options(tx=object(), delay=timedelta(1)).bind(1)])

    outlast.assert_not_enqueued(send)


async def test_store_that_fails_in_the_middle_names_every_stored_job(
    app, send, outlast, monkeypatch
):
    """Of three chunks the second is answered in part, and the third is not sent."""
    add, calls = type(outlast.store).add, 0

    async def partly(store, jobs):
        nonlocal calls
        calls += 1
        if calls != 2:
            return await add(store, jobs)
        answers = await add(store, jobs[:2])
        raise StoreBusy("throttled").with_answers([*answers, *[None] * (len(jobs) - 2)])

    monkeypatch.setattr(type(outlast.store), "add", partly)

    with pytest.raises(StoreBusy, match="throttled") as failure:
        await app.enqueue_many(send.bind(number) for number in range(3 * CHUNK))

    answers = failure.value.answers
    stored = [handle.id for handle in answers if handle is not None]
    assert stored == [job.id for job in outlast.jobs()]
    assert [handle is not None for handle in answers] == [True] * (CHUNK + 2) + [False] * (
        CHUNK - 2
    )
    assert calls == 2
