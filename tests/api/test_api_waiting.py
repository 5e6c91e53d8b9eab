"""Waiting, results and cancelling, through the whole chain."""

import asyncio

import pytest

from outlast import (
    Backoff,
    JobNotFound,
    JobNotSucceeded,
    Outlast,
    State,
    TransitionRefused,
    WaitTimeout,
)
from outlast.core.event import Failed, Skipped, Stopped, Succeeded
from outlast.errors import StoreBusy, StoreClosed, StoreUnavailable
from outlast.store.contract.notifications import Notification


@pytest.fixture
def send(app):
    @app.job(retry=Backoff(2))
    def send(number: int) -> int:
        return number

    return send


@pytest.fixture
def story(app):
    @app.job(delivery="linked", retry=Backoff(3, base="0s"))
    def story() -> str: ...  # type: ignore[empty-body]

    return story


async def until_waited_for(app, jobs):
    """Return when so many are waited for, and none of them had ended at the last look."""
    waiting = app._client._waiting.mine()
    async with asyncio.timeout(120):
        while len(waiting._waiters) < jobs or not waiting._woken._waiters:  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0)


async def test_a_result_comes_back_typed(send, hand):
    handle = await send.enqueue(1)
    waiting = asyncio.create_task(handle.result())

    await hand.end(await hand.take("send"), Succeeded("7"))

    assert await waiting == 7
    assert await handle.result("2m") == 7
    assert (await handle.wait()).state is State.SUCCEEDED


async def test_a_result_is_read_by_the_type_of_the_job(app, send, hand):
    @app.job
    def numbers() -> set[int]: ...  # type: ignore[empty-body]

    handle = app.handle((await numbers.enqueue()).id)
    await hand.end(await hand.take("numbers"), Succeeded("[1,2]"))

    assert await handle.result() == {1, 2}


async def test_an_app_that_does_not_know_the_type_reads_plain_json(send, hand, store):
    handle = await send.enqueue(1)
    await hand.end(await hand.take("send"), Succeeded('{"a":1}'))

    assert await Outlast(store).handle(handle.id).result() == {"a": 1}


async def test_waiting_follows_a_chain_to_its_tip(story, hand):
    handle = await story.enqueue()
    waiting = asyncio.create_task(handle.wait())
    result = asyncio.create_task(handle.result())

    await hand.end(await hand.take("story"), Failed("first"))
    await asyncio.sleep(0)
    await hand.end(await hand.take("story"), Failed("second"))
    await hand.end(await hand.take("story"), Succeeded('"the end"'))

    assert await result == "the end"
    tip = await waiting
    assert (tip.root_id, tip.state) == (handle.id, State.SUCCEEDED)
    assert tip.id != handle.id
    assert await handle.result() == "the end"


async def test_a_chain_that_gives_up_has_no_result(story, hand):
    handle = await story.enqueue()
    for word in ("first", "second", "third"):
        await hand.end(await hand.take("story"), Failed(f"ValueError: {word}"))

    with pytest.raises(
        JobNotSucceeded, match=r"ended dead_letter \(.*\): ValueError: third"
    ) as end:
        await handle.result()

    assert (end.value.state, end.value.error) == (State.DEAD_LETTER, "ValueError: third")


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (Failed("boom", permanent=True), State.DEAD_LETTER),
        (Skipped("nothing new"), State.SKIPPED),
        (Stopped("enough"), State.CANCELLED),
    ],
)
async def test_a_job_that_ended_otherwise_has_no_result(send, hand, event, state):
    handle = await send.enqueue(1)
    await hand.end(await hand.take("send"), event)

    with pytest.raises(JobNotSucceeded, match=f'of type "send" ended {state}') as refusal:
        await handle.result()

    assert refusal.value.state == state


async def test_a_wait_is_over_in_time_and_the_job_goes_on(send):
    handle = await send.enqueue(1)

    with pytest.raises(WaitTimeout, match=f"job {handle.id} has not ended within 20ms"):
        await handle.wait("20ms")

    assert (await handle.read()).state is State.QUEUED


async def test_a_wait_that_timed_out_says_in_one_line_why_the_job_waits(app, send, monkeypatch):
    monkeypatch.setattr("outlast.jobs.client.EXPLAIN_TIMEOUT_S", 120.0)
    handle = await send.options(queue="mail").enqueue(1)

    with pytest.raises(WaitTimeout) as unserved:
        await handle.result("10ms")
    await app.queues.pause("mail", reason="deploy")
    with pytest.raises(WaitTimeout) as paused:
        await app.wait(handle.id, "10ms")

    assert str(unserved.value) == (
        f'job {handle.id} has not ended within 10ms: no live worker serves queue "mail" (clears '
        "when: `outlast worker -q mail`). It is not cancelled: wait again, or cancel it"
    )
    assert 'queue "mail" is paused' in str(paused.value)
    assert "deploy" in str(paused.value)


async def test_a_wait_times_out_also_where_the_store_cannot_say_why(app, send, store, monkeypatch):
    handle = await send.enqueue(1)

    async def refuse(_):
        raise StoreUnavailable("no")

    monkeypatch.setattr(store, "wait_facts", refuse)
    with pytest.raises(WaitTimeout, match=r"within 10ms\. It is not cancelled"):
        await handle.wait("10ms")


@pytest.mark.parametrize("job_id", ["nope", "", "\ud800", "a\0", "x" * 1_000_000, None, 7])
async def test_a_job_nobody_knows_is_told(app, job_id):
    for ask in (app.get, app.wait, app.cancel):
        with pytest.raises(
            JobNotFound, match=r"no job .* is in this store; it was never"
        ) as refusal:
            await ask(job_id)

        assert len(str(refusal.value)) < 200


async def test_an_end_is_seen_without_any_hint(store, hand):
    store.subscribe = lambda wake, *, topics: lambda: None
    async with Outlast(store, poll="5ms") as app:

        @app.job
        def send() -> None: ...

        handle = await send.enqueue()
        waiting = asyncio.create_task(handle.wait("2m"))
        await until_waited_for(app, 1)
        await hand.end(await hand.take("send"), Succeeded())

        assert (await waiting).state is State.SUCCEEDED


async def test_a_hint_wakes_the_waiter_long_before_the_poll(store, hand):
    async with Outlast(store, poll="1h") as app:

        @app.job
        def send() -> None: ...

        handle = await send.enqueue()
        waiting = asyncio.create_task(handle.wait("2m"))
        await until_waited_for(app, 1)
        await hand.end(await hand.take("send"), Succeeded())

        assert (await waiting).state is State.SUCCEEDED


async def test_many_waiters_are_served_by_one_look(app, send, hand, store):
    looks, get = [], store.get

    async def counted(job_ids):
        looks.append(len(job_ids))
        return await get(job_ids)

    handles = await app.enqueue_many(send.bind(number) for number in range(200))
    waiting = [asyncio.create_task(handle.result()) for handle in handles]
    await until_waited_for(app, 200)
    store.get = counted
    for number in range(200):
        await hand.end(await hand.take("send"), Succeeded(str(number)))

    assert await asyncio.gather(*waiting) == list(range(200))
    assert len(looks) < 50


async def test_a_store_in_trouble_is_told_to_those_who_wait(send, store):
    handle = await send.enqueue(1)
    get, asked = store.get, []

    async def busy(job_ids):
        asked.append(job_ids)
        if len(asked) > 1:
            raise StoreBusy("somebody holds it")
        return await get(job_ids)

    store.get = busy

    with pytest.raises(StoreBusy, match="somebody holds it"):
        await handle.wait("2m")


async def test_closing_the_app_ends_the_waits(store):
    app = Outlast(store)

    @app.job
    def send() -> None: ...

    handle = await send.enqueue()
    waiting = asyncio.create_task(handle.wait())
    await until_waited_for(app, 1)
    await app.close()

    with pytest.raises(StoreClosed, match="closed while this job was being waited for"):
        await waiting


async def test_a_hint_after_the_loop_is_gone_is_harmless(store):
    app = Outlast(store)
    app.job(name="send")(lambda: None)
    wakes = []
    store.subscribe = lambda wake, *, topics: wakes.append(wake) or (lambda: None)
    handle = await app.registry.get("send").enqueue()
    waiting = asyncio.create_task(handle.wait())
    await until_waited_for(app, 1)

    app._client._waiting._loop = asyncio.new_event_loop()
    app._client._waiting._loop.close()
    wakes[0](Notification(ended=True))

    await app.close()
    with pytest.raises(StoreClosed):
        await waiting


@pytest.mark.parametrize("delay", ["0s", "1h"])
async def test_a_waiting_job_is_cancelled_at_once(send, delay):
    handle = await send.options(delay=delay).enqueue(1)

    assert await handle.cancel("no longer wanted") is State.CANCELLED

    job = await handle.read()
    assert (job.state, job.reason) == (State.CANCELLED, "no longer wanted")
    assert await handle.cancel() is State.CANCELLED


async def test_a_job_waiting_for_its_retry_is_cancelled_at_once(send, hand):
    handle = await send.enqueue(1)
    await hand.end(await hand.take("send"), Failed("boom"))

    assert await handle.cancel() is State.CANCELLED


async def test_a_running_job_is_asked_to_stop_once(app, send, hand):
    handle = await send.enqueue(1)
    claim = await hand.take("send")

    assert await handle.cancel("please") is State.RUNNING
    assert await handle.cancel("please!") is State.RUNNING
    assert (await handle.read()).cancel_requested
    assert [event.reason for event in await app.events(handle.id)] == ["please"]

    await hand.end(claim, Stopped("please"))
    assert await handle.cancel() is State.CANCELLED


async def test_the_tip_of_a_chain_is_what_is_cancelled(story, hand):
    handle = await story.enqueue()
    await hand.end(await hand.take("story"), Failed("boom"))

    assert await handle.cancel() is State.CANCELLED

    tip = await handle.wait()
    assert (tip.retry_of, tip.state) == (handle.id, State.CANCELLED)


@pytest.mark.parametrize(
    "event", [Succeeded(), Skipped(), Failed("boom", permanent=True)], ids=["done", "skip", "dead"]
)
async def test_an_ended_job_cannot_be_cancelled(send, hand, event):
    handle = await send.enqueue(1)
    await hand.end(await hand.take("send"), event)

    with pytest.raises(
        TransitionRefused, match=f"job {handle.id} is .*; nothing is left to cancel"
    ):
        await handle.cancel()


async def test_a_cancel_that_lost_a_race_is_decided_again(send, hand, store):
    handle = await send.enqueue(1)
    apply, tries = store.apply, []

    async def raced(changes):
        tries.append(changes)
        if len(tries) == 1:
            store.apply = apply
            await hand.take("send")
        return await apply(changes)

    store.apply = raced

    assert await handle.cancel() is State.RUNNING
    assert (await handle.read()).cancel_requested


async def test_a_cancel_that_always_loses_gives_up(send, store):
    handle = await send.enqueue(1)

    async def never(changes):
        return [False] * len(changes)

    store.apply = never

    with pytest.raises(TransitionRefused, match="was changed 100 times meanwhile; cancel it again"):
        await handle.cancel()


async def test_a_long_reason_is_cut(send):
    handle = await send.enqueue(1)

    await handle.cancel("x" * 1_000_000 + "\0")

    assert len((await handle.read()).reason) <= 1024
