"""`linked` and `once`: a job that has started never starts again."""

from datetime import timedelta

import pytest
from worker_helpers import SOON, all_slots_work, kinds, reaches, statuses

from outlast import Backoff, RetryAfter, Run, Snooze, State

QUICKLY = Backoff(3, base="1ms", jitter=False)


async def chain_of(app, handle):
    return await app._store.chain(handle.id)


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_a_chain_writes_one_linked_job_per_try_and_the_result_is_at_its_tip(app, thread):
    seen = []

    def work(run):
        seen.append((run.attempt, run.token))
        if run.attempt < 3:
            raise ValueError("not yet")
        return run.job_id

    if thread:

        @app.job(name="link", delivery="linked", retry=QUICKLY)
        def link(run: Run) -> str:
            return work(run)

    else:

        @app.job(name="link", delivery="linked", retry=QUICKLY)
        async def link(run: Run) -> str:
            return work(run)

    async with app.worker():
        handle = await link.enqueue()
        result = await handle.result(SOON)
        tip = await handle.wait(SOON)

    assert seen == [(1, 1), (2, 1), (3, 1)], "each job ran once"
    first, second, third = await chain_of(app, handle)
    assert (first.id, third.id) == (handle.id, tip.id)
    assert result == tip.id
    assert [job.retry_of for job in (first, second, third)] == [None, first.id, second.id]
    assert {job.root_id for job in (first, second, third)} == {first.id}
    assert [job.state for job in (first, second, third)] == ["failed", "failed", "succeeded"]
    assert [job.failures for job in (first, second, third)] == [1, 2, 2]


async def test_a_chain_ends_in_a_dead_letter_after_exactly_its_attempts(app):
    calls = []

    @app.job(delivery="linked", retry=QUICKLY)
    async def fail() -> None:
        calls.append(1)
        raise ValueError("always")

    async with app.worker():
        handle = await fail.enqueue()
        tip = await handle.wait(SOON)

    chain = await chain_of(app, handle)
    assert (len(calls), len(chain)) == (3, 3)
    assert [job.state for job in chain] == ["failed", "failed", "dead_letter"]
    assert (tip.id, tip.failures, tip.reason) == (chain[-1].id, 3, "attempts_exhausted")


async def test_retry_after_in_a_chain_delays_the_next_job(app):
    @app.job(delivery="linked", retry=Backoff(2, base="1h", jitter=False))
    async def limited(run: Run) -> int | RetryAfter:
        return RetryAfter("50ms") if run.attempt == 1 else run.attempt

    async with app.worker():
        handle = await limited.enqueue()
        result = await handle.result(SOON)

    first, second = await chain_of(app, handle)
    assert result == 2
    assert second.started_at - first.finished_at >= timedelta(milliseconds=50)


async def test_cancelling_a_chain_by_its_first_job_stops_its_last(app):
    @app.job(delivery="linked", retry=Backoff(5, base="1h", jitter=False))
    async def fail() -> None:
        raise ValueError("once")

    async with app.worker():
        handle = await fail.enqueue()
        await reaches(handle, State.FAILED)
        state = await handle.cancel("enough")
        tip = await handle.wait(SOON)

    assert state is State.CANCELLED
    assert (tip.retry_of, tip.state, tip.reason) == (handle.id, State.CANCELLED, "enough")
    assert len(await chain_of(app, handle)) == 2


@pytest.mark.parametrize(
    ("delivery", "state"), [("linked", State.DEAD_LETTER), ("once", State.FAILED)]
)
async def test_a_snooze_that_the_delivery_cannot_keep_is_a_clear_failure(
    app, slot, delivery, state
):
    calls = []

    @app.job(delivery=delivery)
    async def tired() -> Snooze:
        calls.append(1)
        return Snooze("1ms")

    async with app.worker():
        handle = await tired.options(slot=slot).enqueue()
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    assert (job.id, job.state, len(calls)) == (handle.id, state, 1)
    [run] = await app.runs(handle.id)
    assert run.status == "failed"
    assert delivery in run.error
    assert "Snooze" in run.error


@pytest.mark.parametrize("how", ["raise", "retry_after", "wrong_result"])
async def test_once_closes_and_never_runs_again(app, slot, how):
    calls = []

    @app.job(delivery="once")
    async def report() -> int | RetryAfter:
        calls.append(1)
        if how == "raise":
            raise ValueError("broken")
        return RetryAfter("1ms") if how == "retry_after" else "no number"

    async with app.worker():
        handle = await report.options(slot=slot).enqueue()
        job = await handle.wait(SOON)
        again = await report.options(slot=slot).enqueue()
    async with app.worker() as worker:
        await worker.drained()

    assert (job.state, job.failures, len(calls)) == (State.FAILED, 1, 1)
    assert (again.id, again.created) == (handle.id, False)
    assert [status for status, _ in await statuses(app, handle)] == ["failed"]
    assert await kinds(app, handle) == ["closed"]


async def test_two_slots_of_one_name_never_overlap(app, slot):
    running, most = 0, 0
    order = []

    @app.job(delivery="once")
    def report(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(number)
        running -= 1

    handles = [
        await report.options(slot=slot + timedelta(hours=n)).enqueue(number=n) for n in range(8)
    ]
    async with app.worker(concurrency=4), app.worker(concurrency=4):
        ends = [await handle.wait(SOON) for handle in handles]

    assert {job.state for job in ends} == {State.SUCCEEDED}
    assert most == 1
    assert sorted(order) == list(range(8))
