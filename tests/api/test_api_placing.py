"""Moving and editing jobs that wait, and the order as a caller sees it."""

from datetime import UTC, datetime, timedelta

import pytest

from outlast import (
    InvalidArgument,
    InvalidParams,
    JobNotFound,
    Outlast,
    State,
    TransitionRefused,
    TypeNotFound,
)
from outlast.core.event import Released, Succeeded
from outlast.core.ordering import Ordering
from outlast.store.contract.queues import Queue


@pytest.fixture
def send(app):
    @app.job
    def send(number: int, copy: bool = False) -> int:
        return number

    return send


@pytest.fixture
async def three(send):
    return [await send.enqueue(n) for n in range(3)]


async def order(app):
    return [job.id for job in await app.queues.next_jobs("default", 100)]


async def test_a_job_is_moved_to_every_place(app, three):
    a, b, c = three

    await app.move(c.id, "front")
    assert await order(app) == [c.id, a.id, b.id]
    await app.move(c.id, "back")
    assert await order(app) == [a.id, b.id, c.id]
    await app.move(c.id, before=b.id)
    assert await order(app) == [a.id, c.id, b.id]
    await app.move(a.id, after=c.id)
    assert await order(app) == [c.id, a.id, b.id]
    await app.move(b.id, swap=c.id)
    assert await order(app) == [b.id, a.id, c.id]


async def test_a_handle_moves_and_edits_its_job(app, three):
    a, b, c = three

    moved = await c.move("front")
    edited = await a.edit(params={"number": 9}, priority=3)

    assert (moved.id, moved.position) == (c.id, -100)
    assert (edited.params, edited.priority) == ('{"number":9}', 3)
    assert await order(app) == [a.id, c.id, b.id]


async def test_edited_params_replace_all_of_them(send, app, hand):
    handle = await send.enqueue(1, copy=True)

    job = await app.edit(handle.id, params={"number": "2"})

    assert job.params == '{"number":2}'
    assert (await hand.take("send")).params == '{"number":2}'


@pytest.mark.parametrize(
    "params", [{}, {"number": "x"}, {"number": 1, "who": 2}, {1: 2}, [("number", 1)], "number"]
)
async def test_params_that_do_not_fit_the_type_are_refused(app, three, params):
    with pytest.raises(InvalidParams):
        await app.edit(three[0].id, params=params)

    assert (await three[0].read()).params == '{"number":0}'


async def test_params_of_a_type_this_app_lacks_are_refused_but_not_its_priority(three, store):
    stranger = Outlast(store)

    with pytest.raises(TypeNotFound, match="send"):
        await stranger.edit(three[0].id, params={"number": 1})

    assert (await stranger.edit(three[0].id, priority=1)).priority == 1


async def test_params_are_frozen_once_a_worker_had_the_job(app, three, hand):
    await hand.end(await hand.take("send"), Released("drain"))

    with pytest.raises(TransitionRefused, match=f"{three[0].id} is queued .* frozen"):
        await app.edit(three[0].id, params={"number": 1})

    assert (await app.edit(three[0].id, priority=2)).priority == 2


async def test_a_job_is_put_off_and_fetched_back(app, three, clock):
    later = datetime(2030, 1, 1, tzinfo=UTC)

    assert (await app.edit(three[0].id, at=later)).available_at == later
    assert (await app.edit(three[1].id, delay="5m")).available_at == clock.now() + timedelta(
        minutes=5
    )
    assert await order(app) == [three[2].id]
    clock.advance("1s")
    job = await app.edit(three[0].id, delay="0s")

    assert (job.state, job.available_at) == (State.SCHEDULED, clock.now())
    assert await order(app) == [three[2].id, three[0].id]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "nothing to edit"),
        ({"delay": "1s", "at": datetime(2030, 1, 1, tzinfo=UTC)}, "both given"),
        ({"delay": "soon"}, "delay is 'soon'"),
        ({"delay": timedelta(-1)}, "delay"),
        ({"at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - that is the mistake
        ({"priority": 40_000}, "priority is 40000"),
        ({"priority": True}, "whole number"),
        ({"priority": "1"}, "whole number"),
    ],
)
async def test_an_edit_that_makes_no_sense_says_why(app, three, given, says):
    before = await three[0].read()

    with pytest.raises(InvalidArgument, match=says):
        await app.edit(three[0].id, **given)

    assert await three[0].read() == before


@pytest.mark.parametrize(
    ("to", "given"),
    [
        (None, ()),
        ("top", ()),
        ("front", ("before",)),
        (None, ("before", "after")),
        ("before", ()),
        (3, ()),
    ],
)
async def test_a_move_names_exactly_one_place(app, three, to, given):
    with pytest.raises(InvalidArgument, match="front"):
        await app.move(three[0].id, to, **dict.fromkeys(given, three[1].id))

    assert await order(app) == [handle.id for handle in three]


async def test_a_running_or_finished_job_is_neither_moved_nor_edited(app, three, hand):
    claim = await hand.take("send")

    async def refused(state):
        for attempt in (
            app.move(claim.id, "back"),
            app.edit(claim.id, priority=1),
            app.edit(claim.id, params={"number": 1}),
            app.edit(claim.id, delay="1s"),
        ):
            with pytest.raises(TransitionRefused, match=f"{claim.id} is {state}"):
                await attempt

    await refused("running")
    await hand.end(claim, Succeeded("1"))
    await refused("succeeded")


@pytest.mark.parametrize("beside", ["before", "after", "swap"])
async def test_a_target_that_is_not_beside_it_is_named(app, send, three, hand, beside):
    elsewhere = await send.options(queue="mail").enqueue(1)
    urgent = await send.options(priority=5).enqueue(1)
    taken = await hand.take("send")
    assert taken.id == urgent.id
    other = await send.options(priority=4).enqueue(1)
    job = three[0].id

    async def move(target):
        await app.move(job, **{beside: target})

    with pytest.raises(InvalidArgument, match=f'{job} is in queue "default".*"mail"'):
        await move(elsewhere.id)
    with pytest.raises(InvalidArgument, match=f"{job} has priority 0 and job {other.id} has 4"):
        await move(other.id)
    with pytest.raises(TransitionRefused, match=f"{taken.id} is running"):
        await move(taken.id)
    with pytest.raises(InvalidArgument, match=f"{job} .* itself"):
        await move(job)
    with pytest.raises(JobNotFound):
        await move("no-such-job")


async def test_an_unknown_job_is_neither_moved_nor_edited(app):
    for attempt in (app.move("nobody", "front"), app.edit("nobody", priority=1)):
        with pytest.raises(JobNotFound, match="nobody"):
            await attempt


async def test_a_job_that_moved_on_meanwhile_is_looked_at_again(app, three, store, hand):
    apply, tries = store.apply, []

    async def late(changes):
        tries.append(changes)
        if len(tries) == 1:
            await hand.end(await hand.take("send"), Released("drain"))  # another token now
        return await apply(changes)

    store.apply = late
    moved = await app.move(three[0].id, "back")

    assert len(tries) == 3  # the stale one, the hand's own, the good one
    assert (moved.token, moved.position) == (1, 100)


async def test_a_job_taken_meanwhile_is_refused(app, three, store, hand):
    apply = store.apply

    async def late(changes):
        await hand.take("send")
        return await apply(changes)

    store.apply = late

    with pytest.raises(TransitionRefused, match=f"{three[0].id} is running"):
        await app.edit(three[0].id, priority=-1)


async def test_the_next_jobs_come_in_order_and_no_more_than_asked(app, three):
    assert [job.id for job in await app.queues.next_jobs("default", 2)] == [h.id for h in three[:2]]
    assert await app.queues.next_jobs("nothing-here", 5) == []


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, "3"])
async def test_a_limit_out_of_bounds_is_refused(app, limit):
    with pytest.raises(InvalidArgument, match="limit is"):
        await app.queues.next_jobs("default", limit)


async def test_positions_are_made_even(app, send, store):
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    jobs = [(await send.enqueue(n)).id for n in range(3)]
    await app.move(jobs[2], before=jobs[1])

    assert await app.queues.renumber("default") == 2

    assert [job.position for job in await app.queues.next_jobs("default", 5)] == [100, 200, 300]


@pytest.mark.parametrize("queue", ["", "two words", None])
async def test_a_queue_that_is_no_name_is_refused(app, queue):
    for attempt in (app.queues.next_jobs(queue, 1), app.queues.renumber(queue)):
        with pytest.raises(InvalidArgument, match="queue is"):
            await attempt
