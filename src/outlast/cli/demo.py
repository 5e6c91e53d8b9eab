"""`outlast demo`: a short tour, on a store of its own."""

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
@click.option("--script", is_flag=True, help="Plain text, no terminal needed; exit 0 if all is so.")
@click.option("--keep", is_flag=True, help="Leave the store and the workers' logs behind.")
def demo_command(script: bool, keep: bool) -> None:
    """Show real jobs, three real workers and a real kill; every line is checked before it is said.

    It takes some seconds, and leaves nothing behind.
    """
    with ExitStack() as closing:
        folder = (
            tempfile.mkdtemp() if keep else closing.enter_context(tempfile.TemporaryDirectory())
        )
        sys.exit(_run(Path(folder), script=script, keep=keep))


def _run(folder: Path, *, script: bool, keep: bool) -> Exit:
    url = f"sqlite:///{folder / 'demo.db'}"
    os.environ["OUTLAST_DEMO_URL"] = url  # before the app is loaded, which reads it
    from outlast.demo.tour import ClaimFailed, Tour  # noqa: PLC0415 - see above
    from outlast.demo.workers import DemoWorkers  # noqa: PLC0415 - see above

    crew = DemoWorkers(folder, url)
    try:
        asyncio.run(Tour(crew, _plain if script else _styled()).run())
    except ClaimFailed as error:
        fail(f"the tour stops here, for this is not so: {error}", Exit.FAILED)
    finally:
        crew.drop()
    kept = f"; the store is {folder / 'demo.db'}" if keep else ""
    click.echo(f"\nEverything above was checked. Next: outlast init{kept}")
    return Exit.OK


def _plain(text: str) -> None:
    click.echo(text)


def _styled() -> Callable[[str], None]:
    from rich.console import Console  # noqa: PLC0415 - not for a script

    console = Console(highlight=False)

    def say(text: str) -> None:
        style = "bold cyan" if text.startswith("—") else "green" if "✓" in text else None
        console.print(text, style=style, markup=False)

    return say
