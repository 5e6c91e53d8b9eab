"""`outlast logs` shows what any handler logged: live, by run, safely, and as JSON."""

import json
import re
import subprocess
import sys

import pytest

from .conftest import Cli

APP = """
import asyncio, logging
from pathlib import Path
from outlast import Backoff, Command, Outlast, Run

app = Outlast("sqlite:///jobs.db", renew="500ms")
log = logging.getLogger("their.app")
log.setLevel(logging.INFO)  # whatever the level of the worker

@app.job
async def two() -> None:
    log.warning("first\\nof two lines")
    log.error("second")

@app.job(retry=Backoff(2, base="1ms", jitter=False))
async def again(run: Run) -> None:
    log.warning("attempt %d", run.attempt)
    if run.attempt == 1:
        raise ConnectionError

@app.job
async def hostile() -> None:
    log.warning("red \\x1b[31m and \\u202e back")

@app.job
async def waits() -> None:
    log.warning("early")
    while not Path("go-on").exists():
        await asyncio.sleep(0.01)
    log.warning("late")

@app.job
async def many() -> None:
    for number in range(20_000):
        log.warning("line %d", number)

@app.job(executor="command")
def shell() -> Command:
    log.warning("about to run")
    return Command(["echo", "hello"])
"""


@pytest.fixture
def logging_cli(cli: Cli) -> Cli:
    (cli.folder / "tasks.py").write_text(APP)
    sys.modules.pop("tasks", None)
    return cli


def ran(cli: Cli, name: str) -> str:
    job_id = cli.enqueue(name)
    cli.burst()
    return job_id


def test_lines_are_printed_with_time_level_and_logger(logging_cli: Cli) -> None:
    job_id = ran(logging_cli, "two")

    lines = logging_cli.out("logs", job_id).splitlines()

    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} WARNING their\.app: first", lines[0])
    assert lines[1] == "    of two lines"
    assert lines[2].endswith(" ERROR their.app: second")


def test_json_has_time_level_logger_and_text(logging_cli: Cli) -> None:
    job_id = ran(logging_cli, "two")

    first, second = logging_cli.documents("logs", job_id)

    assert first["at"].endswith("Z")
    told = [(each["level"], each["logger"], each["text"]) for each in (first, second)]
    assert told == [
        ("WARNING", "their.app", "first\nof two lines"),
        ("ERROR", "their.app", "second"),
    ]


def test_show_says_how_many_lines_there_are(logging_cli: Cli) -> None:
    job_id = ran(logging_cli, "two")
    retried = ran(logging_cli, "again")

    assert f"logged 2 lines; outlast logs {job_id} prints them" in logging_cli.out("show", job_id)
    assert "logged 2 lines in 2 runs" in logging_cli.out("show", retried)
    assert logging_cli.documents("show", job_id)[0]["log_lines"] == 2


def test_attempts_are_apart_and_one_can_be_chosen(logging_cli: Cli) -> None:
    job_id = ran(logging_cli, "again")

    both = logging_cli.out("logs", job_id)
    first, second = (
        logging_cli.out("logs", job_id, "--run", "1"),
        logging_cli.out("logs", job_id, "--run", "2"),
    )

    assert both.index("attempt 1") < both.index("\nrun 2\n") < both.index("attempt 2")
    assert ("attempt 1" in first, "attempt 2" in first) == (True, False)
    assert ("attempt 1" in second, "attempt 2" in second) == (False, True)


def test_run_that_does_not_exist_is_refused(logging_cli: Cli) -> None:
    job_id = ran(logging_cli, "two")

    result = logging_cli("logs", job_id, "--run", "7")

    assert result.exit_code != 0
    assert f"job {job_id} has no run 7; `outlast show {job_id}` lists its runs" in result.stderr


def test_control_characters_are_escaped_unless_raw(logging_cli: Cli) -> None:
    job_id = ran(logging_cli, "hostile")

    assert r"red \x1b[31m and \u202e back" in logging_cli.out("logs", job_id)
    assert logging_cli.out("logs", job_id, "--raw") == "red \x1b[31m and \u202e back\n"


def test_missing_lines_are_marked_with_their_number(logging_cli: Cli) -> None:
    job_id = ran(logging_cli, "many")

    text = logging_cli.out("logs", job_id)
    lines = logging_cli.documents("logs", job_id)

    [gap] = [line for line in lines if line["omitted"]]
    assert f"… {gap['omitted']:,} lines left out\n" in text
    assert len(lines) + gap["omitted"] == 20_000
    assert text.rstrip().endswith("line 19999")


def test_command_has_its_own_lines_and_its_output(logging_cli: Cli) -> None:
    job_id = ran(logging_cli, "shell")

    text = logging_cli.out("logs", job_id)

    assert text.index("their.app: about to run") < text.index("hello\n")


def test_follow_shows_lines_while_the_handler_runs_and_ends_with_the_job(
    logging_cli: Cli, worker: subprocess.Popen[bytes]
) -> None:
    job_id = logging_cli.enqueue("waits")
    program = [sys.executable, "-m", "outlast", "logs", "-a", "tasks:app", job_id, "-f", "--json"]
    with subprocess.Popen(program, cwd=logging_cli.folder, stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        early = json.loads(follower.stdout.readline())  # the handler still waits
        (logging_cli.folder / "go-on").touch()
        late = [json.loads(line) for line in follower.stdout]

    assert follower.returncode == 0
    assert worker.poll() is None
    assert [line["text"] for line in (early, *late)] == ["early", "late"]
