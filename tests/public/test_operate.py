"""What the pages for operators show can be done as it is shown."""

import asyncio
import json
import re
import shlex
import textwrap
from configparser import ConfigParser
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.cli.health import health_command
from outlast.cli.worker import worker_command

FOLDER = Path(__file__).parents[2] / "docs" / "operate"
BLOCKS = [
    (page.name, block)
    for page in sorted(FOLDER.glob("*.md"))
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]
COMMANDS = [
    line
    for page in sorted(FOLDER.glob("*.md"))
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    for line in block.splitlines()
]
URLS = [
    url
    for page in sorted(FOLDER.glob("*.md"))
    for url in re.findall(r"^OUTLAST_URL=(\S+)$", page.read_text(), re.MULTILINE)
]
UNITS = [
    block
    for page in sorted(FOLDER.glob("*.md"))
    for block in re.findall(r"```ini\n(\[Unit\].*?)```", page.read_text(), re.DOTALL)
]
CONTAINERS = [
    line
    for page in sorted(FOLDER.glob("*.md"))
    for line in re.findall(r"command: (\[.*?\])", page.read_text())
]
AROUND = """
from outlast import Outlast

app = Outlast("sqlite:///jobs.db")

@app.job(queue="story")
async def story(chapter: int) -> int:
    return chapter

async def main() -> None:
    async with app, app.worker(queues=["story"]):
"""


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs_inside_an_app(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("outlast.telemetry.events._sinks", [])  # or a page's would stay
    names: dict[str, object] = {}

    exec(AROUND + textwrap.indent(BLOCKS[number][1], " " * 8), names)  # noqa: S102 - our own page

    asyncio.run(names["main"]())  # type: ignore[operator]


@pytest.mark.parametrize("line", COMMANDS)
def test_command_is_understood(line: str) -> None:
    program, subcommand, *args = shlex.split(line, comments=True)

    assert (program, subcommand) == ("outlast", "worker")
    assert worker_command.make_context("worker", args).params["app"] == "tasks:app"


def test_there_are_blocks_and_commands() -> None:
    assert len(BLOCKS) >= 3
    assert len(COMMANDS) >= 3
    assert len(URLS) >= 3
    assert len(UNITS) >= 1
    assert len(CONTAINERS) >= 3


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_of_systemd_starts_a_worker(unit: str) -> None:
    parsed = ConfigParser()
    parsed.read_string(unit)

    service = parsed["Service"]
    _, subcommand, *args = shlex.split(service["ExecStart"])
    assert subcommand == "worker"
    assert worker_command.make_context("worker", args).params["app"] == "tasks:app"
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0


@pytest.mark.parametrize("line", CONTAINERS)
def test_a_command_of_a_container_is_understood(line: str) -> None:
    program, subcommand, *args = json.loads(line)

    assert program == "outlast"
    made = {"worker": worker_command, "health": health_command}[subcommand]
    assert made.make_context(subcommand, args).params


@pytest.mark.parametrize("url", URLS)
def test_the_variable_on_a_page_names_the_store_of_an_app(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_URL", url)

    app = Outlast()

    assert app.url == url
    assert app.store is not None
