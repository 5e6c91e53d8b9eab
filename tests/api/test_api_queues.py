"""Queues as an app sets, pauses and reads them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from outlast import InvalidArgument, Pause, Queue
from outlast.core.ordering import Ordering


async def test_queue_is_set_and_read(app):
    made = await app.queues.save("story", ordering="position", concurrency=1, gap=10)

    lane = Queue(name="story", ordering=Ordering.POSITION, gap=10, concurrency=1)
    assert made == await app.queues.get("story") == lane
    assert await app.queues.list() == [lane]


async def test_queue_nobody_set_is_shown_with_its_defaults(app):
    assert await app.queues.get("story") == Queue(name="story")
    assert await app.queues.list() == []


async def test_queue_is_paused_with_a_reason_and_an_end(app, clock):
    made = await app.queues.pause("story", reason="deploy", duration="5m")

    now = clock.now()
    pause = Pause(at=now, reason="deploy", until=now + timedelta(minutes=5))
    assert made == await app.queues.get("story") == Queue(name="story", pause=pause)


async def test_resume_says_whether_it_was_paused(app):
    await app.queues.pause("story")

    assert [await app.queues.resume("story"), await app.queues.resume("story")] == [True, False]
    assert (await app.queues.get("story")).pause is None


async def test_saving_a_queue_keeps_what_is_left_out(app):
    await app.queues.save("mail", ordering="position", gap=10)

    limited = await app.queues.save("mail", concurrency=3)
    closer = await app.queues.save("mail", gap=20)
    unlimited = await app.queues.save("mail", concurrency=None)
    same = await app.queues.save("mail")

    lane = Queue(name="mail", ordering=Ordering.POSITION, gap=10, concurrency=3)
    assert limited == lane
    assert closer == replace(lane, gap=20)
    assert unlimited == same == replace(lane, gap=20, concurrency=None)


async def test_set_queue_leaves_the_pause(app):
    await app.queues.pause("story", reason="deploy")

    made = await app.queues.save("story", concurrency=2)

    assert made.pause is not None
    assert made.pause.reason == "deploy"


@pytest.mark.parametrize(
    "value", [0, -1, True, 1.5, "2", 1_000_001, pytest.param(10**5000, id="huge")]
)
async def test_limit_that_cannot_be_is_refused(app, value):
    with pytest.raises(InvalidArgument, match=r"concurrency is .*from 1 to 1,000,000"):
        await app.queues.save("story", concurrency=value)

    assert await app.queues.list() == []


@pytest.mark.parametrize("value", [0, -1, False, 2.0, None, 1_000_001])
async def test_gap_that_cannot_be_is_refused(app, value):
    with pytest.raises(InvalidArgument, match=r"gap is .*from 1 to 1,000,000"):
        await app.queues.save("story", gap=value)


@pytest.mark.parametrize("value", ["random", None, 3])
async def test_unknown_ordering_is_refused(app, value):
    with pytest.raises(InvalidArgument, match=r"ordering is .*use scheduled or position"):
        await app.queues.save("story", ordering=value)


@pytest.mark.parametrize("value", ["", "x" * 1025, "a\0b", "\ud800", 7])
async def test_reason_that_cannot_be_stored_is_refused(app, value):
    with pytest.raises(InvalidArgument, match=r"reason is .*1 to 1,024 characters"):
        await app.queues.pause("story", reason=value)

    assert await app.queues.list() == []


async def test_longest_reason_is_kept(app):
    await app.queues.pause("story", reason="x" * 1024)

    assert (await app.queues.get("story")).pause.reason == "x" * 1024


@pytest.mark.parametrize("value", ["soon", 5, timedelta(seconds=-1)])
async def test_duration_that_is_no_span_is_refused(app, value):
    with pytest.raises(InvalidArgument, match="duration is "):
        await app.queues.pause("story", duration=value)


@pytest.mark.parametrize("name", ["", "two words", "x" * 129, None])
async def test_name_that_is_none_is_refused_by_all(app, name):
    for act in (app.queues.save, app.queues.pause, app.queues.resume, app.queues.get):
        with pytest.raises(InvalidArgument, match="queue is "):
            await act(name)
