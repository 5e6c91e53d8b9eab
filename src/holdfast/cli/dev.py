"""`holdfast dev`: a worker that starts afresh when the code changes."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from holdfast.cli.frame import telling
from holdfast.cli.where import find
from holdfast.errors import InvalidType

LOOK: Final = 0.5
SKIPPED: Final = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__"})
MOST_FILES: Final = 20_000


@click.command("dev")
@click.argument("app", required=False)
@click.option(
    "--watch", type=click.Path(path_type=Path, exists=True), default=Path(), help="A folder."
)
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000))
def command(app: str | None, watch: Path, concurrency: int | None) -> None:
    """Run a worker of APP, and start it afresh whenever a Python file under --watch changes.

    Jobs in hand end, or are handed back, before the new one starts. Ctrl-C stops it.
    """
    with telling():
        address = find(app, None).app
        if address is None:
            raise InvalidType("which app? give it as module:attribute, such as jobs:app")
        more = [] if concurrency is None else ["--concurrency", str(concurrency)]
        sys.exit(_watch([sys.executable, "-m", "holdfast", "worker", address.value, *more], watch))


def _watch(program: list[str], folder: Path) -> int:
    asked: list[int] = []
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: asked.append(number))
    worker, seen = subprocess.Popen(program), _seen(folder)  # noqa: S603 - our own program
    while not asked:
        time.sleep(LOOK)
        now = _seen(folder)
        if now != seen:
            click.echo(f"changed: {_which(seen, now)}; starting afresh", err=True)
            _stop(worker)
            worker, seen = subprocess.Popen(program), now  # noqa: S603 - as above
    return _stop(worker)


def _stop(worker: "subprocess.Popen[bytes]") -> int:
    if worker.poll() is None:
        worker.send_signal(signal.SIGTERM)
    return worker.wait()


def _seen(folder: Path) -> Mapping[Path, int]:
    """Every Python file and when it was written."""
    found: dict[Path, int] = {}
    for file in folder.rglob("*.py"):
        if len(found) < MOST_FILES and not SKIPPED.intersection(file.parts):
            try:
                found[file] = file.stat().st_mtime_ns
            except OSError:  # gone between two looks
                continue
    return found


def _which(before: Mapping[Path, int], now: Mapping[Path, int]) -> str:
    files = {file for file, _ in before.items() ^ now.items()}
    return ", ".join(sorted(file.name for file in files)[:3])
