"""`outlast dev`: a worker that restarts when the code changes."""

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
from outlast.cli.output import CommandOutput
from outlast.cli.target import find
from outlast.errors import InvalidType

SCAN_INTERVAL_S: Final = 0.5
"""Seconds between two scans of the folder."""

SKIPPED: Final = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__"})
"""Names of folders that are not scanned."""

MAX_FILES: Final = 20_000
"""How many files a scan covers at most."""


@click.command("dev")
@click.argument("app", required=False)
@click.option("-a", "--app", "app_option", help="The app, as for the other commands.")
@click.option(
    "--watch",
    type=click.Path(path_type=Path, exists=True),
    default=Path(),
    help="Folder to watch [the current one].",
)
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000))
def dev_command(
    app: str | None, app_option: str | None, watch: Path, concurrency: int | None
) -> None:
    """Run a worker of APP, and restart it whenever a Python file under --watch changes.

    Running jobs end, or are released, before the new worker starts. Ctrl-C stops it.
    """
    with exit_on_error():
        address = find(app or app_option, None).enter().app
        if address is None:
            raise InvalidType("no app given; write module:attribute, such as jobs:app")
        more = [] if concurrency is None else ["--concurrency", str(concurrency)]
        sys.exit(_watch([sys.executable, "-m", "outlast", "worker", address.value, *more], watch))


def _watch(program: list[str], folder: Path) -> int:
    stops: list[object] = []
    worker, before = _start(program), _modification_times(folder)

    def stop(*_: object) -> None:
        stops.append(None)
        worker.send_signal(signal.SIGTERM)  # a second SIGTERM makes the worker release its jobs

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)
    while not stops:
        time.sleep(SCAN_INTERVAL_S)
        now = _modification_times(folder)
        if now != before:
            CommandOutput().message(
                f"changed: {_changed_files(before, now)}; restarting the worker"
            )
            worker.send_signal(signal.SIGTERM)
            worker.wait()
            if not stops:
                worker, before = _start(program), now
    return worker.wait()


def _start(program: list[str]) -> "subprocess.Popen[bytes]":
    """Start the worker in its own process group, so that Ctrl-C reaches it only once."""
    return subprocess.Popen(program, process_group=0)  # noqa: S603 - our own program


def _modification_times(folder: Path) -> Mapping[Path, int]:
    """Return every Python file below `folder` with its modification time in nanoseconds."""
    found: dict[Path, int] = {}
    for here, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in SKIPPED]
        for file in (Path(here, name) for name in files if name.endswith(".py")):
            if len(found) == MAX_FILES:
                return found
            with suppress(OSError):  # deleted since the folder was listed
                found[file] = file.stat().st_mtime_ns
    return found


def _changed_files(before: Mapping[Path, int], now: Mapping[Path, int]) -> str:
    files = {file for file, _ in before.items() ^ now.items()}
    return ", ".join(sorted(file.name for file in files)[:3])
