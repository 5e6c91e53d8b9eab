"""Groups in the hands of real workers: order, failures, stops, and who sweeps up."""

import asyncio
from datetime import timedelta

import pytest
from worker_helpers import AT_ONCE, SOON, quick, until

from outlast import Backoff, GroupState, Outlast, Skip, State
from outlast.core.group import NewGroup
from outlast.worker.maintenance.group_closer import INCOMPLETE_GROUP_TIMEOUT, GroupCloser
from outlast.worker.maintenance.loop import Maintenance

ONE_TRY = Backoff(1)


async def test_sequential_members_run_in_order_and_never_together(app):
    ran, running = [], []

    @app.job
    async def step(number: int) -> None:
        running.append(number)
        await asyncio.sleep(0)
        assert running == [number]
        ran.append(number)
        running.clear()

    group = await app.groups.start((step.bind(n) for n in range(20)), mode="sequential")
    async with app.worker(concurrency=4):
        record = await group.wait(SOON)

    assert ran == list(range(20))
    assert (record.state, record.counts) == (GroupState.SUCCEEDED, {State.SUCCEEDED: 20})


async def test_a_drained_worker_has_run_the_whole_sequence(app):
    @app.job
    async def step(number: int) -> None: ...

    group = await app.groups.start((step.bind(n) for n in range(10)), mode="sequential")
    async with app.worker() as worker:
        await worker.drained()

        assert (await group.read()).done == 10


async def test_parallel_members_run_together(app):
    barrier = asyncio.Barrier(2)

    @app.job
    async def meet() -> None:
        await barrier.wait()

    group = await app.groups.start([meet.bind(), meet.bind()])
    async with app.worker(concurrency=2):
        record = await group.wait(SOON)

    assert record.state is GroupState.SUCCEEDED


@pytest.mark.parametrize(
    ("on_failure", "ran", "counts"),
    [
        ("stop", [0, 1], {State.SUCCEEDED: 1, State.DEAD_LETTER: 1, State.CANCELLED: 2}),
        ("skip", [0, 1], {State.SUCCEEDED: 1, State.DEAD_LETTER: 1, State.SKIPPED: 2}),
        ("continue", [0, 1, 2, 3], {State.SUCCEEDED: 3, State.DEAD_LETTER: 1}),
    ],
)
async def test_a_failure_in_a_sequence_does_what_was_chosen(app, on_failure, ran, counts):
    calls = []

    @app.job(retry=ONE_TRY)
    async def step(number: int) -> None:
        calls.append(number)
        if number == 1:
            raise ValueError("it broke")

    bound = [step.bind(n) for n in range(4)]
    group = await app.groups.start(bound, mode="sequential", on_failure=on_failure)
    async with app.worker():
        record = await group.wait(SOON)

    assert (calls, record.counts) == (ran, counts)
    assert record.state is GroupState.FAILED


@pytest.mark.parametrize(
    ("on_failure", "end"), [("stop", State.CANCELLED), ("skip", State.SKIPPED)]
)
async def test_who_waits_beside_a_failure_is_ended_before_the_next_tick(tmp_path, on_failure, end):
    app = Outlast(f"sqlite:///{tmp_path / 'jobs.db'}", tick="1h", prefetch=0)
    swept = asyncio.Event()

    @app.job(retry=ONE_TRY)
    async def step(number: int) -> None:
        if number == 0:
            raise ValueError("it broke")
        await swept.wait()

    async def most_ended() -> bool:
        return (await group.read()).counts.get(end, 0) >= 18

    async with app:
        group = await app.groups.start([step.bind(n) for n in range(20)], on_failure=on_failure)
        async with app.worker(concurrency=1):
            await until(most_ended)
            swept.set()


async def test_a_failure_stops_the_members_that_run(app):
    started, stopped = asyncio.Event(), []

    @app.job
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(1)

    @app.job(retry=ONE_TRY)
    async def fail() -> None:
        await started.wait()
        raise ValueError("it broke")

    group = await app.groups.start([endless.bind(), fail.bind(), fail.bind()], on_failure="stop")
    async with app.worker(concurrency=2):
        record = await group.wait(SOON)

    assert stopped == [1]
    assert record.counts[State.CANCELLED] >= 1
    assert record.state is GroupState.FAILED


async def test_a_chain_is_one_member_however_often_it_is_tried(app):
    tries = []

    @app.job(delivery="linked", retry=AT_ONCE)
    async def step(number: int) -> None:
        tries.append(number)
        if tries.count(number) < 2:
            raise ValueError("once more")

    group = await app.groups.start([step.bind(n) for n in range(3)], mode="sequential")
    async with app.worker():
        record = await group.wait(SOON)

    assert tries == [0, 0, 1, 1, 2, 2]
    assert (record.counts, record.total) == ({State.SUCCEEDED: 3}, 3)
    assert len(await group.jobs()) == 6


async def test_a_retry_in_place_keeps_its_turn(app):
    tries = []

    @app.job(retry=AT_ONCE)
    async def step(number: int) -> Skip | None:
        tries.append(number)
        if len(tries) == 1:
            raise ValueError("once more")
        return Skip("nothing to do")

    group = await app.groups.start([step.bind(0), step.bind(1)], mode="sequential")
    async with app.worker():
        record = await group.wait(SOON)

    assert tries == [0, 0, 1]
    assert record.state is GroupState.SUCCEEDED


async def test_cancelling_a_group_stops_what_runs_at_once(path):
    started, stopped = asyncio.Event(), []
    async with quick(path, lease="30m", renew="10m", poll="10m", tick="10m") as app:

        @app.job
        async def endless() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(1)

        group = await app.groups.start([endless.bind() for _ in range(5)])
        async with app.worker(concurrency=2):
            await started.wait()
            await group.cancel("not wanted")
            record = await group.wait(SOON)

    assert record.state is GroupState.CANCELLED
    assert record.counts == {State.CANCELLED: 5}
    assert 1 <= len(stopped) <= 2


async def test_the_next_worker_ends_the_members_a_dead_client_left(app):
    """The group was closed by a client that died before it ended the members."""

    @app.job
    async def send(number: int) -> None: ...

    group = await app.groups.start([send.options(delay="1h").bind(n) for n in range(1200)])
    await app.store.stop_group(group.id, reason="and then it died")
    async with app.worker():
        record = await group.wait(SOON)

    assert record.counts == {State.CANCELLED: 1200}


async def test_two_workers_sweep_at_once_and_end_each_member_once(app, rival):
    @app.job
    async def send(number: int) -> None: ...

    group = await app.groups.start([send.options(delay="1h").bind(n) for n in range(1200)])
    await app.store.stop_group(group.id, reason=None)
    await rival.store.open()
    sweeps = [GroupCloser(each.store, app._ids.job) for each in (app, rival)]

    swept = await asyncio.gather(*(sweep.run_once() for sweep in sweeps))

    jobs = await group.jobs(limit=10_000)
    events = [await app.events(job.id) for job in jobs[::100]]
    assert sum(each.ended for each in swept) == 1200
    assert [len(each) for each in events] == [1] * len(events)
    assert (await group.read()).counts == {State.CANCELLED: 1200}


async def test_a_sweep_with_nothing_to_do_writes_nothing(app, path):
    @app.job
    async def send(number: int) -> None: ...

    group = await app.groups.start([send.bind(1)])
    await app.store.stop_group(group.id, reason=None)
    tidy = Maintenance(app.store, app._ids.job)

    first = await tidy.run_once()
    before = path.with_name(path.name + "-wal").stat().st_size
    second = await tidy.run_once()

    assert (first.members_ended, second.members_ended) == (1, 0)
    assert path.with_name(path.name + "-wal").stat().st_size == before


async def test_a_group_that_was_never_completed_is_stopped_after_a_while(app, monkeypatch):
    @app.job
    async def send(number: int) -> None: ...

    group_id = app._ids.job()
    await app.store.open()
    await app.store.add_group(NewGroup(id=group_id, total=2))
    group = app.groups.handle(group_id)
    sweep = GroupCloser(app.store, app._ids.job)

    early = await sweep.run_once()
    monkeypatch.setattr(
        "outlast.worker.maintenance.group_closer.INCOMPLETE_GROUP_TIMEOUT", timedelta(0)
    )
    late = await sweep.run_once()

    assert timedelta(minutes=10) == INCOMPLETE_GROUP_TIMEOUT
    assert (early.expired, late.expired, late.closed) == (0, 1, 1)
    record = await group.read()
    assert (record.state, record.reason) == (GroupState.CANCELLED, "never_completed")


async def test_a_member_lost_for_good_moves_its_group_like_any_other(app, path):
    started = asyncio.Event()

    @app.job(delivery="linked", retry=ONE_TRY, max_runtime="100ms")
    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    group = await app.groups.start([slow.bind(), slow.bind()], mode="sequential")
    async with app.worker():
        record = await group.wait(SOON)

    assert started.is_set()
    assert record.counts == {State.DEAD_LETTER: 1, State.CANCELLED: 1}


async def test_a_bare_group_id_is_no_member_of_a_running_group(app):
    ran = []

    @app.job
    async def send(number: int) -> None:
        ran.append(number)

    group = await app.groups.start([send.options(delay="1h").bind(1)], mode="sequential")
    bare = await send.options(group_id=group.id).enqueue(7)
    async with app.worker():
        await bare.wait(SOON)
        await group.cancel()
        await until(lambda: ran == [7])

    assert [job.id for job in await group.jobs()] != [bare.id]
    assert (await group.read()).total == 1
