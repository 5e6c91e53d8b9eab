"""`python -m bench labels`: milliseconds of a search by tag and by meta among many jobs."""

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from bench.progress import tell
from bench.report import table
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.metadata import checked, labels_to_match, to_text
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.open import open_store
from outlast.testing.servers.postgres import postgres_server

BATCH: Final = 1_000
"""Jobs of one tenant, added together."""

RARE: Final = 100
"""Jobs with the rare tag."""

PAGE: Final = 50
REPEATS: Final = 15
MOST_MS: Final = 300.0


def main(words: Sequence[str]) -> int:
    """Print a row for each search; 1 if one takes longer than it may."""
    asked = _parser().parse_args(words)
    rows = [["search", "median, ms", "empty store, ms"]]
    slow = False
    with tempfile.TemporaryDirectory(prefix="outlast-bench-", dir=asked.dir) as folder:
        for name, urls in _stores(asked.stores, Path(folder)):
            empty, filled = asyncio.run(_measured(name, urls, asked.jobs))
            for what, taken in filled.items():
                rows.append([f"{name}, {what}", f"{taken:.1f}", f"{empty[what]:.1f}"])
                slow = slow or taken - empty[what] > MOST_MS
    tell()
    print("\n".join(table(rows)), flush=True)
    return int(slow)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench labels", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--dir", help="folder for the stores")
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgres"])
    return parser


def _stores(names: Sequence[str], folder: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each kind of store with the URLs of an empty one and of one to fill."""
    if "sqlite" in names:
        yield "sqlite", (f"sqlite:///{folder / 'a.db'}", f"sqlite:///{folder / 'b.db'}")
    if "postgres" in names:
        with postgres_server() as server:
            yield "postgres", (server.new_database(), server.new_database())


async def _measured(
    name: str, urls: tuple[str, str], jobs: int
) -> tuple[dict[str, float], dict[str, float]]:
    found = []
    for url, number in zip(urls, (0, jobs), strict=True):
        store = open_store(url)
        await store.open()
        await _fill(store, number, name)
        found.append({what: await _time(store, wanted) for what, wanted in SEARCHES.items()})
        await store.close()
    return found[0], found[1]


async def _fill(store: Store, jobs: int, name: str) -> None:
    numbers = count(1)
    for start in range(0, jobs, BATCH):
        tell(f"labels, {name}, {start:,} of {jobs:,} jobs")
        meta = {"tenant": f"tenant-{start // BATCH}", "size": 3}
        usual, odd = (to_text(checked(tags=t, meta=meta)) for t in (["all"], ["all", "rare"]))
        ids = [JobId(f"00000000-0000-7000-8000-{next(numbers):012x}") for _ in range(BATCH)]
        texts = [odd if start == 0 and n < RARE else usual for n in range(BATCH)]
        await store.add([_job(i, text) for i, text in zip(ids, texts, strict=True)])


def _job(job_id: JobId, metadata: str | None) -> NewJob:
    return NewJob(id=job_id, type="t", name="t", params="{}", queue="q", metadata=metadata)


def _by(tags: list[str], meta: dict[str, Any], **more: Any) -> Filter:
    return Filter(labels=labels_to_match(tags=tags, meta=meta), **more)


SEARCHES: Final = {
    "tag: of every job": _by(["all"], {}),
    "tag: of 100 jobs": _by(["rare"], {}),
    "tag: of none": _by(["none"], {}),
    "meta.tenant: of 1,000 jobs": _by([], {"tenant": "tenant-0"}),
    "tag: and meta.tenant:": _by(["all"], {"tenant": "tenant-0"}),
    "tag: of 100 jobs, state:queued": _by(["rare"], {}, states=frozenset({State.QUEUED})),
    "tag: of every job, state:dead": _by(["all"], {}, states=frozenset({State.DEAD_LETTER})),
    "tag: of 100 jobs, no such type": _by(["rare"], {}, type="other"),
}


async def _time(store: Store, wanted: Filter) -> float:
    """Return the median of the milliseconds of a page."""
    taken = []
    for _ in range(REPEATS):
        since = perf_counter()
        await store.find(wanted, limit=PAGE)
        taken.append(1000 * (perf_counter() - since))
    return median(taken)
