"""Direct runs as a caller sees them."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from outlast import (
    InvalidArgument,
    InvalidJob,
    InvalidParams,
    NoWorkerAvailable,
    Outlast,
    QueueBusy,
    Settings,
    State,
)
from outlast.core.event import Failed, Succeeded
from outlast.core.reservation import ReservationStatus
from outlast.jobs.direct_run import DirectRunOptions

AT = datetime(2030, 1, 1, tzinfo=UTC)
MANY = 100


@pytest.fixture
def story(app):
    @app.job
    async def story(chapter: int) -> int:
        return chapter

    return story


async def held(app, *, active_only=True):
    return await app.store.reservations(active_only=active_only, limit=MANY)


async def until_held(app):
    """The reservation of whoever has begun a direct run."""
    async with asyncio.timeout(120):
        while not (found := await held(app)):  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0)
    return found[0]


async def test_direct_run_answers_when_a_worker_has_taken_the_job(app, story, hand):
    calling = asyncio.create_task(story.run_now(chapter=3))
    reservation = await until_held(app)

    claim = await hand.take("story")
    handle = await calling
    await hand.end(claim, Succeeded("3"))

    assert (handle.id, handle.created) == (claim.id, True)
    assert claim.id == reservation.job_id
    assert await handle.result() == 3


async def test_direct_job_goes_before_all_others(app, story, hand):
    await story.options(priority=9).enqueue(chapter=1)
    calling = asyncio.create_task(story.run_now(chapter=2))
    await until_held(app)

    claim = await hand.take("story")

    assert (await calling).id == claim.id
    assert claim.params == '{"chapter":2}'


async def test_direct_job_is_not_retried_unless_asked(app, story, hand):
    ends = []
    for options in (story, story.options(max_attempts=2)):
        calling = asyncio.create_task(options.run_now(chapter=1))
        await until_held(app)
        claim = await hand.take("story")
        handle = await calling
        await hand.end(claim, Failed("broke"))
        ends.append((await handle.read()).state)
        if ends[-1] is State.RETRY_WAIT:
            await handle.cancel()

    assert ends == [State.DEAD_LETTER, State.RETRY_WAIT]


async def test_second_direct_run_waits_for_the_first(app, story, hand):
    first = asyncio.create_task(story.run_now(chapter=1))
    before = await until_held(app)
    second = asyncio.create_task(story.run_now(chapter=2))
    await asyncio.sleep(0)

    assert (await hand.take("story")).id == before.job_id
    await first
    async with asyncio.timeout(120):
        while (after := await until_held(app)).id == before.id:  # noqa: ASYNC110 - same
            await asyncio.sleep(0)
    await hand.take("story")

    assert (await second).id == after.job_id


async def test_second_direct_run_can_be_rejected_at_once(app, story, hand):
    first = asyncio.create_task(story.options(request="req-7").run_now(chapter=1))
    reservation = await until_held(app)

    with pytest.raises(QueueBusy, match=r"resource busy: .* is held by .*req-7") as busy:
        await story.options(on_busy="reject").run_now(chapter=2)

    assert reservation.caller in str(busy.value)
    assert (busy.value.queue, busy.value.until) == ("default", reservation.expires_at)
    await hand.take("story")
    await first


async def test_wait_for_a_busy_queue_ends(app, story, hand):
    first = asyncio.create_task(story.run_now(chapter=1))
    await until_held(app)

    with pytest.raises(QueueBusy, match="resource busy"):
        await story.options(wait="20ms").run_now(chapter=2)

    assert len(await hand.stored()) == 1
    await hand.take("story")
    await first


async def test_paused_queue_is_told_at_once_with_its_reason(app, story, hand, clock):
    await app.queues.pause("default", reason="deploy", duration="5m")

    with pytest.raises(QueueBusy, match=r'queue "default" is paused \(deploy\) until 20') as busy:
        await story.run_now(chapter=1)

    assert busy.value.until == clock.now() + timedelta(minutes=5)
    assert await hand.stored() == []


async def test_nobody_takes_it_in_time(app, story, hand):
    with pytest.raises(
        NoWorkerAvailable, match=r'no worker took job .* from queue "default" within 0:00'
    ):
        await story.options(wait="20ms").run_now(chapter=1)

    [job_id] = await hand.stored()
    [reservation] = await held(app, active_only=False)
    assert (await app.get(job_id)).state is State.CANCELLED
    assert (reservation.status, reservation.reason) == (ReservationStatus.RELEASED, None)


async def test_answer_that_nobody_took_it_says_what_stopped_it(app, story):
    with pytest.raises(NoWorkerAvailable, match='no live worker serves queue "default"'):
        await story.options(wait="20ms").run_now(chapter=1)

    calling = asyncio.create_task(story.options(wait="200ms").run_now(chapter=1))
    await until_held(app)
    await app.queues.pause("default", reason="deploy")
    with pytest.raises(
        NoWorkerAvailable, match=r'queue "default" is paused since .*: deploy\. It is canc'
    ):
        await calling


async def test_cancelled_caller_leaves_nothing_behind(app, story, hand):
    calling = asyncio.create_task(story.run_now(chapter=1))
    await until_held(app)

    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    [job_id] = await hand.stored()
    job = await app.get(job_id)
    assert (job.state, job.reason) == (State.CANCELLED, "withdrawn")
    assert [each.status for each in await held(app, active_only=False)] == ["released"]


async def test_caller_cancelled_at_any_moment_leaves_no_queue_held(app, story):
    """Also while the store is being asked: what it then writes is taken back."""
    for turns in range(12):
        calling = asyncio.create_task(story.run_now(chapter=1))
        for _ in range(turns):
            await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])

        assert await held(app) == []
    assert await app.store.peek("default", limit=MANY) == []


async def test_caller_that_times_out_leaves_nothing_behind(app, story):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await story.run_now(chapter=1)

    assert await held(app) == []


async def test_caller_renews_while_it_waits(store, clock, hand):
    async with Outlast(store, poll="5ms", reservation="1s") as app:

        @app.job
        async def story(chapter: int) -> None: ...

        calling = asyncio.create_task(story.run_now(chapter=1))
        before = await until_held(app)
        clock.advance("900ms")

        async with asyncio.timeout(120):
            while (after := await until_held(app)) == before:  # noqa: ASYNC110 - same
                await asyncio.sleep(0.01)
        await hand.take("story")
        await calling

    assert after.expires_at == clock.now() + timedelta(seconds=1)


async def test_reservation_names_process_and_request_and_lasts_as_set(app, story, hand, clock):
    calling = asyncio.create_task(story.options(request="req-7").run_now(chapter=1))
    reservation = await until_held(app)
    await hand.take("story")
    await calling

    assert reservation.request == "req-7"
    assert reservation.caller.startswith("caller.")
    assert reservation.reserved_by == f"{reservation.caller} for req-7"
    assert reservation.expires_at - reservation.reserved_at == timedelta(minutes=5)
    assert Settings().reservation == timedelta(minutes=5)
    assert Settings().direct_wait == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "k"),
        ("slot", AT),
        ("delay", "5m"),
        ("at", AT),
        ("start_within", "5m"),
        ("tx", object()),
    ],
)
async def test_what_makes_no_sense_for_a_direct_run_is_refused(app, story, hand, name, value):
    with pytest.raises(InvalidJob, match=f"{name} makes no sense with run_now"):
        await story.options(**{name: value}).run_now(chapter=1)

    assert await hand.stored() == []


async def test_once_type_has_no_direct_run(app, hand):
    @app.job(delivery="once")
    async def brief() -> None: ...

    with pytest.raises(InvalidJob, match=r"delivered once per slot, and a direct run takes none"):
        await brief.run_now()


async def test_params_are_checked_before_anything_is_held(app, story, hand):
    with pytest.raises(InvalidParams):
        await story.run_now(chapter="three")

    assert (await hand.stored(), await held(app, active_only=False)) == ([], [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wait": "soon"}, "wait is 'soon'"),
        ({"wait": timedelta(seconds=-1)}, "wait is "),
        ({"on_busy": "shout"}, "on_busy is 'shout'; use wait or reject"),
        ({"request": ""}, "request is ''"),
        ({"request": "x" * 513}, "request is 'xxx"),
        ({"request": "a\0b"}, "request is "),
        ({"request": 7}, "request is 7"),
    ],
)
async def test_bad_options_are_refused(story, options, message):
    with pytest.raises(InvalidArgument, match=message):
        story.options(**options)


@pytest.mark.parametrize("options", [{"wait": "5s"}, {"on_busy": "wait"}, {"request": "r"}])
async def test_options_of_a_direct_run_are_refused_elsewhere(story, hand, options):
    with pytest.raises(InvalidJob, match="are for run_now"):
        await story.options(**options).enqueue(chapter=1)
    with pytest.raises(InvalidJob, match="are for run_now"):
        story.options(**options).bind(chapter=1)

    assert await hand.stored() == []


@pytest.mark.parametrize("span", ["999ms", "61m", "0s"])
def test_reservation_has_bounds(span):
    with pytest.raises(ValueError, match=r"reservation is .*from 1 s to 1 h"):
        Settings(reservation=span)


def test_nothing_is_asked_by_default():
    DirectRunOptions().require_unused()
