"""Text from jobs is data: no command sends it raw to a terminal or ends in a traceback over it."""

import asyncio
import json
import re
import shutil
import sqlite3
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import click.testing
import pytest

import outlast.cli
from outlast.cli.job_filter import parse
from outlast.jobs.job_filter import _argument

from .conftest import Cli
from .hostile_store import PAYLOADS, build

COMMANDS = [
    ["jobs", "-n", "1000"], ["jobs", "state:running"], ["jobs", "params.x=1"], ["jobs", "error:a"],
    ["jobs", "--count"], ["jobs", "type:*"], ["show", "<ended>"], ["logs", "<ended>"],
    ["explain", "<ended>"], ["show", "<running>"], ["explain", "<running>"], ["logs", "<running>"],
    ["show", "<waiting>"], ["explain", "<waiting>"], ["show", "<renamed>"],
    ["explain", "<renamed>"],
    ["queue", "list"], ["queue", "order", "default"], ["queue", "resume", "default"],
    ["template", "list"], ["group", "list"], ["group", "get", "<group>"], ["schedule", "list"],
    ["schedule", "history", "nightly"], ["schedule", "next", "nightly"],
    ["schedule", "pause", "nightly"], ["schedule", "run", "nightly", "--next"],
    ["top", "--once"], ["workers"], ["doctor"], ["verify"], ["db", "status"], ["cancel", "type:*"],
    ["cancel", "-y", "type:*"], ["cancel", "<waiting>"], ["retry", "type:*"], ["retry", "<ended>"],
    ["move", "<waiting>", "front"], ["edit", "<waiting>", "--priority", "1"],
    ["db", "prune", "--older-than", "0s", "-y"],
]  # fmt: skip
EXIT_CODES = {0, 1, 2, 4}
"""Success, a finding, a stored value that is refused, a refusal: never an internal error."""

RICH = re.compile(r"\x1b\[\??[\d;]*[A-Za-z]|\r")
"""What rich itself writes to a terminal: styles and movements of the cursor."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    path = tmp_path_factory.mktemp("hostile") / "jobs.db"
    return path, asyncio.run(build(path))


@pytest.fixture
def ids(
    cli: Cli, built: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """A copy of the hostile store in the folder of `cli`, and a terminal as output."""
    shutil.copy(built[0], cli.folder / "jobs.db")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(
        click.testing._NamedTextIOWrapper, "isatty", lambda stream: stream.mode == "w"
    )
    return built[1]


def unsafe(text: str) -> set[str]:
    """The characters that may reach no terminal, found by their Unicode category."""
    found = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    return found - {"\n", "\t"}


@pytest.mark.parametrize("form", ["text", "json", "colour"])
@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_no_command_shows_stored_text_raw(
    cli: Cli, ids: dict[str, str], args: list[str], form: str
) -> None:
    args = [ids[arg.strip("<>")] if arg.startswith("<") else arg for arg in args]
    args += ["--json"] if form == "json" else []

    result = cli(*args, typed="n\n", colour=form == "colour")

    shown = RICH.sub("", result.output) if form == "colour" else result.output
    assert result.exit_code in EXIT_CODES, shown
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert "Usage:" not in shown
    assert unsafe(shown) == set()
    if args[0] != "logs":  # a log file has lines of its own
        assert not any(line.startswith("FORGED") for line in shown.splitlines())


def test_every_command_prints_through_the_safe_functions() -> None:
    """A new `click.echo` of text from a store needs `printable` or `printable_lines`."""
    own_text = {"completion.py", "confirm.py", "db.py", "demo.py", "init.py"}
    folder = Path(outlast.cli.__file__).parent
    lines = [
        f"{path.name}: {line.strip()}"
        for path in folder.glob("*.py")
        if path.name not in own_text | {"output.py"}
        for line in path.read_text(encoding="utf-8").splitlines()
        if "click.echo(" in line and "printable" not in line
    ]

    assert lines == ["job_logs.py: click.echo(block, nl=False)"]  # `logs --raw`


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_stored_payload_ends_a_command_in_a_traceback(
    cli: Cli, ids: dict[str, str], payload: str
) -> None:
    job_id = ids[payload]

    results = [
        cli(*args)
        for args in (
            ["show", job_id], ["show", job_id, "--json"], ["explain", job_id], ["logs", job_id],
            ["jobs", f"id:{job_id}", "params.x=1"], ["retry", job_id],
        )
    ]  # fmt: skip

    assert {result.exit_code for result in results} <= EXIT_CODES, [r.output for r in results]
    assert all(isinstance(result.exception, SystemExit | None) for result in results)
    shown, as_json = results[:2]
    is_marked = "(not readable as JSON)" in shown.output
    assert is_marked == ("params" in json.loads(as_json.stdout).get("unreadable", []))
    assert is_marked == (payload not in {"no object", "control", "lone surrogate"})
    assert unsafe("".join(result.output for result in results)) == set()


@pytest.mark.parametrize("params", [*PAYLOADS.values(), "[" * 100_000], ids=[*PAYLOADS, "endless"])
def test_params_of_the_command_line_are_refused_in_one_line(cli: Cli, params: str) -> None:
    for args in (
        ["enqueue", "add", params],
        ["template", "save", "t", "add", params],
        ["enqueue", "add", f'{{"left": {params}}}'],
    ):
        result = cli(*args)
        assert result.exit_code == 2, result.output[:500]
        assert result.stderr.count("\n") == 1
        assert unsafe(result.stderr) == set()


def test_a_search_finds_an_argument_beside_a_number_that_python_cannot_convert(cli: Cli) -> None:
    number = "7" * 5000

    wanted = parse(["params.x=1"], now=datetime.now(UTC))
    of_number = parse([f"params.y={number}"], now=datetime.now(UTC))

    assert _argument(f'{{"x":1,"y":{number}}}', "x") == wanted.params["x"]
    assert _argument(f'{{"x":1,"y":{number}}}', "y") == of_number.params["y"]


def test_logs_prints_the_file_safely_and_raw_if_asked(cli: Cli, ids: dict[str, str]) -> None:
    log = b"caf\xc3\xa9\r\n\x1b[31mred\rnext\xff\n"
    path = cli.folder / "outlast-logs" / "run.log"
    path.parent.mkdir()
    path.write_bytes(log)
    with sqlite3.connect(cli.folder / "jobs.db") as database:
        database.execute("UPDATE outlast_runs SET log_path = ?", [str(path)])

    safe = cli("logs", ids["ended"])
    raw = cli("logs", ids["ended"], "--raw")

    assert safe.stdout.startswith("café\n\\x1b[31mred\nnext\\xff\nprogress ")
    assert raw.stdout_bytes == log


@pytest.mark.parametrize(
    "named", ["{folder}/other.log", "{folder}/outlast-logs/../other.log", "link"]
)
def test_logs_shows_no_file_outside_the_folder_of_logs(
    cli: Cli, ids: dict[str, str], named: str
) -> None:
    folder = cli.folder / "outlast-logs"
    folder.mkdir()
    (cli.folder / "other.log").write_text("a private key")
    link = folder / "link"
    link.symlink_to(cli.folder / "other.log")
    path = str(link) if named == "link" else named.format(folder=cli.folder)
    with sqlite3.connect(cli.folder / "jobs.db") as database:
        database.execute("UPDATE outlast_runs SET log_path = ?", [path])

    for options in ([], ["--raw"], ["--json"]):
        shown = cli("logs", ids["ended"], *options)

        assert shown.exit_code == 0
        assert "a private key" not in shown.output
        assert f"is not shown, because it is not below {folder}" in shown.stderr


def test_a_remedy_quotes_the_name_it_contains(cli: Cli, ids: dict[str, str]) -> None:
    with sqlite3.connect(cli.folder / "jobs.db") as database:
        database.execute("PRAGMA ignore_check_constraints = 1")
        for table in ("jobs", "waiting"):
            database.execute(f"UPDATE outlast_{table} SET queue = 'a; rm b', type = '$(c)'")  # noqa: S608

    found = cli("doctor").stdout + cli("explain", ids["waiting"]).stdout

    assert "fix: `outlast worker -q 'a; rm b'`" in found
    assert "`outlast cancel 'type:$(c)'`" in found
    assert "Clears when: `outlast worker -q 'a; rm b'`" in found


def test_json_is_ascii_on_a_terminal_and_utf8_in_a_pipe(
    cli: Cli, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal = cli("show", ids["control"], "--json").stdout
    monkeypatch.undo()
    monkeypatch.chdir(cli.folder)
    in_pipe = cli("show", ids["control"], "--json").stdout

    assert on_terminal.isascii()
    assert "\x9b" in in_pipe
    assert json.loads(on_terminal) == json.loads(in_pipe)
