"""`outlast demo`: a short tour in a temporary store."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any, Final

import click

from outlast.cli.command import Exit, exit_on_error, fail
from outlast.demo.screen import PrintLine, Screen, Style

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
STYLES: Final[dict[Style, str]] = {"heading": "bold cyan", "claim": "", "detail": ""}


@click.command("demo")
@click.option("--script", is_flag=True, help="Plain text, without colours.")
@click.option("--keep", is_flag=True, help="Keep the store and the logs, in a new folder here.")
def demo_command(script: bool, keep: bool) -> None:
    """Run real jobs on three workers and kill one; every claim is verified before it is printed.

    It takes about ten seconds and removes its files. Exit 0: every claim held. Exit 1: one did not.
    """
    with exit_on_error(), ExitStack() as closing:
        folder = (
            tempfile.mkdtemp(prefix="outlast-demo-", dir=".")
            if keep
            else closing.enter_context(tempfile.TemporaryDirectory(prefix="outlast-demo-"))
        )
        _run(Path(folder).absolute(), Screen(_plain if script else _styled()))
        if keep:
            url = f"sqlite:///{Path(folder).name}/demo.db"
            click.echo(f"The store is kept. Look around:\n  outlast jobs --url {url}")


def _run(folder: Path, screen: Screen) -> None:
    began = monotonic()
    url = f"sqlite:///{folder / 'demo.db'}"
    os.environ["OUTLAST_DEMO_URL"] = url  # the app of the tour reads it at import
    from outlast.demo.tour import ClaimFailed, Tour  # noqa: PLC0415 - imports the app
    from outlast.demo.workers import DemoWorkers  # noqa: PLC0415 - imports the app

    workers = DemoWorkers(folder, url)
    try:
        asyncio.run(_until_stopped(Tour(workers, screen).run()))
    except ClaimFailed as error:
        fail(f"the tour stopped: a claim did not hold: {error}", Exit.FAILED)
    finally:
        for each in (signal.SIGINT, *STOP_SIGNALS):
            signal.signal(each, signal.SIG_IGN)  # no worker is left by a second Ctrl-C
        workers.kill_all()
    click.echo(f"\nEvery claim held; it took {monotonic() - began:.0f} s. Next: outlast init")


async def _until_stopped(tour: Coroutine[Any, Any, None]) -> None:
    """Run the tour; SIGTERM and SIGHUP cancel it, and the command exits with 128 + the signal."""
    task = asyncio.ensure_future(tour)
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        task.cancel()

    for each in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(each, stop, each)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
        sys.exit(128 + received[0])


def _plain(text: str, _: Style) -> None:
    click.echo(text)


def _styled() -> PrintLine:
    from rich.console import Console  # noqa: PLC0415 - slow import, not needed for --script
    from rich.text import Text  # noqa: PLC0415 - same

    console = Console(highlight=False, soft_wrap=True)

    def print_line(text: str, style: Style) -> None:
        shown = Text(text, style=STYLES[style])
        shown.highlight_words(["✓"], "bold green")
        shown.highlight_words(["STOP "], "bold yellow")
        console.print(shown)

    return print_line
