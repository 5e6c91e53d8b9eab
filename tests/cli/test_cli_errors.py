"""Whatever is wrong, a command says so in one line and an exit code, never with a traceback."""

import sqlite3

import pytest

from outlast.cli.target import SourcedValue, Target, find
from outlast.cli.worker import _address

from .conftest import Cli

NO_JOB = "00000000-0000-7000-8000-000000000000"
READS = [
    ["jobs"], ["jobs", "--count"], ["show", NO_JOB], ["logs", NO_JOB], ["explain", NO_JOB],
    ["queue", "list"], ["queue", "order", "default"], ["template", "list"], ["group", "list"],
    ["top", "--once"], ["doctor"], ["verify"], ["db", "status"], ["cancel", NO_JOB],
    ["retry", NO_JOB], ["move", NO_JOB, "front"], ["edit", NO_JOB, "--priority", "1"],
    ["db", "prune", "--older-than", "1d", "--yes"], ["queue", "pause", "default"],
    ["group", "get", NO_JOB], ["template", "remove", "none"],
]  # fmt: skip
ABOUT_ONE = [args for args in READS if NO_JOB in args or args[-1] == "none"]


def one_line(result: object) -> str:
    (line,) = result.stderr.splitlines()  # type: ignore[attr-defined]
    assert line.startswith("outlast: ")
    assert "Traceback" not in result.output  # type: ignore[attr-defined]
    return line


@pytest.mark.parametrize("args", READS, ids=" ".join)
def test_a_missing_store_is_said_and_not_created(cli: Cli, args: list[str]) -> None:
    result = cli(*args)

    assert result.exit_code == 5
    assert "there is no store" in one_line(result)
    assert not (cli.folder / "jobs.db").exists()


@pytest.mark.parametrize("args", READS, ids=" ".join)
def test_a_foreign_file_is_left_alone(cli: Cli, args: list[str]) -> None:
    with sqlite3.connect(cli.folder / "jobs.db") as database:
        database.execute("CREATE TABLE theirs (a)")
    before = (cli.folder / "jobs.db").read_bytes()

    result = cli(*args)

    assert result.exit_code == 5
    assert "another application" in one_line(result)
    assert (cli.folder / "jobs.db").read_bytes() == before


@pytest.mark.parametrize("args", READS, ids=" ".join)
def test_a_file_that_is_no_database_is_said(cli: Cli, args: list[str]) -> None:
    (cli.folder / "jobs.db").write_text("this is prose, and rather long prose at that" * 100)

    result = cli(*args)

    assert result.exit_code == 5
    one_line(result)


@pytest.mark.parametrize("args", ABOUT_ONE, ids=" ".join)
def test_what_is_not_there_is_said(cli: Cli, args: list[str]) -> None:
    cli.out("db", "migrate")

    result = cli(*args)

    assert result.exit_code == 3
    one_line(result)


@pytest.mark.parametrize(
    "word", ["nonsense", "state:odd", "colour:red", "since:yesterday", "params:3", ":", "state:"]
)
def test_a_bad_filter_is_named(cli: Cli, word: str) -> None:
    cli.out("db", "migrate")

    result = cli("jobs", word)

    assert result.exit_code == 2
    one_line(result)


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("nowhere:app", "nowhere"),
        ("tasks", "module:attribute"),
        ("tasks:nothing", "did you mean tasks:app?"),
        (None, "no app given"),
    ],
)
def test_an_app_that_cannot_be_found_is_said(cli: Cli, app: str | None, says: str) -> None:
    result = cli("jobs", app=app)

    assert result.exit_code == 2
    assert says in one_line(result)


def test_a_store_alone_can_be_read_but_not_enqueued_to(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')

    assert job_id in cli("jobs", "--url", "sqlite:///jobs.db", app=None).stdout
    result = cli("enqueue", "--url", "sqlite:///jobs.db", "add", "{}", app=None)
    assert result.exit_code == 2
    assert "job types" in one_line(result)


def test_app_and_url_together_are_refused(cli: Cli) -> None:
    result = cli("jobs", "--url", "sqlite:///jobs.db", "-a", "tasks:app")

    assert result.exit_code == 2
    assert "both" in one_line(result)


def test_pyproject_names_the_app(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLAST_APP", raising=False)
    monkeypatch.delenv("OUTLAST_URL", raising=False)
    (cli.folder / "pyproject.toml").write_text('[tool.outlast]\napp = "tasks:app"\n')
    cli.enqueue("add", '{"left": 1}')
    below = cli.folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)

    assert len(cli("jobs", "--json", app=None).stdout.splitlines()) == 1
    settings = next(
        line for line in cli("doctor", app=None).stdout.splitlines() if "Settings" in line
    )
    assert "pyproject.toml" in settings
    assert not list(below.iterdir()), "the store is that of the folder of pyproject.toml"


@pytest.mark.parametrize(
    "text",
    ["[tool.outlast]\napp = 3\n", "[tool.outlast\n", "tool = 3\n", '[tool]\noutlast = "app"\n'],
)
def test_a_broken_pyproject_is_said(cli: Cli, text: str) -> None:
    (cli.folder / "pyproject.toml").write_text(text)

    result = cli("jobs", app=None)

    assert result.exit_code == 2
    assert "pyproject.toml" in one_line(result)


def test_the_environment_goes_before_pyproject(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "pyproject.toml").write_text('[tool.outlast]\napp = "tasks:app"\n')
    monkeypatch.delenv("OUTLAST_APP", raising=False)
    monkeypatch.setenv("OUTLAST_URL", "sqlite:///other.db")

    assert find(None, None, folder=cli.folder) == Target(
        None, SourcedValue("sqlite:///other.db", "OUTLAST_URL")
    )


def test_a_finished_job_cannot_be_moved_or_cancelled(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')
    cli.burst()

    for args in (
        ["move", job_id, "front"],
        ["cancel", job_id],
        ["edit", job_id, "--priority", "2"],
    ):
        result = cli(*args)
        assert result.exit_code == 4, args
        assert "succeeded" in one_line(result)


def test_worker_finds_its_app_where_the_others_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTLAST_APP", raising=False)
    (cli.folder / "pyproject.toml").write_text('[tool.outlast]\napp = "tasks:app"\n')
    assert _address(None) == "tasks:app"
    assert _address("other:app") == "other:app"

    (cli.folder / "pyproject.toml").unlink()
    nothing = cli("worker", app=None)

    assert nothing.exit_code == 2
    assert "no app given" in nothing.output
