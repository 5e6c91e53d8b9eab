"""Handlers in processes of their own: what they say arrives, and what becomes of them is known."""

import asyncio
import os
import signal

import pytest
from executor_app import ADDRESS, register
from executor_helpers import LONG, gone, run, word
from worker_helpers import SOON, all_slots_work, kinds, quick, run_out_of_time, statuses, until

from outlast import JobNotSucceeded, State
from outlast.worker.execution_pool import EXCESS_PREFETCH_REASON
from outlast.worker.executors import process

pytestmark = pytest.mark.slow


@pytest.fixture
async def app(path, tmp_path):
    async with quick(path, logs=tmp_path / "logs") as app:
        yield register(app)


@pytest.fixture
async def worker(app):
    async with app.worker(app_address=ADDRESS) as worker:
        yield worker


async def test_a_handler_runs_in_another_process_and_its_result_comes_back(app, worker):
    plain, later, who = [
        await run(app, *call) for call in (("double", 21), ("double_later", 4), ("who",))
    ]

    assert (await plain.result(LONG), await later.result(LONG)) == (42, 8)
    assert await who.result(LONG) != os.getpid()


async def test_it_knows_its_run(app, worker):
    handle = await run(app, "identity")

    reported = await handle.result(LONG)

    [record] = await app.runs(handle.id)
    assert reported == {"id": record.run_id, "job_id": handle.id, "token": 1, "attempt": 1}


async def test_two_hundred_jobs_go_through_two_processes(app, worker):
    doubles = await app.enqueue_many(app.registry.get("double").bind(n) for n in range(200))
    pids = await app.enqueue_many(app.registry.get("who").bind() for _ in range(50))

    assert [await handle.result(LONG) for handle in doubles] == [2 * n for n in range(200)]
    assert len({await handle.result(LONG) for handle in pids}) <= 2


@pytest.mark.parametrize(
    ("kind", "state", "status", "reason"),
    [
        ("snooze", State.RETRY_WAIT, "released", "later"),
        ("skip", State.SKIPPED, "skipped", "nothing there"),
        ("cancel", State.CANCELLED, "cancelled", "unwanted"),
        ("retry", State.RETRY_WAIT, "failed", "failed"),
    ],
)
async def test_an_outcome_is_what_it_is_elsewhere(app, worker, kind, state, status, reason):
    handle = await run(app, "outcome", kind)

    async def is_over():
        return [run.status for run in await app.runs(handle.id)] == [status]

    await until(is_over)

    job = await handle.read()
    assert job.state is state
    assert await statuses(app, handle) == [(status, reason)]
    if state is State.RETRY_WAIT:
        assert (job.available_at - job.created_at).total_seconds() > 3500


@pytest.mark.parametrize(
    ("kind", "name", "runs"),
    [
        ("value", "ValueError: no good", 2),
        ("key", "KeyError: 'mapped to permanent'", 1),
        ("permanent", "PermanentError: never", 1),
        ("exit", "SystemExit: 3", 2),
        ("interrupt", "KeyboardInterrupt", 2),
        ("stop", "StopIteration: odd", 2),
    ],
)
async def test_an_error_is_text_and_its_verdict_is_the_types(app, worker, kind, name, runs):
    handle = await run(app, "fail", kind)

    job = await handle.wait(LONG)

    records = await app.runs(handle.id)
    assert (job.state, len(records)) == (State.DEAD_LETTER, runs)
    assert all(name in record.error and "in fail" in record.error for record in records)
    assert {record.exit_code for record in records} == {None}


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("_exit", 7, "ended with exit status 7"),
        ("kill", -9, "was killed by SIGKILL (9)"),
        ("segfault", -11, "was killed by SIGSEGV (11)"),
        ("sigterm", 143, "ended with exit status 143"),
        ("close", 1, "ended with exit status 1"),
    ],
)
async def test_a_process_that_dies_is_a_lost_run_at_once_and_counted(
    path, tmp_path, how, code, says
):
    async with quick(path, lease="60s", renew="20s") as app:
        register(app)
        async with app.worker(app_address=ADDRESS):
            handle = await run(app, "die", how)
            result = await handle.result(LONG)

            assert await all_slots_work(app)
    assert result == "attempt 2"
    lost, _ = await app_runs(path, handle)
    assert (lost.status, lost.reason, lost.exit_code) == ("lost", "owner_dead", code)
    assert says in lost.error


async def app_runs(path, handle):
    async with quick(path) as app:
        return await app.runs(handle.id)


@pytest.mark.parametrize("how", ["huge", "json", "undecodable", "closed"])
async def test_what_a_handler_prints_never_disturbs_it(app, worker, how):
    first, second = await run(app, "babble", how), await run(app, "double", 1)

    assert (await first.result(LONG), await second.result(LONG)) == (how, 2)
    assert await statuses(app, first) == [("succeeded", None)]


async def test_a_result_just_within_the_limit_arrives_and_one_over_it_is_a_failure(app, worker):
    fits, over = await run(app, "large", 130_000), await run(app, "large", 140_000)

    assert await fits.result(LONG) == "ä" * 130_000
    with pytest.raises(JobNotSucceeded, match="large"):
        await over.result(LONG)
    assert await statuses(app, over) == [("failed", "permanent")]


async def test_a_result_that_is_no_json_and_an_endless_error_are_failures(app, worker):
    odd, long = await run(app, "unstorable"), await run(app, "long_error")

    assert (await odd.wait(LONG)).state is State.DEAD_LETTER
    assert (await long.wait(LONG)).state is State.DEAD_LETTER
    assert len((await app.runs(long.id))[0].error.encode()) <= 65536


async def test_there_is_no_transaction_there(app, worker):
    handle = await run(app, "transact")

    await handle.wait(LONG)

    assert "has no transaction" in (await app.runs(handle.id))[0].error


async def test_what_it_attaches_is_kept_whatever_its_end(app, worker, tmp_path):
    fine, wrong = await run(app, "report", 3), await run(app, "attach_nonsense")
    await fine.result(LONG)
    await wrong.wait(LONG)
    hanging = await run(app, "hang", str(tmp_path / "mark"))
    [pid] = await word(tmp_path / "mark")
    os.kill(pid, signal.SIGKILL)

    async def is_lost():
        return (await app.runs(hanging.id))[0].status == "lost"

    await until(is_lost)
    await hanging.cancel()

    assert (await app.runs(fine.id))[0].artifacts == ("report.txt", "more.txt")
    assert "cannot be stored" in (await app.runs(wrong.id))[0].error
    assert (await app.runs(hanging.id))[0].artifacts == ("half.txt",)


async def test_a_cancelled_handler_is_stopped_now_and_may_clean_up(app, worker, tmp_path):
    handle = await run(app, "hang", str(tmp_path / "mark"))
    [pid] = await word(tmp_path / "mark")

    await handle.cancel()
    job = await handle.wait(SOON)

    assert (job.state, job.reason) == (State.CANCELLED, "cancel_requested")
    await gone(pid)
    assert (tmp_path / "mark.cleaned").exists()
    assert await (await run(app, "double", 2)).result(LONG) == 4


async def test_one_that_defies_is_killed_with_all_it_started(app, worker, tmp_path):
    handle = await run(app, "defy", str(tmp_path / "mark"))
    pids = await word(tmp_path / "mark")

    await handle.cancel()
    job = await handle.wait(SOON)

    assert job.state is State.CANCELLED
    await gone(*pids)
    assert len(pids) == 2


@pytest.mark.parametrize("name", ["brief", "brief_hog"])
async def test_one_over_its_time_is_killed_even_when_it_holds_the_interpreter(
    app, worker, tmp_path, name
):
    handle = await run(app, name, str(tmp_path / "mark"))
    pids = await word(tmp_path / "mark")

    run_out_of_time(worker)
    job = await handle.wait(LONG)

    assert (job.state, job.reason, job.losses) == (State.DEAD_LETTER, "timeout", 1)
    await gone(*pids)
    assert await all_slots_work(app)


async def test_what_a_dead_handler_leaves_behind_dies_with_it(app, worker, tmp_path):
    handle = await run(app, "gone_on", str(tmp_path / "mark"))

    [pid] = await word(tmp_path / "mark")
    await handle.wait(LONG)

    await gone(pid)


async def test_a_stopping_worker_leaves_no_process(app, tmp_path):
    app.settings = app.settings.with_(grace="100ms")
    async with app.worker(app_address=ADDRESS):
        idle = await (await run(app, "who")).result(LONG)
        handle = await run(app, "defy", str(tmp_path / "mark"))
        pids = await word(tmp_path / "mark")

    await gone(idle, *pids)
    assert (await handle.read()).state is State.QUEUED
    assert await statuses(app, handle) == [("released", "shutdown")]


async def test_an_idle_process_is_ended_after_a_while(app, monkeypatch):
    monkeypatch.setattr(process.ProcessExecutor.__init__, "__kwdefaults__", {"idle": 0.2})
    async with app.worker(app_address=ADDRESS, concurrency=1):
        first = await (await run(app, "who")).result(LONG)
        await gone(first)
        second = await (await run(app, "who")).result(LONG)

    assert first != second


async def test_an_idle_process_that_died_is_replaced(app):
    async with app.worker(app_address=ADDRESS, concurrency=1):
        first = await (await run(app, "who")).result(LONG)
        os.kill(first, signal.SIGKILL)
        await gone(first)
        handle = await run(app, "who")
        second = await handle.result(LONG)

    assert first != second
    assert (await statuses(app, handle))[-1] == ("succeeded", None)


async def test_without_its_app_a_handler_fails_and_says_so(app):
    async with app.worker(app_address="no_such_module_anywhere:app"):
        handle = await run(app, "double", 1)
        job = await handle.wait(LONG)

    assert job.state is State.DEAD_LETTER
    assert "No module named 'no_such_module_anywhere'" in (await app.runs(handle.id))[0].error
    assert await kinds(app, handle) == ["retry", "dead_letter"]


async def test_many_at_once_die_and_none_is_forgotten(app):
    async with app.worker(app_address=ADDRESS, concurrency=4):
        bound = [app.registry.get("die").bind("kill") for _ in range(12)]
        handles = await app.enqueue_many(bound)
        results = await asyncio.gather(*(handle.result(LONG) for handle in handles))

    assert results == ["attempt 2"] * 12
    for handle in handles:
        # Those that wait long for a slot may be given back, which counts for nothing.
        started = [
            run
            for run in await statuses(app, handle)
            if run != ("released", EXCESS_PREFETCH_REASON)
        ]
        assert [status for status, _ in started] == ["lost", "succeeded"]
