"""Retrying by hand, one or many, and the lineage that comes of it."""

import asyncio
from dataclasses import replace

import pytest

from outlast import (
    Backoff,
    BulkResult,
    DuplicateJob,
    InvalidArgument,
    JobNotFound,
    Outlast,
    State,
    TransitionRefused,
)
from outlast.core.event import CancelRequested, Failed, Released, Skipped, Succeeded
from outlast.core.lineage import Lineage

DEAD = Failed("no", permanent=True)


@pytest.fixture
def send(app):
    @app.job(retry=Backoff(3, base="0s"), queue="mail", priority=4)
    def send(number: int) -> int:
        return number

    return send


@pytest.fixture
def dead(send, hand):
    """Enqueues a job that ends by that event; its handle."""

    async def make(number=1, event=DEAD, **options):
        handle = await send.options(**options).enqueue(number)
        queue = options.get("queue", "mail")
        await hand.end(await hand.take("send", queue=queue), event)
        return handle

    return make


async def test_a_retry_is_a_copy_that_counts_from_zero(app, dead):
    before = await dead(7, max_attempts=2, group_id="g", key="a", key_until="end")

    handle = await app.retry(before.id)

    old, new = await before.read(), await handle.read()
    copied = ("type", "name", "params", "queue", "priority", "max_attempts", "delivery")
    copied += ("group_id", "active_key")
    assert {name: getattr(new, name) for name in copied} == {
        name: getattr(old, name) for name in copied
    }
    assert (new.retry_of, new.root_id) == (old.id, old.id)
    assert (new.state, new.failures, new.token) == (State.QUEUED, 0, 0)
    assert handle.created
    assert old.state is State.DEAD_LETTER


async def test_a_retry_whose_active_key_is_taken_is_refused_with_its_holder(app, send, dead):
    before = await dead(1, key="user:7", key_until="end")
    holder = await send.options(key="user:7", key_until="end").enqueue(2)

    with pytest.raises(DuplicateJob, match=f"job {holder.id} holds its key") as refused:
        await app.retry(before.id)

    assert refused.value.existing == holder.id
    bulk = await app.jobs.retry(queue="mail")
    assert (bulk.changed, list(bulk.refused)) == (0, [before.id])
    assert f"job {holder.id} holds its active key" in bulk.refused[before.id]


async def test_of_many_with_one_active_key_one_is_retried(app, dead):
    jobs = [await dead(number, key="user:7", key_until="end") for number in range(3)]

    done = await app.jobs.retry(queue="mail")

    assert done.changed == 1
    assert (await done.handles[0].read()).retry_of == jobs[-1].id
    assert done.refused.keys() == {job.id for job in jobs[:-1]}


async def test_the_template_and_schedule_are_copied_too(app, store, dead, clock):
    job = await (await dead()).read()
    marked = replace(job, template_id="t", template_at=clock.now(), schedule_id="s")
    store._tables.jobs[job.id] = marked

    new = await (await app.retry(job.id)).read()

    assert (new.template_id, new.template_at, new.schedule_id) == ("t", clock.now(), "s")


async def test_waiting_for_the_old_job_gives_the_result_of_the_new(app, dead, hand):
    before = await dead()
    await app.retry(before.id)

    await hand.end(await hand.take("send", queue="mail"), Succeeded("5"))

    assert await before.result("2m") == 5


async def test_any_job_of_the_chain_names_its_tip(app, dead, hand):
    root = await dead()
    second = await app.retry(root.id)
    await hand.end(await hand.take("send", queue="mail"), DEAD)

    third = await app.retry(root.id)

    assert (await third.read()).retry_of == second.id


@pytest.mark.parametrize("event", [DEAD, Skipped("empty"), CancelRequested()])
async def test_what_ended_without_success_can_be_retried(app, hand, dead, event):
    handle = await dead(event=event)
    if isinstance(event, CancelRequested):
        job = await handle.read()
        await hand.end(job, Failed("stopped"))

    assert (await (await app.retry(handle.id)).read()).retry_of == handle.id


async def test_what_succeeded_waits_or_runs_cannot(app, send, hand, dead):
    done = await dead(event=Succeeded("1"))
    waiting = await send.enqueue(2)

    for handle, state in ((done, "succeeded"), (waiting, "queued")):
        with pytest.raises(
            TransitionRefused, match=f"{handle.id} is {state}; only jobs that ended"
        ):
            await app.retry(handle.id)
    await hand.take("send", queue="mail")
    with pytest.raises(TransitionRefused, match="is running"):
        await app.retry(waiting.id)


async def test_a_retry_of_a_retry_that_waits_is_refused(app, dead):
    before = await dead()
    new = await app.retry(before.id)

    with pytest.raises(TransitionRefused, match=f"{new.id} is queued"):
        await app.retry(before.id)


async def test_what_is_delivered_once_is_never_repeated(app, hand, clock):
    @app.job(delivery="once")
    def report() -> None: ...

    handle = await report.options(slot=clock.now()).enqueue()
    await hand.end(await hand.take("report"), Failed("broke"))

    with pytest.raises(TransitionRefused, match="never repeated"):
        await app.retry(handle.id)
    done = await app.jobs.retry(state="failed")
    assert done.changed == 0
    assert "never repeated" in done.refused[handle.id]


async def test_an_unknown_job_cannot_be_retried(app):
    for verb in (app.retry, app.lineage):
        with pytest.raises(JobNotFound):
            await verb("nothing")
        with pytest.raises(JobNotFound):
            await verb("\0")


async def test_of_two_at_once_one_retries_and_the_other_learns_of_it(app, store, dead):
    before = await dead()
    read, both = store.chain, asyncio.Barrier(2)

    async def together(job_id):
        chain = await read(job_id)
        if len(chain) == 1:
            await both.wait()
        return chain

    store.chain = together
    reported = await asyncio.gather(
        app.retry(before.id), app.retry(before.id), return_exceptions=True
    )

    [lost] = [each for each in reported if isinstance(each, DuplicateJob)]
    [won] = [each for each in reported if not isinstance(each, Exception)]
    assert lost.existing == won.id
    assert len(await read(before.id)) == 2


async def test_many_are_retried_by_filter(app, dead, hand):
    mail = [await dead(number) for number in range(3)]
    lane = await dead(9, queue="lane")
    skipped = await dead(8, event=Skipped())

    done = await app.jobs.retry(queue="mail")

    jobs = [await handle.read() for handle in done.handles]
    assert [job.retry_of for job in jobs] == [handle.id for handle in reversed(mail)]
    assert (done.changed, done.refused, done.is_complete) == (3, {}, True)
    [other] = (await app.jobs.retry(type="se*")).handles
    assert (await other.read()).retry_of == lane.id
    [last] = (await app.jobs.retry(state=["skipped", State.CANCELLED])).handles
    assert (await last.read()).retry_of == skipped.id
    assert (await app.jobs.retry(type="unheard")).changed == 0


async def test_repeating_it_retries_nothing_twice(app, dead, hand):
    before = [await dead(number) for number in range(5)]

    first = await app.jobs.retry(limit=2)
    second = await app.jobs.retry(limit=2)
    rest = await app.jobs.retry(limit=100)

    assert [first.changed, second.changed, rest.changed] == [2, 2, 1]
    assert [first.is_complete, second.is_complete, rest.is_complete] == [False, False, True]
    handles = [*first.handles, *second.handles, *rest.handles]
    followed = {(await handle.read()).retry_of for handle in handles}
    assert followed == {handle.id for handle in before}
    assert await app.jobs.retry() == BulkResult(), "retried ones are left out, and not refused"


async def test_many_pages_are_gone_through(app, store, monkeypatch, dead):
    monkeypatch.setattr("outlast.jobs.job_search.PAGE", 2)
    monkeypatch.setattr("outlast.jobs.bulk.BATCH", 3)
    before = [await dead(number) for number in range(8)]
    await app.retry(before[3].id)

    assert (await app.jobs.retry()).changed == 7
    assert (await app.jobs.retry()).changed == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": ["succeeded"]},
        {"state": "nonsense"},
        {"state": []},
        {"limit": 0},
        {"limit": True},
        {"limit": 10**9},
        {"queue": "two words"},
        {"type": ""},
        {"states": ["failed"]},
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(app, dead, wrong):
    await dead()

    with pytest.raises(InvalidArgument):
        await app.jobs.retry(**wrong)
    assert (await app.jobs.retry()).changed == 1, "nothing had happened"


async def test_the_lineage_of_a_chain_counts_links_and_attempts(app, hand):
    @app.job(delivery="linked", retry=Backoff(2, base="0s"))
    def story() -> None: ...

    root = await story.enqueue()
    for _ in range(2):
        await hand.end(await hand.take("story"), Failed("no"))
    third = await app.retry(root.id)

    lineage = await app.lineage(third.id)

    assert isinstance(lineage, Lineage)
    assert (lineage.root.id, lineage.tip.id) == (root.id, third.id)
    assert [lineage.attempt(job.id) for job in lineage.jobs] == [0, 1, 2]
    assert [each.number for each in lineage.attempts] == [0, 1, 2]
    assert [each.run and each.run.status for each in lineage.attempts] == ["failed", "failed", None]
    assert await app.lineage(root.id) == lineage
    with pytest.raises(JobNotFound, match="not in the chain"):
        lineage.attempt("another")


async def test_the_lineage_of_retries_in_place_has_the_same_attempts(app, send, hand):
    handle = await send.enqueue(1)
    for event in (Failed("a"), Released("drain"), Failed("b"), Failed("c")):
        await hand.end(await hand.take("send", queue="mail"), event)
    await app.retry(handle.id)
    await hand.end(await hand.take("send", queue="mail"), Succeeded("1"))

    lineage = await app.lineage(handle.id)

    assert [(each.number, lineage.attempt(each.job.id)) for each in lineage.attempts] == [
        (0, 0),
        (1, 0),  # released: it counts as nothing
        (1, 0),
        (2, 0),
        (3, 1),
    ]
    assert lineage.tip.state is State.SUCCEEDED


async def test_another_app_can_retry_a_type_it_does_not_know(store, dead):
    before = await dead()

    handle = await Outlast(store).retry(before.id)

    assert (await handle.read()).type == "send"
