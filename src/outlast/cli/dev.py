"""`outlast dev`: a worker that starts afresh when the code changes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from outlast.cli.command import exit_on_error
from outlast.cli.target import find
from outlast.errors import InvalidType

LOOK: Final = 0.5
SKIPPED: Final = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__"})
MOST_FILES: Final = 20_000


@click.command("dev")
@click.argument("app", required=False)
@click.option(
    "--watch", type=click.Path(path_type=Path, exists=True), default=Path(), help="A folder."
)
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000))
def dev_command(app: str | None, watch: Path, concurrency: int | None) -> None:
    """Run a worker of APP, and start it afresh whenever a Python file under --watch changes.

    Jobs in hand end, or are handed back, before the new one starts. Ctrl-C stops it.
    """
    with exit_on_error():
        address = find(app, None).app
        if address is None:
            raise InvalidType("which app? give it as module:attribute, such as jobs:app")
        more = [] if concurrency is None else ["--concurrency", str(concurrency)]
        sys.exit(_watch([sys.executable, "-m", "outlast", "worker", address.value, *more], watch))


def _watch(program: list[str], folder: Path) -> int:
    asked: list[object] = []
    worker, seen = _start(program), _seen(folder)

    def stop(*_: object) -> None:
        asked.append(None)
        worker.send_signal(signal.SIGTERM)  # a second one hurries it

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)
    while not asked:
        time.sleep(LOOK)
        now = _seen(folder)
        if now != seen:
            click.echo(f"changed: {_which(seen, now)}; starting afresh", err=True)
            worker.send_signal(signal.SIGTERM)
            worker.wait()
            if not asked:
                worker, seen = _start(program), now
    return worker.wait()


def _start(program: list[str]) -> "subprocess.Popen[bytes]":
    """In a group of its own, or Ctrl-C would reach it twice, which hurries it."""
    return subprocess.Popen(program, process_group=0)  # noqa: S603 - our own program


def _seen(folder: Path) -> Mapping[Path, int]:
    """Every Python file and when it was written."""
    found: dict[Path, int] = {}
    for here, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in SKIPPED]  # which are large
        for file in (Path(here, name) for name in files if name.endswith(".py")):
            if len(found) == MOST_FILES:
                return found
            with suppress(OSError):  # gone between two looks
                found[file] = file.stat().st_mtime_ns
    return found


def _which(before: Mapping[Path, int], now: Mapping[Path, int]) -> str:
    files = {file for file, _ in before.items() ^ now.items()}
    return ", ".join(sorted(file.name for file in files)[:3])
