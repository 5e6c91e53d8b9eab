"""Mistakes of a first hour: each is answered in one line that names the next step."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli

NO_JOB = "00000000-0000-7000-8000-000000000000"
MISTAKES = [
    # (typed, exit code, the next step)
    ("job", 2, "did you mean jobs?"),
    ("status", 2, "known: cancel, "),
    ("tasks:app", 2, "given as `outlast worker tasks:app`"),
    ("jobs --stat", 2, "see `outlast jobs --help`"),
    ("jobs -a tasks.py", 2, "did you mean tasks:app?"),
    ("jobs -a tasks", 2, "did you mean tasks:app?"),
    ("jobs -a web", 2, "apps in this folder: other:jobs, tasks:app"),
    ("jobs -a json", 2, "apps in that module: none"),
    ("jobs -a tasks:ap", 2, "did you mean tasks:app?"),
    ("jobs -a tsks:app", 2, "No module named 'tsks'; did you mean tasks:app?"),
    ("jobs -a tasks:app --url sqlite:///jobs.db", 2, "give only one"),
    ("jobs --url sqlite:///none.db", 5, "`outlast db migrate --url sqlite:///none.db`"),
    ("jobs --url mysql://here/x", 2, "sqlite:///"),
    ("jobs state:runing", 2, "did you mean running?"),
    ("jobs state:xyz", 2, "known: blocked, cancelled, dead, dead_letter, done, failed, open, "),
    ("jobs sate:running", 2, "did you mean state?"),
    ("jobs since:yesterday", 2, "since"),
    ("enqueue ad", 3, "did you mean add?"),
    ("enqueue add left=1", 2, "did you mean '{\"left\": 1}'?"),
    ("enqueue add left:1 right=x", 2, 'did you mean \'{"left": 1, "right": "x"}\'?'),
    ("enqueue add {left: 1}", 2, "quote them: '{\"n\": 1}'"),
    ("enqueue add 1", 2, "write an object"),
    ("enqueue brief", 2, "--slot 20"),
    ('enqueue add \'{"left": "x"}\'', 2, "left"),
    ("enqueue add '{\"left\": 1}' --in 5", 2, "write 5s or 5m"),
    ("enqueue add '{\"left\": 1}' --at 2026-12-01T08:00", 2, "write 2026-12-01T08:00Z"),
    ("enqueue add '{\"left\": 1}' --at tomorrow", 2, "write 2026-03-29T02:00Z"),
    ("enqueue add '{\"left\": 1}' --queue defualt", 3, "did you mean default? (--create accepts"),
    ("template save t add --queue mial", 3, "did you mean mail? (--create accepts"),
    ("queue pause mial", 3, "did you mean mail?"),
    ("queue resume mial", 3, "did you mean mail?"),
    ("queue order mial", 3, "did you mean mail?"),
    ("queue save mial --concurrency 3", 3, "did you mean mail? (--create accepts a new queue)"),
    ("queue pause mail --for 5", 2, "write 5s or 5m"),
    ("db prune --older-than 30", 2, "write 30s or 30m"),
    ("schedule next nightli", 3, "near it: nightly"),
    ("schedule test '30 2 * *'", 2, "use five"),
    ("schedule test --every 5", 2, "write 5s or 5m"),
    ("schedule test --every 1min", 2, "write 1m"),
    ("schedule test --every '1 hour'", 2, "write 1h"),
    ("schedule test @daily --after tomorrow", 2, "write 2026-03-29T02:00Z"),
    (f"show {NO_JOB}", 3, NO_JOB),
    (f"retry {NO_JOB}", 3, NO_JOB),
    ("worker --concurrency many", 2, "see `outlast worker --help`"),
]


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A store with a schedule, and a second app in the folder."""
    (cli.folder / "other.py").write_text("import outlast\n\njobs = outlast.Outlast()\n")
    save = "schedule save nightly @daily -t add --coalesce --misfire-grace 5m --params"
    cli.out(*save.split(), '{"left": 1}')
    return cli


@pytest.mark.parametrize(("typed", "code", "step"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_answered_in_one_line_with_the_next_step(
    shop: Cli, typed: str, code: int, step: str
) -> None:
    words = shlex.split(typed)
    app = None if {"-a", "--url"} & set(words) else "tasks:app"

    result = shop(*words, app=app)

    assert result.exit_code == code, result.output
    (line,) = result.stderr.replace("`main ", "`outlast ").splitlines()
    assert line.startswith("outlast: ")
    assert step in line


@pytest.mark.parametrize(
    ("app", "step"),
    [
        ("tasks:ap", "did you mean tasks:app?"),
        ("tasks.py", "did you mean tasks:app?"),
        ("tsks:app", "No module named 'tsks'; did you mean tasks:app?"),
    ],
)
@pytest.mark.slow
def test_a_worker_names_its_missing_app_as_the_other_commands_do(
    cli: Cli, app: str, step: str
) -> None:
    program = [sys.executable, "-m", "outlast", "worker", app]

    done = subprocess.run(program, cwd=cli.folder, capture_output=True, text=True, check=False)

    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.startswith("outlast: ")) == (2, True)
    assert step in line


def test_a_once_type_is_enqueued_for_a_slot(cli: Cli) -> None:
    hint = cli("enqueue", "brief").stderr
    first = cli("enqueue", "brief", *hint.split("such as ")[1].split())
    again = cli("enqueue", "brief", *hint.split("such as ")[1].split())

    assert first.exit_code == 0, first.stderr
    assert again.stdout == first.stdout
    assert "the slot is taken" in again.stderr


def test_schedule_test_needs_no_app(cli: Cli) -> None:
    shown = cli.out("schedule", "test", "30 2 * * *", "-z", "Europe/Berlin", "-n", "2", app=None)

    assert len(shown.splitlines()) == 3
    assert not (cli.folder / "jobs.db").exists()


def test_a_new_queue_is_paused_when_that_is_insisted_on(cli: Cli) -> None:
    cli.out("db", "migrate")

    cli.out("queue", "pause", "later", "--create")

    assert "paused" in cli.out("queue", "list")


def test_a_job_goes_to_a_new_queue_when_that_is_insisted_on(cli: Cli) -> None:
    add = ["enqueue", "add", '{"left": 1}', "--queue", "later"]
    refused = cli(*add)
    cli.out(*add, "--create")

    assert (refused.exit_code, refused.stdout) == (3, "")
    cli.out(*add)  # the queue has a job now


def test_a_worker_of_a_misspelt_queue_names_the_nearest_at_its_start(cli: Cli) -> None:
    program = [sys.executable, "-m", "outlast", "worker", "tasks:app", "-q", "mial", "--burst"]

    ended = subprocess.run(program, cwd=cli.folder, capture_output=True, text=True, check=True)

    assert "uses queue mial by default; did you mean mail?" in ended.stderr


def test_wait_says_why_the_job_waits_and_ends_at_its_timeout(cli: Cli) -> None:
    result = cli("enqueue", "add", '{"left": 1}', "--wait", "--timeout", "2s", "-a", "tasks:app")

    job_id = result.stdout.strip()
    waiting, last = result.stderr.splitlines()
    assert result.exit_code == 75
    assert waiting.startswith('waiting: no live worker serves queue "default"')
    assert "`outlast worker -q default -a tasks:app`" in waiting
    assert f"`outlast explain {job_id} -a tasks:app`" in last


def test_a_remedy_can_be_pasted_as_printed(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')
    cli.out("queue", "pause", "default", app="tasks:app")

    shown = cli("explain", job_id, "-a", "tasks:app", app=None).stdout
    remedy = shown.split("Clears when: `outlast ")[1].split("`")[0]

    assert "resumed" in cli(*shlex.split(remedy), app=None).stderr


def test_workers_lists_the_living_and_says_how_to_start_one(cli: Cli) -> None:
    cli.out("db", "migrate")

    result = cli("workers")

    assert result.exit_code == 0
    assert "start one: outlast worker tasks:app" in result.stderr


def test_workers_shows_what_a_worker_serves(cli: Cli, worker: object) -> None:
    def rows() -> list[dict[str, object]]:
        found = [json.loads(line) for line in cli("workers", "--json").stdout.splitlines()]
        return [row for row in found if row["is_alive"]]

    while not (alive := rows()):
        assert worker.poll() is None  # type: ignore[attr-defined]

    assert alive[0]["queues"] == ["default", "mail", "studio"]
    assert "alive" in cli.out("workers")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(cli: Cli, shell: str) -> None:
    assert "_OUTLAST_COMPLETE" in cli.out("completion", shell, app=None)


def test_a_pyproject_of_another_user_in_a_parent_folder_is_not_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cli.folder / "pyproject.toml").write_text('[tool.outlast]\napp = "tasks:app"\n')
    (cli.folder / "below").mkdir()
    monkeypatch.chdir(cli.folder / "below")
    monkeypatch.setattr("outlast.cli.target.is_own_file", lambda _file: False)

    result = cli("jobs", app=None)

    assert "no app given" in result.stderr
    assert Path.cwd() == cli.folder / "below"
