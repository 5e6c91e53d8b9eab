"""What the pages for operators show can be done as it is shown."""

import asyncio
import re
import shlex
import textwrap
from pathlib import Path

import pytest

from outlast import Outlast
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


@pytest.mark.parametrize("url", URLS)
def test_the_variable_on_a_page_names_the_store_of_an_app(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_URL", url)

    app = Outlast()

    assert app.url == url
    assert app.store is not None
