"""`outlast demo`: a short tour in a temporary store."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from outlast.cli.command import Exit, fail


@click.command("demo")
@click.option("--script", is_flag=True, help="Plain text, without colours.")
@click.option("--keep", is_flag=True, help="Keep the store and the logs of the workers.")
def demo_command(script: bool, keep: bool) -> None:
    """Run real jobs on three workers and kill one; every claim is verified before it is printed.

    It takes a few seconds and removes its files. Exit 0: every claim held. Exit 1: one did not.
    """
    with ExitStack() as closing:
        folder = (
            tempfile.mkdtemp() if keep else closing.enter_context(tempfile.TemporaryDirectory())
        )
        sys.exit(_run(Path(folder), script=script, keep=keep))


def _run(folder: Path, *, script: bool, keep: bool) -> Exit:
    url = f"sqlite:///{folder / 'demo.db'}"
    os.environ["OUTLAST_DEMO_URL"] = url  # the app of the tour reads it at import
    from outlast.demo.tour import ClaimFailed, Tour  # noqa: PLC0415 - imports the app
    from outlast.demo.workers import DemoWorkers  # noqa: PLC0415 - imports the app

    workers = DemoWorkers(folder, url)
    try:
        asyncio.run(Tour(workers, _plain if script else _styled()).run())
    except ClaimFailed as error:
        fail(f"the tour stopped: a claim did not hold: {error}", Exit.FAILED)
    finally:
        workers.kill_all()
    kept = f"; the store is {folder / 'demo.db'}" if keep else ""
    click.echo(f"\nEverything above was verified. Next: outlast init{kept}")
    return Exit.OK


def _plain(text: str) -> None:
    click.echo(text)


def _styled() -> Callable[[str], None]:
    from rich.console import Console  # noqa: PLC0415 - slow import, not needed for --script

    console = Console(highlight=False)

    def say(text: str) -> None:
        style = "bold cyan" if text.startswith("—") else "green" if "✓" in text else None
        console.print(text, style=style, markup=False)

    return say
