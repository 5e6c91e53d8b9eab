"""Command lines: exit code, output and files are kept, and nothing of them outlives its worker."""

import os
import signal
import sys
from pathlib import Path

import pytest
from executor_app import ADDRESS, PYTHON, register
from executor_helpers import LONG, first_run, gone, is_alive, parent_of, run, text_of, word
from worker_helpers import SOON, all_slots_work, kinds, quick, run_out_of_time, statuses, until

from outlast import Command, CommandFailed, State
from outlast.worker.executors import command as command_module

pytestmark = pytest.mark.slow


@pytest.fixture
async def app(path, tmp_path):
    async with quick(path, logs=tmp_path / "logs") as app:
        yield register(app)


@pytest.fixture
async def worker(app):
    async with app.worker(app_address=ADDRESS) as worker:
        yield worker


def python(code: str) -> list[str]:
    return [PYTHON, "-c", code]


async def test_output_exit_code_and_log_are_kept(app, worker, tmp_path):
    code = "import sys; print('to stdout', flush=True); print('to stderr', file=sys.stderr)"
    handle = await run(app, "cmd", python(code))

    result = await handle.result(LONG)

    record = await first_run(app, handle)
    assert (result, record.exit_code, record.error) == (None, 0, None)
    assert Path(record.log_path) == tmp_path / "logs" / f"{handle.id}.{record.run_id}.log"
    assert text_of(record.log_path) == "to stdout\nto stderr\n"


async def test_a_code_that_is_not_ok_is_a_failure_with_the_last_output(app, worker):
    handle = await run(app, "cmd", python("print('why it failed'); raise SystemExit(3)"))

    job = await handle.wait(LONG)

    records = await app.runs(handle.id)
    assert job.state is State.DEAD_LETTER
    assert [(record.status, record.exit_code) for record in records] == [("failed", 3)] * 2
    assert "ended with exit status 3" in records[0].error
    assert "why it failed" in records[0].error
    assert "Traceback" not in records[0].error
    assert len({record.log_path for record in records}) == 2


async def test_the_command_says_which_codes_are_ok(app, worker):
    handle = await run(app, "cmd", python("raise SystemExit(10)"))

    assert (await handle.wait(LONG)).state is State.SUCCEEDED
    assert (await first_run(app, handle)).exit_code == 10


async def test_death_by_a_signal_is_a_failure_that_says_so(app, worker):
    handle = await run(app, "cmd", python("import os; os.kill(os.getpid(), 9)"))

    await handle.wait(LONG)

    record = await first_run(app, handle)
    assert (record.status, record.exit_code) == ("failed", -9)
    assert "was killed by SIGKILL (9); it printed nothing" in record.error


async def test_its_classifier_judges_a_command_that_failed(path, tmp_path):
    async with quick(path, logs=tmp_path / "logs") as app:
        job = app.job(executor="command", errors={CommandFailed: "permanent"})(fails)
        async with app.worker():
            handle = await job.enqueue()
            await handle.wait(LONG)

        assert await statuses(app, handle) == [("failed", "permanent")]


def fails() -> Command:
    return Command([PYTHON, "-c", "raise SystemExit(1)"])


async def test_no_shell_takes_the_words_apart(app, worker, tmp_path):
    words = ["$HOME; touch pwned", "*", "a b", "`id`", "-x", "ü"]
    code = "import sys; print(ascii(sys.argv[1:]))"
    handle = await run(app, "cmd", [*python(code), *words], str(tmp_path))

    await handle.result(LONG)

    record = await first_run(app, handle)
    assert text_of(record.log_path) == f"{words!a}\n"
    assert not (tmp_path / "pwned").exists()


async def test_files_that_match_afterwards_are_artifacts(app, worker, tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    code = "for n in ('b.txt', 'a.txt', 'c.log', 'deep/er/d.txt'): open(n, 'w').close()"
    patterns = ["*.txt", "**/d.txt", "missing*", str(tmp_path / "c.log"), "deep"]
    fine = await run(app, "cmd", python(code), str(tmp_path), patterns)
    await fine.result(LONG)
    failing = python(code + "\nraise SystemExit(1)")
    failed = await run(app, "cmd", failing, str(tmp_path), ["a.txt"])
    await failed.wait(LONG)

    names = ("a.txt", "b.txt", "deep/er/d.txt", "c.log")
    found = (await first_run(app, fine)).artifacts
    assert found == tuple(str(tmp_path / name) for name in names)
    assert (await first_run(app, failed)).artifacts == (str(tmp_path / "a.txt"),)


async def test_it_finds_its_variables_and_its_token(app, worker):
    handle = await run(app, "cmd_env")

    await handle.result(LONG)

    record = await first_run(app, handle)
    assert text_of(record.log_path) == f"rot 1 {os.environ['PATH']}\n"


async def test_output_is_bounded_with_a_marker_and_never_blocks_it(path, tmp_path, monkeypatch):
    monkeypatch.setattr(
        command_module.CommandExecutor.__init__, "__kwdefaults__", {"limit": 100_000}
    )
    code = "import os\nfor n in range(200): os.write(1, b'x' * 50_000)\nos.write(2, b'the end')"
    async with quick(path, logs=tmp_path / "logs") as app:
        register(app)
        async with app.worker(app_address=ADDRESS):
            handle = await run(app, "cmd", python(code + "\nraise SystemExit(1)"))
            await handle.wait(LONG)

        record = await first_run(app, handle)
    text = text_of(record.log_path)
    assert text == "x" * 100_000 + "\n[outlast: only 100,000 bytes are kept]\n"
    assert record.error.endswith("xthe end")
    assert len(record.error) < 10_000


async def test_output_that_is_no_text_is_kept_as_it_is(app, worker):
    code = "import os; os.write(1, b'\\xff\\x00\\xfe'); raise SystemExit(1)"
    handle = await run(app, "cmd", python(code))

    await handle.wait(LONG)

    record = await first_run(app, handle)
    assert text_of(record.log_path, "latin-1") == "\xff\x00\xfe"
    assert record.status == "failed"
    assert "\ufffd" in record.error


async def test_one_that_cannot_be_started_fails_and_says_why(app, worker, tmp_path):
    missing = await run(app, "cmd", ["no-such-program-anywhere"])
    nowhere = await run(app, "cmd", [sys.executable], str(tmp_path / "nowhere"))
    too_long = await run(app, "cmd", [sys.executable, "x" * 200_000])

    for handle in (missing, nowhere, too_long):
        assert (await handle.wait(LONG)).state is State.DEAD_LETTER
    assert "no-such-program-anywhere" in (await first_run(app, missing)).error
    assert "nowhere" in (await first_run(app, nowhere)).error
    assert "Argument list too long" in (await first_run(app, too_long)).error


async def test_logs_that_cannot_be_written_are_a_failure_not_a_dead_worker(path, tmp_path):
    (tmp_path / "logs").write_text("a file, no folder")
    async with quick(path, logs=tmp_path / "logs") as app:
        register(app)
        async with app.worker(app_address=ADDRESS):
            handle = await run(app, "cmd", python(""))
            job = await handle.wait(LONG)

            assert await all_slots_work(app)
        assert job.state is State.DEAD_LETTER
        assert "FileExistsError" in (await first_run(app, handle)).error


@pytest.mark.parametrize(
    ("name", "state", "says"),
    [
        ("cmd_skips", State.SKIPPED, None),
        ("cmd_forgets", State.DEAD_LETTER, "returned list; return a Command"),
        ("cmd_raises", State.DEAD_LETTER, "cannot say what to run"),
    ],
)
async def test_a_handler_may_decide_otherwise(app, worker, name, state, says):
    handle = await run(app, name)

    job = await handle.wait(LONG)

    record = await first_run(app, handle)
    assert (job.state, record.exit_code, record.log_path) == (state, None, None)
    assert (record.error is None) if says is None else (says in record.error)


async def test_a_command_of_a_handler_that_is_no_command_is_refused(app):
    @app.job
    def confused() -> Command:
        return Command(["true"])

    async with app.worker(app_address=ADDRESS):
        handle = await confused.enqueue()
        await handle.wait(LONG)

    assert 'executor="command"' in (await first_run(app, handle)).error


async def test_cancel_kills_it_and_its_children_now(app, worker, tmp_path):
    handle = await run(app, "sleeper", str(tmp_path / "mark"))
    pids = await word(tmp_path / "mark")

    await handle.cancel()
    job = await handle.wait(SOON)

    await gone(*pids)
    record = await first_run(app, handle)
    assert (job.state, record.status, record.exit_code) == (State.CANCELLED, "cancelled", -15)
    assert text_of(record.log_path) == "started\n"
    assert len(pids) == 2


async def test_one_over_its_time_is_lost_and_killed(app, worker, tmp_path):
    handle = await run(app, "brief_cmd", str(tmp_path / "mark"))
    pids = await word(tmp_path / "mark")

    run_out_of_time(worker)
    job = await handle.wait(LONG)

    assert (job.state, job.reason) == (State.DEAD_LETTER, "timeout")
    await gone(*pids)
    assert await kinds(app, handle) == ["dead_letter"]


async def test_a_stopping_worker_hands_it_back_and_leaves_nothing(app, tmp_path):
    app.settings = app.settings.with_(grace="100ms")
    async with app.worker(app_address=ADDRESS):
        handle = await run(app, "sleeper", str(tmp_path / "mark"))
        pids = await word(tmp_path / "mark")

    await gone(*pids)
    assert (await handle.read()).state is State.QUEUED
    assert await statuses(app, handle) == [("released", "shutdown")]


async def test_a_command_that_ends_takes_the_daemons_it_started_with_it(app, worker, tmp_path):
    handle = await run(app, "daemons", str(tmp_path / "mark"), 0)

    job = await handle.wait(LONG)

    assert job.state is State.SUCCEEDED
    assert [is_alive(pid) for pid in await word(tmp_path / "mark")] == [False, False]


async def test_cancel_kills_the_daemons_it_started(app, worker, tmp_path):
    handle = await run(app, "daemons", str(tmp_path / "mark"), 600)
    pids = await word(tmp_path / "mark")

    await handle.cancel()
    await handle.wait(LONG)

    assert [is_alive(pid) for pid in pids] == [False, False]


async def test_a_time_limit_kills_the_daemons_it_started(app, worker, tmp_path):
    handle = await run(app, "brief_daemons", str(tmp_path / "mark"), 600)
    pids = await word(tmp_path / "mark")

    run_out_of_time(worker)
    await handle.wait(LONG)

    assert [is_alive(pid) for pid in pids] == [False, False]


async def test_when_its_keeper_is_killed_the_command_is_too(app, worker, tmp_path):
    handle = await run(app, "sleeper", str(tmp_path / "mark"))
    pids = await word(tmp_path / "mark")

    os.kill(parent_of(pids[0]), signal.SIGKILL)
    await gone(*pids)

    async def is_lost():
        return (await first_run(app, handle)).status == "lost"

    await until(is_lost)
    await handle.cancel()
    await handle.wait(SOON)
    record = await first_run(app, handle)
    assert (record.reason, record.exit_code) == ("owner_dead", None)
    assert "guardian of the command was killed" in record.error


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": []},
        {"argv": "ls -l"},
        {"argv": [""]},
        {"argv": ["a\0b"]},
        {"argv": [1]},
        {"argv": ["ls"], "env": {"A=B": "x"}},
        {"argv": ["ls"], "env": {"A": 1}},
        {"argv": ["ls"], "artifacts": "*.txt"},
        {"argv": ["ls"], "inherit": "AWS_*"},
    ],
)
def test_a_command_that_cannot_be_is_refused(wrong):
    with pytest.raises((ValueError, TypeError)):
        Command(**wrong)


@pytest.mark.parametrize(
    ("inherit", "passed"),
    [
        ([], set()),
        (["AWS_REGION"], {"AWS_REGION"}),
        (["AWS_*"], {"AWS_REGION", "AWS_SECRET_ACCESS_KEY"}),
        (["*"], {"AWS_REGION", "AWS_SECRET_ACCESS_KEY", "OUTLAST_URL", "PGPASSWORD"}),
    ],
)
async def test_a_command_gets_the_variables_that_it_names_and_no_secret_else(
    path, tmp_path, monkeypatch, inherit, passed
):
    secrets = {"AWS_REGION", "AWS_SECRET_ACCESS_KEY", "OUTLAST_URL", "PGPASSWORD"}
    for name in secrets:
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    code = "import os; print(*sorted(os.environ))"

    def shows() -> Command:
        return Command([PYTHON, "-c", code], inherit=inherit, env={"OWN": "1"})

    async with quick(path, logs=tmp_path / "logs") as app:
        job = app.job(executor="command")(shows)
        async with app.worker():
            handle = await job.enqueue()
            await handle.wait(LONG)
        names = set(text_of((await first_run(app, handle)).log_path).split())

    assert names & secrets == passed
    assert {"PATH", "LC_ALL", "OWN", "OUTLAST_JOB_ID"} <= names


async def test_the_log_of_a_command_is_for_its_owner_alone(app, worker):
    handle = await run(app, "cmd", python("print(1)"))
    await handle.wait(LONG)

    path = Path((await first_run(app, handle)).log_path)

    assert path.stat().st_mode & 0o777 == 0o600  # noqa: ASYNC240 - a test may wait for the disk
    assert path.parent.stat().st_mode & 0o777 == 0o700
