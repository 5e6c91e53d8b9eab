"""Runs a page of the documentation: writes its files, types its commands, compares."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)
ASSUMED = {"pip install ../outlast"}
"""What the tests have done already."""


def play(page: str, folder: Path) -> None:
    """Go through the page in that folder; AssertionError where it is not true."""
    for kind, text in FENCE.findall(page):
        if kind == "python":
            _write(text, folder)
        else:
            for command, expected in _typed(text):
                _compare(command, expected, folder)


def _write(text: str, folder: Path) -> None:
    name = re.match(r"# (\w+\.py)\n", text)
    assert name is not None, f"a block names no file: {text[:60]}"
    file = folder / name[1]
    body = text[name.end() :]
    if file.exists():  # a command made it: then the page shows it
        assert file.read_text() == body
    file.write_text(body)


def _typed(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield command, shown


def _compare(command: str, expected: list[str], folder: Path) -> None:
    if command in ASSUMED:
        return
    reported = run(command, folder)
    pattern = "\n".join(_pattern(line) for line in expected)
    assert re.fullmatch(pattern, reported.rstrip("\n")), (
        f"$ {command}\n{reported}\nis not\n{expected}"
    )


def _pattern(line: str) -> str:
    """`…` stands for anything in its line, and a run of blanks for another one."""
    return re.sub(r"(\\ )+", r" +", ".*".join(re.escape(part) for part in line.split("…"))) + " *"


def run(command: str, folder: Path) -> str:
    """What the command prints, on either stream, in the order of a terminal."""
    program, *rest = shlex.split(command, comments=True)
    known = {"outlast": [sys.executable, "-m", "outlast"], "python": [sys.executable]}
    done = subprocess.run(
        [*known[program], *rest],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    return done.stdout
