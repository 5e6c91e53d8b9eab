"""Time of CLI commands on a store with a long history and a long queue."""

import asyncio
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.finished import add_finished
from bench.growth import fill
from bench.ours import make_app
from bench.probe import Probe
from bench.progress import tell
from bench.report import table
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore

WAITING = 100_000
TIMES = 5


Took = dict[str, tuple[float, float]]


def measure(folder: Path, *, rows: int) -> Took:
    """Milliseconds of each, the start of Python taken off: on that store, and on an empty one."""
    tell(f"commands, making {rows:,} finished and {WAITING:,} waiting")
    long = asyncio.run(_make(folder / "long.db", rows, WAITING))
    short = asyncio.run(_make(folder / "short.db", 0, 1))
    tell("commands, asking")
    bare = _timed([sys.executable, "-c", "pass"])
    took = [_each(path, job_id, bare) for path, job_id in (long, short)]
    return {name: (took[0][name], took[1][name]) for name in took[0]}


def lines(found: Took) -> list[str]:
    """Return a table; the difference is the cost of the history."""
    told = [["command", "ms", "on an empty store", "difference", "asked"]]
    for name, (long, short) in found.items():
        more = "-" if name == "--help" else f"{long - short:.0f}"
        asked = "under 200 in all" if name == "--help" else "difference under 300"
        told.append([name, f"{long:.0f}", f"{short:.0f}", more, asked])
    return table(told)


def _each(path: Path, job_id: str, bare: float) -> dict[str, float]:
    where = ["--url", f"sqlite:///{path}"]
    asked = {
        "--help": ["--help"],
        "jobs": ["jobs", *where],
        "jobs state:dead_letter": ["jobs", "state:dead_letter", *where],
        "show": ["show", job_id, *where],
        "explain": ["explain", job_id, *where],
        "top --once": ["top", "--once", *where],
    }
    program = [sys.executable, "-m", "outlast"]
    return {name: _timed([*program, *args]) - bare for name, args in asked.items()}


def _timed(program: list[str]) -> float:
    """The median of a few, in milliseconds."""
    took = []
    for _ in range(TIMES):
        since = perf_counter()
        subprocess.run(program, check=True, capture_output=True)
        took.append((perf_counter() - since) * 1000)
    return median(took)


async def _make(path: Path, finished: int, waiting: int) -> tuple[Path, str]:
    store = SqliteStore(path)
    app, noop = make_app(store, Probe())
    async with app:
        add_finished(path, finished)
        await fill(app, noop, waiting)
        (job,) = await store.find(Filter(), limit=1)
        return path, job.id
