"""The companion end to end: run, run again, killed, and inspected."""

import os
import re
import secrets
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import outlast as package
from companion import show, words
from companion.chat import Chat
from outlast.testing.servers import dynamodb as local

EXAMPLE = Path(words.__file__).parent
README = (EXAMPLE / "README.md").read_text()
FOUND_IN = os.pathsep.join([str(Path(package.__file__).parents[1]), str(EXAMPLE.parent)])
DAY = ("--day", "2026-01-05")  # a Monday


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-u", "-m", "companion.run", "home", *DAY, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": FOUND_IN, "SENTRY_DSN": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    reported, complaints = process.communicate(timeout=2000)
    assert process.returncode == 0, complaints
    assert complaints == "", "warnings go to companion.log"
    return reported


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that the one command leaves behind, and what it printed."""
    folder = tmp_path_factory.mktemp("world")
    return folder / "home", finish(start(folder, "--minute", "0.02"))


def test_what_the_readme_shows_of_the_command_is_what_it_prints(world: tuple[Path, str]) -> None:
    [shown] = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    _, reported = world

    assert len(shown.splitlines()) > 10
    assert [line for line in shown.splitlines() if line not in reported.splitlines()] == []


def test_a_second_run_sends_no_message_again(world: tuple[Path, str]) -> None:
    home, _ = world
    before = Chat(home / "chat").calls()

    reported = finish(start(home.parent, "--minute", "0.02"))

    assert "8 calls, 0 new jobs" in reported
    assert Chat(home / "chat").calls() == before
    assert len(before) == 3


def test_show_prints_every_item(world: tuple[Path, str]) -> None:
    home, _ = world

    with redirect_stdout(StringIO()) as reported:
        show.main([str(home)])

    lines = reported.getvalue().splitlines()
    statuses = Counter(re.findall(r'"status": "(\w+)"', reported.getvalue()))
    assert statuses["dead_letter"] >= 2
    assert set(statuses) == {"completed", "dead_letter"}
    assert lines == sorted(lines, key=lambda line: re.findall(r'"SK": "([^"]+)"', line))


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_where_it_was(tmp_path: Path) -> None:
    chat = Chat(tmp_path / "home" / "chat")
    process = start(tmp_path, "--minute", "0.02")
    assert process.stdout is not None
    for line in process.stdout:
        if "new jobs" in line:  # the summaries are asked for, and some of them sent
            break
    process.kill()
    process.communicate(timeout=20)

    reported = finish(start(tmp_path, "--minute", "0.02"))

    assert "8 calls, 0 new jobs" in reported
    assert reported.count("completed    attempts") >= 6
    assert [message.user_id for message in chat.messages()] == ["ada", "bob", "eve"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dynamodb", "etcd"])
def test_another_address_is_all_it_takes_to_move(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    [shown] = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    name = f"companion-{secrets.token_hex(6)}"
    server = request.getfixturevalue(engine)
    url = local.url(server, name) if engine == "dynamodb" else server.url(name)

    reported = finish(start(tmp_path, "--minute", "0.02", "--url", url))
    with redirect_stdout(StringIO()) as items:
        show.main([str(tmp_path / "home"), "--url", url])

    assert [line for line in shown.splitlines() if line not in reported.splitlines()] == []
    assert f"companion.show home --url '{url}'" in reported
    assert items.getvalue().count('"PK": "job"') == 8
    assert not (tmp_path / "home" / "jobs.db").exists()
