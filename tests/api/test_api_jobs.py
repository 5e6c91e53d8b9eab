"""`app.jobs`: stored jobs from Python by condition, page by page, and all of them cancelled."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from outlast import InvalidArgument, Outlast, State
from outlast.core.event import Failed, Succeeded

CONDITIONS = {
    "state": "queued", "type": "small", "queue": "default", "key": "k", "group": "g",
    "since": "1h", "tag": "t", "meta": {"a": 1}, "params": {"n": 1}, "error": "boom",
}  # fmt: skip


@pytest.fixture
def small(app):
    @app.job
    async def small(n: int, where: dict[str, str] | None = None) -> int:
        return n

    return small


@pytest.fixture
def mail(app):
    @app.job(name="mail.send", queue="mail")
    async def mail(to: str) -> None: ...

    return mail


async def found(app, **query):
    return [job.id async for job in app.jobs.find(**query)]


async def test_find_yields_the_newest_jobs_first(app, small, mail):
    handles = [await small.enqueue(n) for n in range(3)] + [await mail.enqueue("ada")]

    assert await found(app) == [handle.id for handle in reversed(handles)]


async def test_find_yields_each_job_once_over_many_pages(app, small, monkeypatch):
    monkeypatch.setattr("outlast.jobs.job_search.PAGE", 3)
    handles = await app.enqueue_many(small.bind(n) for n in range(10))

    assert await found(app, type="small") == [handle.id for handle in reversed(handles)]


async def test_find_reads_no_more_pages_than_are_asked_for(app, small, store, monkeypatch):
    monkeypatch.setattr("outlast.jobs.job_search.PAGE", 2)
    await app.enqueue_many(small.bind(n) for n in range(10))
    pages, find = [], store.find

    async def counted(*args, **options):
        pages.append(options["limit"])
        return await find(*args, **options)

    monkeypatch.setattr(store, "find", counted)
    async for _ in app.jobs.find():
        break

    assert pages == [2]


async def test_each_condition_narrows_the_jobs(app, small, mail, hand, clock):
    old = await small.options(key="k1").enqueue(1, {"town": "Rome"})
    clock.advance(timedelta(hours=2))
    group = await app.groups.start([small.bind(2)])
    [new] = await group.jobs()
    sent = await mail.options(key="ada", key_until="end").enqueue("ada")
    await hand.end(await hand.take("mail.send", queue="mail"), Failed("Boom: no route"))

    assert await found(app, queue="mail") == await found(app, type="mail.*") == [sent.id]
    assert await found(app, queue="ma?l", type="mail.send") == [sent.id]
    assert await found(app, key="k1") == [old.id]
    assert await found(app, key="ada") == await found(app, error="no ROUTE") == [sent.id]
    assert await found(app, group=group.id) == [new.id]
    assert await found(app, since="1h") == [sent.id, new.id]
    assert await found(app, since=new.created_at, type="small") == [new.id]
    labelled = await small.options(tags=["a", "b"], meta={"tenant": "acme"}).enqueue(9)
    assert await found(app, tag="a") == await found(app, tag=["b", "a"]) == [labelled.id]
    assert await found(app, meta={"tenant": "acme"}, tag="b") == [labelled.id]
    assert await found(app, tag=["a", "c"]) == []
    await labelled.cancel()
    assert await found(app, params={"n": 1}) == await found(app, params={"where.town": "Rome"})
    assert await found(app, state=["retry_wait", "running"]) == [sent.id]
    assert await found(app, state="waiting", type="small") == [new.id, old.id]
    assert await found(app, state=State.SUCCEEDED) == []
    assert await found(app, state=None, queue=None) == [labelled.id, sent.id, new.id, old.id]


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"state": "runing"}, "did you mean running"),
        ({"state": []}, "give one, or a list"),
        ({"state": 3}, "give one, or a list"),
        ({"states": ["queued"]}, "did you mean state"),
        ({"since": "soon"}, "since"),
        ({"type": "two words"}, "use 1 to 128 of the characters"),
        ({"params": 3}, "give a mapping"),
        ({"error": 3}, "give a part of the error text"),
        ({"key": ""}, "use text of 1"),
        ({"tag": 3}, "tags is 3"),
        ({"meta": 3}, "meta is 3"),
    ],
)
async def test_a_wrong_condition_is_refused_and_says_what_is_right(app, small, wrong, remedy):
    with pytest.raises(InvalidArgument, match=remedy):
        await found(app, **wrong)
    with pytest.raises(InvalidArgument, match=remedy):
        await app.jobs.cancel(**wrong)


async def test_pages_continue_where_the_last_one_ended_and_none_follows_the_last(app, small):
    handles = await app.enqueue_many(small.bind(n) for n in range(5))

    first = await app.jobs.page(limit=2, type="s*")
    await small.enqueue(9)  # a newer job shifts no page
    second = await app.jobs.page(limit=3, type="s*", after=first.after)

    ids = [job.id for page in (first, second) for job in page.jobs]
    assert ids == [handle.id for handle in reversed(handles)]
    assert second.after is None


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 10_001}, {"after": "x"}, {"after": 3}])
async def test_a_wrong_page_is_refused(app, wrong):
    with pytest.raises(InvalidArgument, match=r"use a whole number|give the `after` of a page"):
        await app.jobs.page(**wrong)


async def test_all_that_match_are_cancelled_and_the_others_stay(app, small, mail, hand):
    await app.enqueue_many(small.bind(n) for n in range(3))
    sent = await mail.enqueue("ada")
    running = await hand.take("small")

    done = await app.jobs.cancel(type="small", reason="not needed")

    states = [job.state async for job in app.jobs.find(type="small")]
    assert states == [State.CANCELLED, State.CANCELLED, State.RUNNING]
    assert (await app.get(running.id)).cancel_requested
    assert (done.changed, done.refused, done.is_complete) == (3, {}, True)
    assert (await sent.read()).state is State.QUEUED
    assert (await app.jobs.cancel(type="small")).changed == 0, "it can be repeated"


@pytest.mark.parametrize(
    "empty",
    [{"tag": []}, {"tag": iter(())}, {"tag": ""}, {"meta": {}}, {"params": {}}, {"error": ""}],
    ids=["no tags", "an iterator", "tag", "meta", "params", "error"],
)
async def test_an_empty_condition_is_refused_and_selects_not_every_job(app, small, mail, empty):
    waiting = await mail.options(delay="1h").enqueue("ada")

    with pytest.raises(InvalidArgument):
        await app.jobs.cancel(**empty)
    with pytest.raises(InvalidArgument):
        await app.jobs.page(**({"tag": []} if "tag" in empty else empty))

    assert (await waiting.read()).state is State.SCHEDULED


async def test_cancel_stops_at_its_limit_and_says_so(app, small, monkeypatch):
    monkeypatch.setattr("outlast.jobs.bulk.BATCH", 2)
    await app.enqueue_many(small.bind(n) for n in range(6))

    first = await app.jobs.cancel(limit=5)
    rest = await app.jobs.cancel(limit=5)

    assert (first.changed, first.is_complete) == (5, False)
    assert (rest.changed, rest.is_complete) == (1, True)


async def test_a_job_that_ends_meanwhile_is_refused_and_told(app, small, store, hand, monkeypatch):
    first, second = await small.enqueue(1), await small.enqueue(2)
    running = await hand.take("small")
    apply = store.apply

    async def late(changes):
        if len(changes) == 2:  # the batch of the two: the running one ends before it
            monkeypatch.setattr(store, "apply", apply)
            await hand.end(running, Succeeded("1"))
        return await apply(changes)

    monkeypatch.setattr(store, "apply", late)
    done = await app.jobs.cancel()

    assert [handle.id for handle in done.handles] == [second.id]
    assert done.refused.keys() == {first.id}
    assert "nothing is left to cancel" in done.refused[first.id]


async def test_a_job_that_moved_on_meanwhile_is_cancelled_as_it_is_now(app, small, store, hand):
    handle = await small.enqueue(1)
    find = store.find

    async def late(*args, **options):
        page = await find(*args, **options)
        if page:
            await hand.take("small")  # it is claimed after it was read
        return page

    store.find = late
    done = await app.jobs.cancel()

    assert done.changed == 1
    job = await handle.read()
    assert (job.state, job.cancel_requested) == (State.RUNNING, True)


async def test_cancel_refuses_states_that_have_ended(app, small):
    with pytest.raises(InvalidArgument, match="jobs that are succeeded are never cancelled"):
        await app.jobs.cancel(state=["queued", "succeeded"])


async def test_sync_code_finds_and_cancels_too(tmp_path: Path) -> None:
    app = Outlast(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job
    def small(n: int) -> None: ...

    def use() -> None:
        with app.sync() as wait:
            wait(app.enqueue_many(small.bind(n) for n in range(3)))
            assert [job.type for job in wait.each(app.jobs.find())] == ["small"] * 3
            assert wait(app.jobs.cancel()).changed == 3
            assert wait(app.jobs.retry(state="cancelled")).changed == 3
            named = wait(app.enqueue("small", {"n": 4}))
            assert wait(small.handle(named.id).read()).type == "small"

    await asyncio.to_thread(use)


def test_every_condition_has_a_test() -> None:
    from outlast.jobs.job_search import JobQuery  # noqa: PLC0415 - the list of conditions

    assert JobQuery.__annotations__.keys() == CONDITIONS.keys()


async def test_conditions_may_be_combined(app, small):
    assert await found(app, **CONDITIONS) == []
