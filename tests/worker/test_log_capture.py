"""What handlers log is kept with their runs, whichever executor runs them, and fails no run."""

import asyncio
import contextvars
import logging
import threading

import pytest
from executor_helpers import LONG
from worker_helpers import AT_ONCE, SOON, quick

from outlast import Run, State
from outlast.core.run import Lease
from outlast.worker.log_handler import HANDLER
from outlast.worker.log_writer import LogWriter

log = logging.getLogger("their.app")
log.setLevel(logging.DEBUG)

EXECUTOR_APP = """
import asyncio, logging, os
from outlast import Command, Outlast
app = Outlast("sqlite:///{path}", name="logging")
log = logging.getLogger("their.app")

@app.job(executor="process")
def plain(n: int) -> None:
    log.warning("plain %d", n)
    log.info("info %d", n)

@app.job(executor="process")
async def later(n: int) -> None:
    log.warning("before %d", n)
    await asyncio.sleep(0)
    log.warning("after %d", n)

@app.job(executor="process", log_capture=False)
def silent(n: int) -> None:
    log.warning("silent %d", n)

@app.job(executor="process")
def dies(n: int) -> None:
    log.warning("last words")
    while not os.path.exists({seen!r}):
        pass
    os._exit(3)

@app.job(executor="command")
def shell(n: int) -> Command:
    log.warning("running %d", n)
    return Command(["true"])
"""


async def texts(handle):
    return [line.text async for line in handle.logs()]


async def ran(app, *handles):
    async with app.worker():
        return [await handle.wait(LONG) for handle in handles]


async def test_async_handler_keeps_its_lines_before_and_after_an_await(app):
    @app.job
    async def work(n: int) -> None:
        log.warning("first %d", n)
        await asyncio.sleep(0)
        log.error("second %d", n)

    handle = await work.enqueue(7)
    await ran(app, handle)

    lines = [line async for line in handle.logs()]
    assert [(line.level, line.logger, line.text) for line in lines] == [
        ("WARNING", "their.app", "first 7"),
        ("ERROR", "their.app", "second 7"),
    ]
    assert [(line.token, line.number) for line in lines] == [(1, 1), (1, 2)]
    run = (await app.runs(handle.id))[0]
    assert all(abs(line.at - run.started_at).total_seconds() < 3600 for line in lines)


async def test_concurrent_runs_do_not_mix(app):
    both = asyncio.Barrier(2)

    @app.job
    async def work(name: str) -> None:
        for number in range(3):
            await both.wait()
            log.warning("%s %d", name, number)

    handles = [await work.enqueue(name) for name in ("a", "b")]
    await ran(app, *handles)

    found = [await texts(handle) for handle in handles]
    assert found == [[f"{name} {n}" for n in range(3)] for name in ("a", "b")]


async def test_thread_of_a_handler_counts_with_its_context_and_not_without(app):
    @app.job
    def work() -> None:
        log.warning("own thread")
        context = contextvars.copy_context()
        copied = threading.Thread(target=context.run, args=(log.warning, "copied context"))
        other = threading.Thread(target=log.warning, args=("other context",))
        for thread in (copied, other):
            thread.start()
            thread.join()

    handle = await work.enqueue()
    await ran(app, handle)

    assert await texts(handle) == ["own thread", "copied context"]


async def test_record_outside_a_run_is_not_captured_and_others_still_propagate(app, caplog):
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.job
    async def work() -> None:
        started.set()
        await go_on.wait()
        log.warning("inside")

    handle = await work.enqueue()
    async with app.worker():
        await started.wait()
        log.warning("outside")
        go_on.set()
        await handle.wait(SOON)

    assert await texts(handle) == ["inside"]
    assert [r.message for r in caplog.records if r.name == "their.app"] == ["outside", "inside"]


async def test_middleware_logs_to_the_run(app):
    @app.around
    async def around(run: Run):
        log.warning("before")
        yield
        log.warning("after")

    @app.job
    async def work() -> None:
        log.warning("inside")

    handle = await work.enqueue()
    await ran(app, handle)

    assert await texts(handle) == ["before", "inside", "after"]


async def test_process_and_command_executors_keep_lines_too(tmp_path, monkeypatch):
    seen = tmp_path / "seen"
    text = EXECUTOR_APP.format(path=tmp_path / "jobs.db", seen=str(seen))
    (tmp_path / "logging_app.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import logging_app  # noqa: PLC0415 - written above

    app = logging_app.app
    kinds = app.registry.get
    async with app:
        names = ("plain", "later", "silent", "shell")
        handles = {name: await kinds(name).enqueue(5) for name in names}
        dying = await kinds("dies").options(key="d").enqueue(1)
        async with app.worker(concurrency=2):
            for handle in handles.values():
                assert (await handle.wait(LONG)).state is State.SUCCEEDED
            await until_logged(dying)
            seen.write_text("")
            await until_runs(app, dying, 2)
        found = {name: await texts(handle) for name, handle in handles.items()}
        assert found == {
            "plain": ["plain 5"],
            "later": ["before 5", "after 5"],
            "silent": [],
            "shell": ["running 5"],
        }
        assert (await texts(dying))[0] == "last words"


async def until_logged(handle):
    async with asyncio.timeout(120):
        while not await texts(handle):  # noqa: ASYNC110 - another process writes them
            await asyncio.sleep(0.01)


async def until_runs(app, handle, number):
    async with asyncio.timeout(120):
        while len(await app.runs(handle.id)) < number:  # noqa: ASYNC110 - the worker opens them
            await asyncio.sleep(0.01)


async def test_failed_attempts_keep_each_its_own_log(app):
    @app.job(retry=AT_ONCE)
    async def work(run: Run) -> None:
        log.warning("attempt %d", run.attempt)
        raise RuntimeError

    handle = await work.enqueue()
    await ran(app, handle)

    lines = [(line.token, line.text) async for line in handle.logs()]
    assert lines == [(1, "attempt 1"), (2, "attempt 2"), (3, "attempt 3")]
    assert [line.text async for line in handle.logs(run=2)] == ["attempt 2"]


async def test_run_that_ends_with_its_transaction_keeps_its_log(app):
    @app.job
    async def work(run: Run, fails: bool) -> None:
        async with run.transaction() as connection:
            log.warning("inside")
            connection.execute("CREATE TABLE IF NOT EXISTS theirs (n)")
        if fails:
            raise RuntimeError

    good, bad = await work.enqueue(False), await work.options(key="x").enqueue(True)
    async with app.worker():
        await good.wait(SOON)
        await until_runs(app, bad, 1)
        await app.cancel(bad.id)

    assert await texts(good) == ["inside"]
    assert (await texts(bad))[0] == "inside"


class Unprintable:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


async def test_record_that_cannot_be_formatted_costs_one_line_and_not_the_run(app, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)  # the host's own handlers are silent

    @app.job
    async def work() -> None:
        for handler in logging.root.handlers:  # pytest's would raise
            if handler is not HANDLER:
                monkeypatch.setattr(handler, "emit", lambda record: None)
        log.warning("before")
        log.warning("%s", Unprintable())
        log.warning("%d %d", 1)  # noqa: PLE1206 - on purpose
        log.warning("after")
        monkeypatch.undo()

    handle = await work.enqueue()
    [job] = await ran(app, handle)

    assert job.state is State.SUCCEEDED
    assert await texts(handle) == [
        "before",
        "(this record cannot be shown: formatting it raised RuntimeError)",
        "(this record cannot be shown: formatting it raised TypeError)",
        "after",
    ]


async def test_traceback_is_part_of_its_line(app):
    @app.job
    async def work() -> None:
        try:
            raise KeyError("x")
        except KeyError:
            log.exception("caught")

    handle = await work.enqueue()
    await ran(app, handle)

    [text] = await texts(handle)
    assert text.startswith("caught\nTraceback")
    assert text.endswith("KeyError: 'x'")


@pytest.mark.parametrize(
    ("of_app", "of_type", "kept"),
    [
        (True, None, ["info", "warning", "error"]),
        ("ERROR", None, ["error"]),
        ("ERROR", "debug", ["debug", "info", "warning", "error"]),
        ("ERROR", True, ["error"]),
        (True, False, []),
        (False, None, []),
        (False, "WARNING", ["warning", "error"]),
        (False, True, ["info", "warning", "error"]),
    ],
)
async def test_level_is_that_of_the_type_or_of_the_app(path, caplog, of_app, of_type, kept):
    caplog.set_level(logging.DEBUG, logger=log.name)
    async with quick(path, log_capture=of_app) as app:

        @app.job(log_capture=of_type)
        async def work() -> None:
            for level in ("debug", "info", "warning", "error"):
                getattr(log, level)(level)

        handle = await work.enqueue()
        await ran(app, handle)

        assert await texts(handle) == kept


@pytest.mark.parametrize(
    ("of_type", "level"), [(None, None), (True, 20), ("ERROR", 40), (False, None)]
)
async def test_store_with_a_price_per_record_keeps_only_what_a_type_asks_for(app, of_type, level):
    @app.job(log_capture=of_type)
    async def work() -> None: ...

    handle = await work.enqueue()
    async with app.worker():
        await handle.wait(SOON)
    writer = LogWriter(app.store.write_logs, app.settings, is_paid=True)
    claim = type("Claim", (), {"lease": Lease(handle.id, 1)})()

    found = writer.new_log(claim, app.registry.get("work"))
    writer.close()

    assert (found and found.level) == level
    assert found is None or found.limit == 16 * 1024


async def test_handler_is_on_the_root_logger_once_and_goes_with_the_last_worker(app, rival):
    @app.job
    async def work() -> None:
        found.append(logging.root.handlers.count(HANDLER))

    found = []
    before = list(logging.root.handlers)
    async with app.worker(), rival.worker():
        for _ in range(3):
            await (await work.enqueue()).wait(SOON)

    assert found == [1, 1, 1]
    assert logging.root.handlers == before


async def test_configuration_that_removes_all_handlers_loses_the_lines_of_no_later_run(app):
    @app.job
    async def work() -> None:
        log.warning("kept")

    async with app.worker():
        await (await work.enqueue()).wait(SOON)
        logging.root.removeHandler(HANDLER)  # as dictConfig and basicConfig(force=True) do
        handle = await work.enqueue()
        await handle.wait(SOON)

    assert await texts(handle) == ["kept"]


async def test_program_without_handlers_still_prints_its_warnings(app, monkeypatch):
    printed = []
    monkeypatch.setattr(logging, "lastResort", Collecting(printed))
    monkeypatch.setattr(logging.root, "handlers", [])

    @app.job
    async def work() -> None:
        log.warning("seen")

    handle = await work.enqueue()
    await ran(app, handle)

    assert "seen" in printed
    assert await texts(handle) == ["seen"]


class Collecting(logging.Handler):
    def __init__(self, into):
        super().__init__(logging.WARNING)
        self._into = into

    def emit(self, record):
        self._into.append(record.getMessage())


async def test_lines_are_stored_while_the_handler_runs(app):
    go_on = asyncio.Event()

    @app.job
    async def work() -> None:
        log.warning("early")
        await go_on.wait()
        log.warning("late")

    handle = await work.enqueue()
    async with app.worker():
        await until_logged(handle)
        early = await texts(handle)
        go_on.set()
        await handle.wait(SOON)

    assert early == ["early"]
    assert await texts(handle) == ["early", "late"]
