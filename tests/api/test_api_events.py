"""Everybody's events as a stream that can be left and taken up again."""

import asyncio

import pytest

from outlast import InvalidArgument
from outlast.core.event import Failed
from outlast.errors import StoreClosed

DEAD = Failed("no", permanent=True)


@pytest.fixture
def die(app, hand):
    """Lets that many jobs die; their ids."""

    @app.job
    def send() -> None: ...

    async def die(times=1):
        ids = []
        for _ in range(times):
            ids.append((await send.enqueue()).id)
            await hand.end(await hand.take("send"), DEAD)
        return ids

    return die


async def test_the_stream_tells_all_and_ends(app, die, monkeypatch):
    monkeypatch.setattr("outlast.jobs.event_stream._PAGE", 2)
    ids = await die(5)

    events = [event async for event in app.event_stream()]

    assert [event.job_id for event in events] == ids
    later = [event.job_id async for event in app.event_stream(after=events[2].id)]
    assert later == ids[3:]


async def test_an_empty_stream_ends_at_once(app):
    assert [event async for event in app.event_stream()] == []


async def test_who_follows_hears_of_what_comes(app, die):
    before = await die(2)
    stream = app.event_stream(follow=True)
    received = [(await anext(stream)).job_id for _ in range(2)]

    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    after = await die(1)

    assert received == before
    assert [(await waiting).job_id] == after
    await stream.aclose()


async def test_without_hints_the_poll_finds_it(app, store, die):
    store.listen = lambda wake, *, topics=(): lambda: None
    stream = app.event_stream(follow=True)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)

    [job_id] = await die()

    assert (await waiting).job_id == job_id
    await stream.aclose()


async def test_who_stops_following_listens_no_more(app, store, die):
    await die()
    stream = app.event_stream(follow=True)
    await anext(stream)
    assert len(store._listeners) == 1

    await stream.aclose()

    assert store._listeners == []


async def test_who_follows_a_closed_app_is_told(app, die):
    stream = app.event_stream(follow=True)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)

    await app.close()

    with pytest.raises(StoreClosed):
        await waiting


@pytest.mark.parametrize("after", [-1, 1.5, "3", None, True, 2**63])
def test_an_id_that_is_none_is_refused_at_once(app, after):
    with pytest.raises(InvalidArgument, match="after is"):
        app.event_stream(after=after)
