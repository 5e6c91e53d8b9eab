"""Workers of two versions of the code: what one cannot read, another runs, and nothing is lost."""

import logging
from datetime import timedelta

import executor_app
import pytest
from worker_helpers import SOON, all_slots_work, kinds, quick, shaky, statuses, until

from outlast import Run, State, UnfitParams
from outlast.telemetry import InMemoryMetrics, subscribe
from outlast.testing.clock import FakeClock
from outlast.worker import refusal_judge

SECRET = "tuesday-7423"  # noqa: S105 - a param that no log may show
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def old(path, clock):
    """The app before the deploy, on a clock that stands still: a refused job stays refused."""
    app, _ = shaky(path, clock=clock)

    @app.job(name="send")
    async def send() -> None: ...

    async with app:
        yield app


@pytest.fixture
async def new(path, clock):
    """The app after the deploy: `send` takes one more param."""
    app, _ = shaky(path, clock=clock)

    @app.job(name="send")
    async def send(run: Run, day: str = "") -> str:
        return day

    async with app:
        yield app


def double_text(run: Run, number: str) -> str: ...


async def refused(app, handle, times=1):
    """Wait until a job was refused that often."""

    async def is_refused():
        return (await kinds(app, handle)).count("unfit") >= times

    await until(is_refused)


async def test_a_worker_of_old_code_refuses_and_one_of_new_code_runs_the_job(old, new, clock):
    handle = await new.registry.get("send").enqueue(day="monday")

    async with old.worker(instance_id="old"):
        await refused(old, handle)
        assert await all_slots_work(old)
    waiting = await handle.read()
    clock.advance(MINUTE)
    async with new.worker(instance_id="new"):
        result = await handle.result(SOON)

    assert (waiting.state, waiting.failures) == (State.RETRY_WAIT, 0)
    assert result == "monday"
    assert await statuses(new, handle) == [("released", "unfit_params"), ("succeeded", None)]
    assert (await handle.read()).failures == 0


async def test_a_job_that_no_worker_can_read_is_given_up_after_max_unfit(path, clock, new):
    app, _ = shaky(path, clock=clock, max_unfit="10m")

    @app.job(name="send")
    async def send() -> None: ...

    handle = await new.registry.get("send").enqueue(day="monday")
    async with app, app.worker():
        for times in range(1, 10):
            await refused(app, handle, times)
            clock.advance(MINUTE)
        assert (await handle.read()).state is not State.DEAD_LETTER
        await refused(app, handle, 10)
        clock.advance(MINUTE)
        job = await handle.wait(SOON)

    assert (job.state, job.reason, job.failures) == (State.DEAD_LETTER, "unfit_params", 1)
    again = await new.retry(handle.id)
    async with new.worker():
        assert await again.result(SOON) == "monday"


async def test_the_log_and_the_metrics_name_the_refusal_and_no_param(old, new, caplog):
    caplog.set_level(logging.DEBUG)
    unsubscribe = subscribe(totals := InMemoryMetrics())
    handle = await new.registry.get("send").enqueue(day=SECRET)

    async with old.worker():
        await refused(old, handle)
    unsubscribe()

    [line] = [each.message for each in caplog.records if each.message.startswith("job_unfit")]
    assert f"job={handle.id}" in line
    assert "to=retry_wait error=UnfitParams delay_seconds=1.0" in line
    assert not [each for each in caplog.records if SECRET in each.getMessage()]
    assert totals.value("runs_refused_total", type="send", to="retry_wait") == 1


async def test_explain_names_the_workers_that_refused_and_the_end(old, new, clock):
    handle = await new.registry.get("send").enqueue(day=SECRET)
    began = clock.now()
    async with old.worker(instance_id="old-1"):
        await refused(old, handle)

    explanation = await new.explain(handle.id)

    stop = explanation.stop
    assert (stop.code, stop.holder) == ("params", "old-1")
    assert stop.text == (
        f"refused once since {began:%Y-%m-%d %H:%M:%S} UTC by old-1: its params do not fit their "
        "code; a dead letter at the first refusal after "
        f"{began + timedelta(hours=1):%Y-%m-%d %H:%M:%S} UTC"
    )
    assert "outlast check" in stop.clears
    assert SECRET not in str(explanation)


async def test_a_refusal_waits_for_a_store_that_does_not_answer(path, clock, new, monkeypatch):
    monkeypatch.setattr(refusal_judge, "pause_after", lambda _: 0.001)
    app, store = shaky(path, clock=clock)

    @app.job(name="send")
    async def send() -> None: ...

    handle = await new.registry.get("send").enqueue(day="monday")
    async with app, app.worker():
        await refused(app, handle)
        store.times["refusals"] = 3
        store.broken.add("refusals")
        clock.advance(MINUTE)
        await refused(app, handle, 2)
        assert await all_slots_work(app)

        [found] = await store.refusals([handle.id])
    assert found.count == 2
    assert store.failed["refusals"] == 3


async def test_a_handler_process_of_other_code_refuses_like_its_worker(path):
    """The files of a deploy may change under a worker: its next process has the new code."""
    async with quick(path) as app:
        double = app.job(name="double", executor="process")(double_text)
        handle = await double.enqueue("three")  # the process finds `double(number: int)`
        async with app.worker(app_address=executor_app.ADDRESS):
            await refused(app, handle)
        [run] = (await app.runs(handle.id))[:1]

    assert (run.status, run.reason) == ("released", "unfit_params")
    assert 'params of "double" refused: field "number"' in run.error
    assert "three" not in run.error


async def test_an_error_of_decoding_is_a_refusal_whatever_its_class(app):
    @app.job(name="send")
    async def send(number: int) -> None: ...

    class NoKey(UnfitParams):
        pass

    def lacks_a_key(_: str) -> None:
        raise NoKey("the key k2 is missing", problems=["key k2 is missing"])

    handle = await send.enqueue(1)
    send.load = lacks_a_key
    async with app.worker():
        await refused(app, handle)

    runs = await app.runs(handle.id)
    assert "the key k2 is missing" in runs[0].error
    assert (await handle.read()).failures == 0


async def test_a_job_that_fits_reads_no_refusals_and_neither_does_a_first_refusal(path, clock, new):
    app, store = shaky(path, clock=clock)

    @app.job(name="send")
    async def send() -> None: ...

    refused_job = await new.registry.get("send").enqueue(day="monday")
    fitting = await new.registry.get("send").enqueue()
    async with app, app.worker():
        await refused(app, refused_job)
        await fitting.result(SOON)

    assert store.done["refusals"] == 0
