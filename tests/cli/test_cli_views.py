"""Looking at the whole store from the command line."""

import asyncio
import json
import re
import sqlite3
import subprocess
import sys

import click
import pytest

from outlast.cli.main import COMMANDS, LazyGroup, main
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import take

from .conftest import Cli


def test_help_names_every_command_and_loads_none() -> None:
    program = (
        "import sys; from outlast.cli.main import main; from contextlib import suppress\n"
        "with suppress(SystemExit): main(['--help'])\n"
        "print([m for m in sys.modules if m.startswith(('rich', 'sqlite3', 'outlast.cli.'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    *shown, loaded = done.stdout.splitlines()
    assert loaded == "['outlast.cli.main']"
    assert all(f"  {name} " in "\n".join(shown) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_where_it_is_said_to_be(name: str) -> None:
    assert isinstance(main, LazyGroup)
    command = main.get_command(click.Context(main), name)

    assert command is not None
    assert command.name == name
    assert command.help


def test_worker_never_loads_rich() -> None:
    program = (
        "import outlast.cli.worker, outlast.cli.worker_child, sys; print('rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"


def test_doctor_finds_a_queue_without_a_worker_and_code_without_a_type(cli: Cli) -> None:
    cli.enqueue("add", '{"left": 1}')
    (cli.folder / "other.py").write_text(
        "from outlast import Outlast\napp = Outlast('sqlite:///jobs.db')\n"
    )

    result = cli("doctor", app="other:app")

    assert result.exit_code == 1
    assert 'FAIL  queue "default" has 1 due job and no worker' in result.stdout
    assert 'warn  type "add" is not defined in this app; waiting: 1 job' in result.stdout
    assert "fix: `outlast worker -q default`" in result.stdout
    findings = [json.loads(line) for line in cli("doctor", "--json").stdout.splitlines()]
    assert {finding["check"] for finding in findings} >= {
        "Store",
        "Clock",
        "Code",
        "Workers",
        "Leases",
    }


def test_doctor_names_what_nothing_goes_on_with_while_no_worker_is_alive(cli: Cli) -> None:
    cli.enqueue("add", '{"left": 1}')
    cli.out("schedule", "save", "hourly", "@hourly", "-t", "add", "--params", '{"left": 1}',
            "--coalesce", "--misfire-grace", "5m")  # fmt: skip

    async def claim_and_die() -> None:
        store = SqliteStore(cli.folder / "jobs.db")
        await store.open()
        await take(store, types={"add"})
        await store.close()

    asyncio.run(claim_and_die())
    result = cli("doctor")

    assert result.exit_code == 1
    assert "FAIL  1 running job, and no worker is alive" in result.stdout
    assert "warn  1 of 1 stored are enabled, and no worker triggers them" in result.stdout


def test_doctor_is_content_with_a_store_at_rest(cli: Cli) -> None:
    cli.enqueue("add", '{"left": 1}')
    cli.burst()

    assert "FAIL" not in cli.out("doctor")


def test_verify_proves_a_sound_store_and_refutes_a_broken_one(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')
    cli.burst()
    assert "0 violations" in cli("verify").stderr

    with sqlite3.connect(cli.folder / "jobs.db") as database:
        database.execute("DROP TRIGGER outlast_ends_kept")
        database.execute("DELETE FROM outlast_ends")
    database.close()
    result = cli("verify")

    assert result.exit_code == 1
    assert job_id in result.stdout
    assert "repair: " in result.stdout


def test_verify_repairs_when_asked(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')
    cli.burst()
    with sqlite3.connect(cli.folder / "jobs.db") as database:
        database.execute("DROP TRIGGER outlast_ends_kept")
        database.execute("DELETE FROM outlast_ends")
    database.close()

    repaired, after = cli("verify", "--repair"), cli("verify")

    assert (repaired.exit_code, after.exit_code) == (0, 0)
    assert f"detached  {job_id}" in repaired.stdout
    assert "repair: done" in repaired.stdout
    assert "1 repair made" in repaired.stderr
    assert "succeeded" in cli.out("show", job_id)


def test_top_draws_one_picture(cli: Cli) -> None:
    cli.enqueue("add", '{"left": 1}')
    cli.enqueue("broken", '{"user": "a"}')
    cli.out("queue", "pause", "mail", "--reason", "db move")

    shown = cli.out("top", "--once")

    assert "0 workers" in shown
    assert re.search(r"^mail +1 +1 +0 +0 +paused: db move", shown, re.MULTILINE)


def test_logs_tells_what_happened(cli: Cli) -> None:
    job_id = cli.enqueue("broken", '{"user": "ada"}')
    cli.burst()

    assert "dead_letter" in cli("logs", job_id).stdout
    assert "dead_letter" in cli("logs", job_id, "--raw").stderr
    assert [event["kind"] for event in cli.documents("logs", job_id)] == ["dead_letter"]


def test_init_writes_an_app_once(cli: Cli) -> None:
    assert cli("init", "new").exit_code == 0
    before = (cli.folder / "new" / "jobs.py").read_text()
    result = cli("init", "new")

    assert result.exit_code == 4
    assert "nothing was written" in result.stderr
    assert (cli.folder / "new" / "jobs.py").read_text() == before


def test_db_status_prune_and_sql(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')
    cli.burst()
    log = cli.folder / "outlast-logs" / f"{job_id}.{job_id}.log"  # as a command's
    log.parent.mkdir()
    log.write_text("output")

    assert "SQLite" in cli.out("db", "status")
    assert cli.out("db", "sql").startswith("-- A request is in `jobs`")
    pruned = cli("db", "prune", "--older-than", "0s", "--yes")
    assert "1 job deleted" in pruned.stderr
    assert cli.documents("jobs") == []
    assert not log.exists()


def test_templates_and_groups_are_listed(cli: Cli) -> None:
    cli.out("template", "save", "weekly", "add", '{"left": 3}')
    job_id = cli.out("template", "enqueue", "weekly").strip()

    assert [each["name"] for each in cli.documents("template", "list")] == ["weekly"]
    assert cli.documents("show", job_id)[0]["params"] == {"left": 3}
    assert cli.documents("group", "list") == []
    assert cli("template", "enqueue", "nothing").exit_code == 3
    cli.out("template", "remove", "weekly")
    assert cli.documents("template", "list") == []


@pytest.mark.slow
def test_enqueue_with_wait_shows_progress_and_exits_by_outcome(cli: Cli, worker: object) -> None:
    good = cli("enqueue", "counting", '{"to": 3}', "--wait")
    bad = cli("enqueue", "broken", '{"user": "ada"}', "--wait")

    assert good.exit_code == 0
    assert good.stdout.splitlines()[-1] == '"counted"'
    assert "succeeded" in good.stderr
    assert bad.exit_code == 1
    assert "dead_letter" in bad.stderr
