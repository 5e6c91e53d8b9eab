"""Progress and checkpoints: cheap to say, written in groups; there a run learns that it is over."""

import asyncio
import json
import threading
from itertools import pairwise

import pytest
from executor_app import ADDRESS, register
from executor_helpers import LONG, run, word
from worker_helpers import SOON, quick, statuses, take_away, until

from outlast import LeaseLost, Run, RunError, State, StopRequested
from outlast.core.progress import Progress
from outlast.errors import StoreBusy
from outlast.store.open import open_store
from outlast.worker.progress_reporter import WRITE_INTERVAL_S, ProgressReporter


class Reports:
    """A store that keeps what was reported; `answers` and `errors` say how it behaves."""

    def __init__(self, path):
        self._store = open_store(f"sqlite:///{path}")
        self.batches = []
        self.held = True
        self.errors = []

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def record_progress(self, reports):
        if self.errors:
            raise self.errors.pop()
        self.batches.append([(lease.job_id, json.loads(text)) for lease, text in reports])
        return [self.held] * len(reports)

    def of(self, handle):
        return [said for batch in self.batches for job_id, said in batch if job_id == handle.id]


@pytest.fixture
def store(path):
    return Reports(path)


@pytest.fixture
async def app(store, tmp_path):
    async with quick_on(store, tmp_path) as app:
        yield app


def quick_on(store, tmp_path):
    app = quick(tmp_path / "unused.db", logs=tmp_path / "logs")
    return type(app)(store, settings=app.settings)


async def test_a_tight_loop_costs_few_writes_and_the_last_is_always_written(app, store):
    @app.job
    def count(run: Run) -> None:
        for n in range(20_000):
            run.progress(n, 20_000, f"at {n}")

    async with app.worker():
        handle = await count.enqueue()
        await handle.result(LONG)

    said, most = store.of(handle), await most_writes(app, handle)
    assert said[-1] == {"done": 19_999, "total": 20_000, "message": "at 19999"}
    assert len(said) <= most < 10_000


async def most_writes(app, handle):
    """One at once, one after each pause, and the last word."""
    [record] = await app.runs(handle.id)
    return (record.finished_at - record.started_at).total_seconds() // WRITE_INTERVAL_S + 3


async def test_many_runs_share_a_write(app, store):
    barrier, goal = asyncio.Barrier(8), asyncio.Event()

    @app.job
    async def step(run: Run, n: int) -> None:
        await barrier.wait()
        run.progress(n)
        await goal.wait()
        run.progress(n + 100)

    async with app.worker(concurrency=8):
        handles = await app.enqueue_many(step.bind(n) for n in range(8))
        await until(lambda: sum(map(len, store.batches)) >= 8)
        first = len(store.batches)
        goal.set()
        for handle in handles:
            await handle.result(SOON)

    assert first <= 2
    assert [store.of(handle)[-1]["done"] for handle in handles] == [n + 100 for n in range(8)]


async def test_what_is_said_before_a_long_silence_is_written_without_waiting_for_more(
    app, store, tmp_path
):
    register(app)
    async with app.worker(app_address=ADDRESS):
        handle = await run(app, "report_and_wait", str(tmp_path / "mark"))
        await word(tmp_path / "mark")
        last = {"done": 2, "total": 2, "message": "the last before it waits"}
        await until(lambda: store.of(handle)[-1:] == [last])
        await handle.cancel()
        await handle.wait(SOON)


async def test_a_process_says_it_too_and_its_last_word_counts(app, store):
    register(app)
    async with app.worker(app_address=ADDRESS):
        handle = await run(app, "report", 5000)
        assert await handle.result(LONG) == 5000

    said, most = store.of(handle), await most_writes(app, handle)
    assert said[-1] == {"done": 5000, "total": 5000, "message": "step 5000"}
    assert len(said) <= most < 2500


async def test_a_run_whose_lease_is_gone_is_told_at_its_next_call(app, store):
    store.held = False
    seen = []

    @app.job
    def work(run: Run) -> None:
        while not seen:
            try:
                run.progress(1)
            except LeaseLost as error:
                seen.append(error)
                raise
            threading.Event().wait(0.002)

    async with app.worker():
        handle = await work.enqueue()
        await until(lambda: bool(seen))
        await handle.cancel()

    assert "another worker's now" in str(seen[0])
    assert isinstance(seen[0], RunError)


async def test_a_lapsed_lease_raises_without_any_report(path):
    seen, started = [], asyncio.Event()
    loop = asyncio.get_running_loop()

    async with quick(path) as app, quick(path) as rival:

        @app.job(name="work")
        def work(run: Run) -> None:
            loop.call_soon_threadsafe(started.set)
            while True:
                try:
                    run.checkpoint()
                except RunError as error:
                    seen.append(type(error))
                    raise
                threading.Event().wait(0.002)

        @rival.job(name="work")
        async def takes_over() -> str:
            return "rival"

        app.settings = app.settings.with_(tick="10m", grace="100ms")  # it may run here again
        async with app.worker():
            handle = await work.enqueue()
            await started.wait()
            async with rival.worker():
                await take_away(path, handle)
                await until(lambda: bool(seen))

    assert seen[0] is LeaseLost  # its next execution, in any worker, is another run


async def test_run_whose_job_the_same_worker_took_again_learns_that_it_lost_it(path):
    """The same worker claims it again: the old lease is lost, the new one is held."""
    seen, first, again = [], asyncio.Event(), asyncio.Event()

    async with quick(path) as app:

        @app.job(name="work")
        async def work(run: Run) -> None:
            if run.token > 1:
                again.set()
                return
            first.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append(run.token)
                raise

        async with app.worker():
            handle = await work.enqueue()
            await first.wait()
            await take_away(path, handle)
            await again.wait()
            await until(lambda: bool(seen))
            job = await handle.wait(SOON)

    assert (seen, job.state, job.failures) == ([1], State.SUCCEEDED, 1)


@pytest.mark.parametrize("how", ["checkpoint", "progress"])
async def test_a_thread_that_is_asked_to_stop_does_so_at_its_checkpoint(app, how):
    started, cleaned = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    @app.job
    def endless(run: Run) -> None:
        loop.call_soon_threadsafe(started.set)
        try:
            while True:
                run.checkpoint() if how == "checkpoint" else run.progress(1)
                threading.Event().wait(0.002)
        except StopRequested:
            cleaned.append(1)
            raise

    async with app.worker():
        handle = await endless.enqueue()
        await started.wait()
        await handle.cancel()
        job = await handle.wait(SOON)

    assert (job.state, job.failures, cleaned) == (State.CANCELLED, 0, [1])
    assert await statuses(app, handle) == [("cancelled", "cancel_requested")]


async def test_a_checkpoint_past_max_runtime_ends_the_run_as_lost(app, slot):
    @app.job(max_runtime="50ms", delivery="once")
    def slow(run: Run) -> None:
        while True:
            run.checkpoint()
            threading.Event().wait(0.002)

    async with app.worker():
        handle = await slow.options(slot=slot).enqueue()
        job = await handle.wait(SOON)

    assert (job.state, job.reason) == (State.FAILED, "timeout")


async def test_stop_requested_without_a_request_is_a_failure(app, slot):
    @app.job(delivery="once")
    def liar() -> None:
        raise StopRequested("says the handler itself")

    async with app.worker():
        handle = await liar.options(slot=slot).enqueue()
        job = await handle.wait(SOON)

    assert (job.state, job.reason) == (State.FAILED, "failed")


async def test_a_store_that_is_busy_loses_no_last_word_and_fails_no_run(app, store):
    store.errors = [StoreBusy("locked")]

    @app.job
    async def step(run: Run) -> str:
        run.progress(1)
        await until(lambda: not store.errors)
        return "done"

    async with app.worker():
        handle = await step.enqueue()
        assert await handle.result(SOON) == "done"

    assert store.of(handle)[-1] == {"done": 1}


async def test_a_report_does_not_wait_for_the_runs_own_transaction(app, store):
    @app.job
    async def pay(run: Run) -> str:
        async with run.transaction():
            run.progress(1)
        return "paid"

    held = asyncio.Event()
    real = store.record_progress

    async def report(reports):
        await held.wait()
        return await real(reports)

    store.record_progress = report
    async with app.worker():
        handle = await pay.enqueue()
        result = await handle.result(SOON)
        held.set()

    assert result == "paid"


async def test_a_fault_while_reporting_fails_no_run_and_kills_no_slot(app, store):
    store.errors = [ZeroDivisionError("a fault of ours")] * 3

    @app.job
    async def step(run: Run) -> str:
        run.progress(1)
        return "done"

    async with app.worker(concurrency=1):
        handles = await app.enqueue_many(step.bind() for _ in range(5))

        assert [await handle.result(SOON) for handle in handles] == ["done"] * 5


async def test_without_a_store_that_can_keep_it_progress_is_only_a_checkpoint(path):
    async with quick(path) as app:

        @app.job
        async def step(run: Run) -> str:
            run.progress(1, 2)
            return "done"

        async with app.worker():
            assert await (await step.enqueue()).result(SOON) == "done"


@pytest.mark.parametrize(
    "wrong",
    [(float("nan"),), (float("inf"),), ("3",), (True,), (None,), (10**400,), (1, "2"), (1, 2, 3)],
)
def test_progress_that_cannot_be_stored_is_refused(wrong):
    with pytest.raises(RunError, match="progress"):
        Progress(*wrong)


def test_a_long_or_strange_message_is_made_storable():
    text = Progress(0.5, 1, "ü\0\ud800" * 5000).to_json()

    assert len(text.encode()) <= 4096
    assert json.loads(text)["message"].endswith("[cut]")


async def test_a_reporter_pauses_between_its_writes(app, store):
    times, loop = [], asyncio.get_running_loop()

    async def report(reports):
        times.append(loop.time())
        return [True] * len(reports)

    reporter = ProgressReporter(report, interval=0.05)

    @app.job
    async def step(run: Run) -> None:
        run._notify = reporter.notify
        while len(times) < 5:
            run.progress(len(times))
            await asyncio.sleep(0.001)

    async with app.worker():
        await (await step.enqueue()).result(SOON)
    reporter.close()

    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert min(gaps) > 0.045
