"""Snooze, Skip, Cancel and RetryAfter: what a handler may return instead of a result."""

import pytest
from worker_helpers import AT_ONCE, SOON, all_slots_work, kinds, statuses

from outlast import Backoff, Cancel, RetryAfter, Run, Skip, Snooze, State
from outlast.core.outcome import HandlerOutcome

HOSTILE = {"huge": "x" * 300_000, "surrogate": "a\ud800b", "nul": "a\0b", "astral": "🦀" * 40_000}


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_a_snoozed_job_comes_back_later_without_spending_an_attempt(app, thread):
    seen = []

    def nap(run):
        seen.append((run.attempt, run.token))
        return Snooze("80ms", "not yet") if run.token < 3 else "awake"

    if thread:

        @app.job(name="sleeper", retry=Backoff(1))
        def sleeper(run: Run) -> str | Snooze:
            return nap(run)

    else:

        @app.job(name="sleeper", retry=Backoff(1))
        async def sleeper(run: Run) -> str | Snooze:
            return nap(run)

    async with app.worker():
        handle = await sleeper.enqueue()
        result = await handle.result(SOON)

    assert result == "awake"
    assert seen == [(1, 1), (1, 2), (1, 3)]
    assert await statuses(app, handle) == [("released", "not yet")] * 2 + [("succeeded", None)]
    assert await kinds(app, handle) == ["snoozed"] * 2
    runs = await app.runs(handle.id)
    assert (runs[1].started_at - runs[0].finished_at).total_seconds() >= 0.08
    assert (await handle.read()).failures == 0


async def test_failures_before_a_snooze_still_count_after_it(app):
    @app.job(retry=Backoff(2, base="1ms"))
    async def both(run: Run) -> Snooze:
        if run.token == 2:
            return Snooze("1ms")
        raise ValueError(f"at token {run.token}")

    async with app.worker():
        handle = await both.enqueue()
        job = await handle.wait(SOON)

    assert (job.state, job.failures) == (State.DEAD_LETTER, 2)
    ends = [status for status, _ in await statuses(app, handle)]
    assert ends == ["failed", "released", "failed"]


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (Skip("nothing new"), State.SKIPPED),
        (Cancel("feed is gone"), State.CANCELLED),
        (Skip(), State.SKIPPED),
        (Cancel(), State.CANCELLED),
    ],
)
@pytest.mark.parametrize("delivery", ["lease", "linked"])
async def test_skip_and_cancel_close_the_job_with_their_reason(app, value, state, delivery):
    @app.job(delivery=delivery, retry=AT_ONCE)
    async def decline() -> int | Skip | Cancel:
        return value

    async with app.worker():
        handle = await decline.enqueue()
        job = await handle.wait(SOON)

    assert (job.id, job.state, job.reason, job.failures) == (handle.id, state, value.reason, 0)
    assert await statuses(app, handle) == [(str(state), value.reason)]


async def test_retry_after_spends_an_attempt_and_chooses_the_wait(app):
    seen = []

    @app.job(retry=Backoff(3, base="1h", jitter=False))
    async def limited(run: Run) -> RetryAfter:
        seen.append(run.attempt)
        return RetryAfter("30ms", "429 from them")

    async with app.worker():
        handle = await limited.enqueue()
        job = await handle.wait(SOON)

    assert (job.state, job.failures, seen) == (State.DEAD_LETTER, 3, [1, 2, 3])
    runs = await app.runs(handle.id)
    assert [run.error for run in runs] == ["429 from them"] * 3
    assert (runs[1].started_at - runs[0].finished_at).total_seconds() >= 0.03


@pytest.mark.parametrize("outcome", [Skip, Cancel, Snooze, RetryAfter])
async def test_no_reason_a_handler_gives_can_hold_up_the_worker(app, outcome):
    timed = outcome in {Snooze, RetryAfter}

    @app.job(retry=Backoff(2))
    async def explain(run: Run, kind: str) -> HandlerOutcome | None:
        if outcome is Snooze and run.token > 1:
            return None
        return outcome("1ms", HOSTILE[kind]) if timed else outcome(HOSTILE[kind])

    async with app.worker():
        handles = {kind: await explain.enqueue(kind) for kind in HOSTILE}
        ends = {kind: (await handle.wait(SOON)).state for kind, handle in handles.items()}

        assert await all_slots_work(app)
    end = {Skip: "skipped", Cancel: "cancelled", Snooze: "succeeded", RetryAfter: "dead_letter"}
    assert ends == dict.fromkeys(HOSTILE, end[outcome])
    for kind, handle in handles.items():
        runs = await app.runs(handle.id)
        assert "lost" not in {run.status for run in runs}, "each end was kept, none was lost"
        reported = runs[0].error if outcome is RetryAfter else runs[0].reason
        assert reported[:1] == HOSTILE[kind][:1]


class Mystery(HandlerOutcome):
    """An unknown outcome."""


@pytest.mark.parametrize("value", [Mystery(), Skip(5), Cancel(object()), Skip(b"x")])
async def test_an_outcome_that_makes_no_sense_is_a_failure(app, value):
    @app.job(retry=Backoff(2, base="1ms"))
    async def odd() -> HandlerOutcome | None:
        return value

    async with app.worker():
        handle = await odd.enqueue()
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    assert (job.state, job.failures) == (State.DEAD_LETTER, 2)


async def test_raising_an_outcome_means_failure(app):
    @app.job(retry=Backoff(1))
    async def confused() -> None:
        raise Snooze("1ms")

    async with app.worker():
        job = await (await confused.enqueue()).wait(SOON)

    assert job.state is State.DEAD_LETTER
