"""Which executor a type gets, what it says of itself, and what is refused at registration."""

import pytest
from executor_app import double, double_later
from worker_helpers import quick

from outlast import Command, InvalidType, Outlast, Snooze
from outlast.jobs.executor_choice import STOPS
from outlast.worker.executors.registry import make_executors


@pytest.fixture
def bare():
    return Outlast("sqlite:///never-opened.db")


def command() -> Command:
    return Command(["true"])


async def async_command() -> Command:
    return Command(["true"])


def no_command() -> str:
    return "text"


def either() -> Command | Snooze | None:
    return None


@pytest.mark.parametrize(
    ("function", "asked", "executor", "stops"),
    [
        (double_later, None, "async", "at the next await"),
        (double, None, "thread", "at a checkpoint"),
        (double_later, "async", "async", "at the next await"),
        (double, "thread", "thread", "at a checkpoint"),
        (double, "process", "process", "now"),
        (double_later, "process", "process", "now"),
        (command, "command", "command", "now"),
        (either, "command", "command", "now"),
    ],
)
def test_a_type_says_where_it_runs_and_when_it_stops(bare, function, asked, executor, stops):
    job_type = bare.job(executor=asked)(function)

    assert (job_type.executor, job_type.stops) == (executor, stops)


@pytest.mark.parametrize(
    ("function", "asked", "why"),
    [
        (double, "async", "contradicts"),
        (double_later, "thread", "contradicts"),
        (async_command, "command", "make it a `def`"),
        (no_command, "command", "returns a Command"),
        (lambda: None, "process", "could not find"),
        (double, "fork", "use one of async, thread, process, command"),
        (double, 3, "use one of"),
    ],
)
def test_what_contradicts_is_refused_at_registration(bare, function, asked, why):
    with pytest.raises(InvalidType, match=why):
        bare.job(name="refused", executor=asked)(function)
    assert bare.registry.names() == []


def test_a_function_within_a_function_cannot_be_found_by_another_process(bare):
    def nested() -> None: ...

    with pytest.raises(InvalidType, match="top level of its module"):
        bare.job(executor="process")(nested)


async def test_every_executor_says_what_its_types_say(tmp_path):
    executors = make_executors(concurrency=1, logs=tmp_path, addresses={}, on_step=None)

    assert {name: executor.stops for name, executor in executors.items()} == dict(STOPS)


async def test_the_app_is_found_in_the_handlers_own_module(path, monkeypatch):
    async with quick(path) as app:
        app.job(executor="process")(double)
        monkeypatch.setitem(double.__globals__, "mine", app)

        worker = app.worker()

    assert worker._engine._addresses == {"double": "executor_app:mine"}


async def test_an_app_that_cannot_be_found_is_refused_before_the_worker_starts(path):
    async with quick(path) as app:
        app.job(executor="process")(double)

        with pytest.raises(InvalidType, match="has no name for the app"):
            app.worker()
        assert app.worker(types=["roll_call"])._engine._addresses == {}


async def test_a_script_is_no_module(path, monkeypatch):
    monkeypatch.setattr(double, "__module__", "__main__")
    async with quick(path) as app:
        app.job(executor="process")(double)

        with pytest.raises(InvalidType, match="move the app"):
            app.worker()


@pytest.mark.parametrize("address", ["", "app", "my app:app", "a:b:c", "../x:app"])
async def test_an_address_is_a_module_and_a_name(path, address):
    async with quick(path) as app:
        with pytest.raises(InvalidType, match="app_address"):
            app.worker(app_address=address)
