"""`outlast init`: write a first app."""

from pathlib import Path
from typing import Final

import click

from outlast.cli.command import Exit, fail

APP: Final = '''\
"""Background jobs. Start a worker with: outlast worker jobs:app"""

from outlast import Outlast, Run

app = Outlast("sqlite:///jobs.db")


@app.job
async def greet(run: Run, name: str) -> str:
    return f"Hello {name}, this is attempt {run.attempt}."
'''
NEXT: Final = """\
wrote {file}. Next, in this folder:

  outlast worker jobs:app                          # keep it running
  outlast enqueue -a jobs:app greet '{{"name": "Ada"}}' --wait
  outlast jobs -a jobs:app
"""


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def init_command(folder: Path) -> None:
    """Write a small jobs.py into FOLDER and print the next steps; never overwrites a file."""
    file = folder / "jobs.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write(APP)
    except FileExistsError:
        fail(f"{file} exists; nothing was written", Exit.REFUSED)
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}", Exit.UNREACHABLE)
    click.echo(NEXT.format(file=file), err=True, nl=False)
