"""`outlast db copy`: what it says, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli


def _two(cli: Cli) -> tuple[str, str]:
    """A store with a job that has ended and one that waits, and where it is to go."""
    cli.out("enqueue", "add", '{"left": 1}')
    cli.burst()
    cli.out("enqueue", "story", '{"title": "next"}')
    return "sqlite:///jobs.db", "sqlite:///other.db"


def test_a_store_is_moved_and_says_where_to(cli: Cli) -> None:
    one, other = _two(cli)

    reported = cli("db", "copy", "--from", one, "--to", other)

    assert reported.exit_code == 0, reported.stderr
    assert "jobs                   2" in reported.stdout
    assert "other.db replaces " in reported.stderr
    where = (Path.cwd() / "other.db").resolve()
    assert f"transfer     moved: was moved to sqlite:///{where}" in cli.out("db", "status")
    assert "transfer     none" in cli.out("db", "status", "--url", other, app=None)
    refused = cli("enqueue", "add", '{"left": 2}')
    assert (refused.exit_code, refused.stderr.count("\n")) == (5, 1)
    assert f"was moved to sqlite:///{where}, for good; use that address" in refused.stderr
    jobs = cli.out("jobs", "--json", "--url", other, app=None).splitlines()
    assert {json.loads(job)["state"] for job in jobs} == {"succeeded", "queued"}


def test_twice_is_once_and_json_is_one_object(cli: Cli) -> None:
    one, other = _two(cli)

    first = cli("db", "copy", "--from", one, "--to", other, "--json")
    again = cli("db", "copy", "--from", one, "--to", other)

    copied = json.loads(first.stdout)
    assert copied["digests"]["jobs"]["rows"] == 2
    assert len(copied["digests"]["jobs"]["digest"]) == 64
    assert (again.exit_code, again.stdout) == (0, "")
    assert "already copied" in again.stderr


def test_bad_input_gets_one_clear_line(cli: Cli) -> None:
    one, other = _two(cli)
    cli.out("db", "migrate", "--url", "sqlite:///used.db", app=None)
    cli.out("queue", "save", "lane", "--concurrency", "1", "--url", "sqlite:///used.db", app=None)
    Path("foreign.db").write_text("no database at all, but long enough to be one")
    cases = [
        ((one, one), 2, "name the same store"),
        ((one, "sqlite:///./jobs.db"), 2, "name the same store"),
        (("sqlite:///none.db", other), 5, "there is no store at"),
        ((one, "sqlite:///used.db"), 4, "is not empty: it has queues"),
        ((one, "sqlite:///foreign.db"), 5, "not a SQLite database"),
        ((one, "postgresql://me:secret@127.0.0.1:1/x"), 5, "does not answer"),
        ((one, "mysql://nowhere/x"), 2, "is no store's address"),
    ]
    for (source, target), code, words in cases:
        reported = cli("db", "copy", "--from", source, "--to", target)

        assert (reported.exit_code, reported.stdout) == (code, ""), reported.stderr
        assert words in reported.stderr
        assert reported.stderr.count("\n") == 1
        assert "secret" not in reported.stderr
    for grace in ("soon", "-1s", "48h"):
        assert cli("db", "copy", "--from", one, "--to", other, "--grace", grace).exit_code == 2
    assert cli("enqueue", "add", '{"left": 2}').exit_code == 0


def test_a_worker_of_a_store_that_was_moved_stops_and_says_so(cli: Cli) -> None:
    one, other = _two(cli)
    cli("db", "copy", "--from", one, "--to", other)

    command = [sys.executable, "-m", "outlast", "worker", "tasks:app"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)

    assert ended.returncode == 4, ended.stderr
    assert ended.stderr.count("this store was moved to sqlite:///") == 1
    assert "Traceback" not in ended.stderr


def test_a_worker_at_work_stops_when_its_store_was_moved(
    cli: Cli, worker: subprocess.Popen[bytes]
) -> None:
    one, other = _two(cli)

    reported = cli("db", "copy", "--from", one, "--to", other, "--grace", "5s")

    assert reported.exit_code == 0, reported.stderr
    assert worker.wait(timeout=200) == 4
    states = cli.out("jobs", "--json", "--url", other, app=None).splitlines()
    assert len(states) == 2


def test_addresses_come_from_variables_so_that_no_argument_holds_a_password(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = _two(cli)
    monkeypatch.setenv("OLD", one)
    monkeypatch.setenv("NEW", other)

    copied = cli("db", "copy", "--from-env", "OLD", "--to-env", "NEW", "--json")

    assert json.loads(copied.stdout)["digests"]["jobs"]["rows"] == 2


def test_each_side_of_a_copy_is_given_once(cli: Cli) -> None:
    one, other = _two(cli)
    cases = [
        (("--from", one), "--to and --to-env: give one of them"),
        (("--from", one, "--from-env", "OLD", "--to", other), "--from and --from-env: give one"),
        (("--from", one, "--to-env", "NOWHERE"), "'NOWHERE', and no such variable is set"),
    ]
    for given, told in cases:
        refused = cli("db", "copy", *given)
        assert (refused.exit_code, told in refused.stderr) == (2, True), refused.stderr
