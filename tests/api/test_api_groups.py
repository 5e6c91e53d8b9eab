"""Groups as a caller has them: all is checked first, and all of it is stored or none runs."""

import asyncio
from dataclasses import replace

import pytest

from outlast import (
    DuplicateJob,
    GroupHandle,
    GroupNotFound,
    GroupState,
    InvalidGroup,
    Outlast,
    State,
    TransitionRefused,
    TypeNotFound,
    WaitTimeout,
)
from outlast.core.event import Failed, Succeeded
from outlast.core.group import ClosePolicy, GroupMode, OnMemberFailure
from outlast.errors import StoreBusy
from outlast.jobs import groups
from outlast.store.contract.jobs import Filter
from outlast.testing.model.store import ModelStore

NOBODY = "00000000-0000-7000-8000-ffffffffffff"


@pytest.fixture
def send(app):
    @app.job
    def send(number: int) -> int:
        return number

    return send


async def test_members_are_stored_in_the_order_given(app, send, store):
    group = await app.groups.start(send.bind(n) for n in range(2 * groups.CHUNK + 1))

    jobs = await store.find(Filter(group=group.id), limit=10_000)
    assert [job.params for job in jobs[::-1]] == [
        f'{{"number":{n}}}' for n in range(2 * groups.CHUNK + 1)
    ]
    record = await group.read()
    assert (record.total, record.counts) == (2001, {State.SCHEDULED: 2001})
    assert {job.group_id for job in jobs} == {group.id}


@pytest.mark.parametrize(
    ("asked", "mode", "on_failure"),
    [
        ({}, "parallel", "continue"),
        ({"mode": "sequential"}, "sequential", "stop"),
        ({"mode": "sequential", "on_failure": "continue"}, "sequential", "continue"),
        ({"on_failure": "skip"}, "parallel", "skip"),
    ],
)
async def test_a_failure_stops_a_sequential_group_unless_told_otherwise(
    app, send, asked, mode, on_failure
):
    group = await app.groups.start([send.bind(1)], name="nightly", **asked)

    record = await group.read()

    assert (record.mode, record.on_failure) == (GroupMode(mode), OnMemberFailure(on_failure))
    assert record.name == "nightly"


async def test_options_of_each_member_are_kept(app, send, hand):
    @app.job(queue="other")
    def fetch(url: str) -> None: ...

    group = await app.groups.start(
        [send.options(priority=9, key="k").bind(1), fetch.bind("x"), send.bind(2)]
    )

    jobs = await group.jobs()
    assert [(j.type, j.queue, j.priority) for j in jobs[::-1]] == [
        ("send", "default", 9),
        ("fetch", "other", 0),
        ("send", "default", 0),
    ]


BAD_ASKS = [
    ({"mode": "both"}, "mode is 'both'; use parallel, sequential"),
    ({"mode": None}, "mode is None"),
    ({"on_failure": "ignore"}, "on_failure is 'ignore'; use stop, continue, skip"),
    ({"on_failure": 7}, "on_failure is 7"),
    ({"name": ""}, "name of a group is ''"),
    ({"name": "x" * 513}, "name of a group is"),
    ({"name": "a\0b"}, "NUL"),
]


@pytest.mark.parametrize(("asked", "words"), BAD_ASKS)
async def test_what_makes_no_sense_is_refused_before_anything_is_stored(
    app, send, store, asked, words
):
    with pytest.raises(InvalidGroup, match=words):
        await app.groups.start([send.bind(1)], **asked)

    assert await store.find_groups(limit=10) == []
    assert await store.find(Filter(), limit=10) == []


async def test_a_group_without_jobs_is_refused(app, store):
    with pytest.raises(InvalidGroup, match="without jobs"):
        await app.groups.start([])

    assert await store.find_groups(limit=10) == []


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (lambda send: send, "member 1 of the group is <job type 'send'"),
        (lambda _: None, "member 1 of the group is None"),
        (lambda send: send.options(priority=1), "member 1 of the group is <"),
        (lambda send: send.options(tx=object()).bind(2), "member 1 of the group has a tx"),
        (lambda send: send.options(group_id="g").bind(2), "member 1 .* has a group_id"),
    ],
)
async def test_a_member_that_is_no_bound_job_is_named_by_its_place(app, send, store, member, words):
    with pytest.raises(InvalidGroup, match=words):
        await app.groups.start([send.bind(1), member(send)])

    assert await store.find_groups(limit=10) == []


async def test_a_stranger_is_named_by_its_place(app, send, store, clock, ids):
    other = Outlast(ModelStore(clock, ids))

    @other.job
    def foreign() -> None: ...

    with pytest.raises(TypeNotFound, match=r'member 1 .*"foreign" belongs to another app'):
        await app.groups.start([send.bind(1), foreign.bind()])

    assert await store.find_groups(limit=10) == []


async def test_too_many_members_are_refused_without_reading_on(app, send, monkeypatch):
    monkeypatch.setattr(groups, "MOST", 3)
    asked = []

    def endless():
        while True:
            asked.append(1)
            yield send.bind(1)

    with pytest.raises(InvalidGroup, match="more than 3 jobs"):
        await app.groups.start(endless())

    assert len(asked) == 4


async def test_a_source_that_breaks_leaves_nothing(app, send, store):
    def broken():
        yield send.bind(1)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        await app.groups.start(broken())

    assert await store.find_groups(limit=10) == []


async def test_a_taken_key_stops_the_whole_group_and_is_named(app, send, store, hand):
    first = await send.options(key="k").enqueue(0)
    taken = await hand.take("send")

    with pytest.raises(DuplicateJob, match=r"member 2 .* key or slot") as refusal:
        await app.groups.start(
            [send.bind(1), send.bind(2), send.options(key="k").bind(3), send.bind(4)]
        )

    assert refusal.value.existing == first.id == taken.id
    [record] = await store.find_groups(limit=10)
    assert record.counts == {State.CANCELLED: 3}
    assert (record.sealed_at, record.closing) == (None, ClosePolicy.STOP)


async def test_a_member_the_store_refuses_stops_the_whole_group(app, send, store, monkeypatch):
    add = store.add

    async def refuse_the_second(jobs):
        return await add([replace(job, params="\0" if n == 1 else "1") for n, job in _of(jobs)])

    monkeypatch.setattr(store, "add", refuse_the_second)
    with pytest.raises(InvalidGroup, match=r'member 1 .*"send".* was not stored: params hold NUL'):
        await app.groups.start([send.bind(1), send.bind(2)])

    [record] = await store.find_groups(limit=10)
    assert record.counts == {State.CANCELLED: 1}


def _of(jobs):
    return list(enumerate(jobs))


async def test_a_store_that_fails_half_way_leaves_a_group_that_never_runs(
    app, send, store, monkeypatch, hand
):
    add, calls = store.add, []

    async def fail_the_second(jobs):
        calls.append(1)
        if len(calls) == 2:
            raise StoreBusy("locked")
        return await add(jobs)

    monkeypatch.setattr(store, "add", fail_the_second)
    with pytest.raises(StoreBusy):
        await app.groups.start(send.bind(n) for n in range(groups.CHUNK + 1))

    [record] = await store.find_groups(limit=10)
    assert record.counts == {State.CANCELLED: groups.CHUNK}


async def test_a_group_stopped_while_it_is_filled_never_runs(app, send, store, monkeypatch):
    add = store.add

    async def stop_it(jobs):
        added = await add(jobs)
        await store.stop_group(jobs[0].group_id, reason="somebody else")
        return added

    monkeypatch.setattr(store, "add", stop_it)
    with pytest.raises(InvalidGroup, match="was stopped before"):
        await app.groups.start([send.bind(1)])

    [record] = await store.find_groups(limit=10)
    assert record.counts == {State.CANCELLED: 1}


async def test_wait_ends_with_the_last_member(app, send, hand):
    group = await app.groups.start([send.bind(1), send.bind(2)])
    waiting = asyncio.ensure_future(group.wait("2m"))

    await hand.end(await hand.take("send"), Succeeded("1"))
    with pytest.raises(WaitTimeout, match=f"group {group.id} is not over"):
        await group.wait("30ms")
    assert not waiting.done()
    await hand.end(await hand.take("send"), Failed("broke", permanent=True))

    record = await waiting
    assert (record.state, record.done, record.progress) == (GroupState.FAILED, 2, 1.0)


async def test_wait_is_woken_by_the_last_end_and_not_by_the_poll(store, hand):
    async with Outlast(store, poll="60s") as app:

        @app.job
        def send(number: int) -> None: ...

        group = await app.groups.start([send.bind(1)])
        waiting = asyncio.ensure_future(group.wait("2m"))
        claim = await hand.take("send")
        while not store._listeners:  # noqa: ASYNC110 - nobody tells that somebody listens
            await asyncio.sleep(0)

        await hand.end(claim, Succeeded("1"))

        assert (await waiting).state is GroupState.SUCCEEDED
        assert store._listeners == []


async def test_wait_for_a_group_that_is_over_answers_at_once(app, send, hand):
    group = await app.groups.start([send.bind(1)])
    await hand.end(await hand.take("send"), Succeeded("1"))

    assert (await group.wait("2m")).state is GroupState.SUCCEEDED


async def test_jobs_are_read_by_page_and_by_state(app, send, hand):
    group = await app.groups.start([send.bind(n) for n in range(5)])
    await hand.end(await hand.take("send"), Succeeded("1"))

    page = await group.jobs(limit=3)
    rest = await group.jobs(limit=3, before=page[-1].seq)
    done = await group.jobs(states=[State.SUCCEEDED])

    assert len({job.id for job in (*page, *rest)}) == 5
    assert [job.state for job in done] == [State.SUCCEEDED]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, 10_001, "many"])
async def test_a_page_has_bounds(app, send, limit):
    group = await app.groups.start([send.bind(1)])

    with pytest.raises(ValueError, match="limit is"):
        await group.jobs(limit=limit)
    with pytest.raises(ValueError, match="limit is"):
        await app.groups.list(limit)


async def test_cancel_stops_who_waits_and_asks_who_runs(app, send, hand):
    group = await app.groups.start([send.bind(n) for n in range(3)])
    claim = await hand.take("send")

    stopping = await group.cancel("not wanted")
    [running] = await group.jobs(states=[State.RUNNING])
    again = await group.cancel("twice")
    await hand.end(claim, Failed("told to stop"))

    assert (stopping.state, stopping.reason) == (GroupState.RUNNING, "not wanted")
    assert stopping.counts == again.counts == {State.RUNNING: 1, State.CANCELLED: 2}
    assert running.cancel_requested
    assert (await group.wait("2m")).counts == {State.CANCELLED: 3}


async def test_a_group_that_is_over_cannot_be_cancelled(app, send, hand):
    group = await app.groups.start([send.bind(1)])
    await hand.end(await hand.take("send"), Succeeded("1"))

    with pytest.raises(TransitionRefused, match=f"group {group.id} is succeeded"):
        await group.cancel()


async def test_a_group_is_found_by_its_id_and_in_the_list(app, send):
    first = await app.groups.start([send.bind(1)], name="first")
    second = await app.groups.start([send.bind(1)], name="second")

    page = await app.groups.list(1)
    rest = await app.groups.list(before=page[-1].seq)

    assert [(group.id, group.name) for group in (*page, *rest)] == [
        (second.id, "second"),
        (first.id, "first"),
    ]
    assert (await app.groups.handle(first.id).read()).name == "first"
    assert repr(first) == f"GroupHandle({first.id})"


@pytest.mark.parametrize(
    "ask", [GroupHandle.read, GroupHandle.wait, GroupHandle.cancel], ids=lambda ask: ask.__name__
)
async def test_a_group_that_is_not_there_is_named(app, ask):
    with pytest.raises(GroupNotFound, match=f"no group '{NOBODY}'"):
        await ask(app.groups.handle(NOBODY))


@pytest.mark.parametrize("text", ["", "ü", "x" * 100, None, 7])
def test_what_cannot_be_an_id_is_not_found(app, text):
    with pytest.raises(GroupNotFound):
        app.groups.handle(text)
