"""`python -m bench transfer`: rows per second that `outlast db copy` writes into each store."""

import argparse
import asyncio
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from bench.finished import add_finished
from bench.progress import tell
from bench.report import table
from bench.stores import STORES
from outlast.core.ids import Ids
from outlast.store.open import open_store
from outlast.transfer import StoreCopy

_IDS = Ids(lambda: datetime.now(UTC), secrets.randbits)
ASKED = {"etcd": 2_000}
"""Rows per second at least, on a quiet machine."""


def main(words: Sequence[str]) -> int:
    """Return 0 if every store meets the target, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench transfer", description=__doc__)
    parser.add_argument("--finished", type=int, default=5_000, help="ended jobs, each with a run")
    parser.add_argument("--only", nargs="*", choices=list(STORES), help="these stores alone")
    asked = parser.parse_args(words)
    found = {label: asyncio.run(_copied(label, asked.finished)) for label in asked.only or STORES}
    tell()
    head = ["from a file to", "rows", "rows/s", "rows per s of CPU", "sealed, s", "asked, rows/s"]
    told = [
        [label, f"{h.rows:,}", f"{h.rate:,.0f}", f"{h.rate_of_cpu:,.0f}", f"{sealed:.1f}", least]
        for label, (h, sealed) in found.items()
        for least in [f"{ASKED[label]:,}" if label in ASKED else "-"]
    ]
    print("\n".join(table([head, *told])))
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0 if all(h.rate >= ASKED.get(label, 0) for label, (h, _) in found.items()) else 1


async def _copied(label: str, finished: int) -> tuple["_History", float]:
    """Return what the first pass has done, and the seconds under the seal."""
    with TemporaryDirectory() as folder, STORES[label]() as to_url:
        from_url = f"sqlite:///{Path(folder) / 'jobs.db'}"
        source, target = open_store(from_url), open_store(to_url)
        await source.open()
        add_finished(Path(folder) / "jobs.db", finished)
        await target.open()
        history = _History()
        tell(f"{label}, copying {finished:,} jobs")
        copied = await StoreCopy(
            source,
            target,
            from_url=from_url,
            to_url=to_url,
            new_id=_IDS.job,
            grace=timedelta(0),
            progress=history,
        ).run()
        assert copied is not None
        await source.close()
        await target.close()
        return history, copied.sealed_for


class _History:
    """Counts the rows of the first pass, and the time that it takes."""

    def __init__(self) -> None:
        self._began = self._ended = perf_counter()
        self._cpu_began = self._cpu_ended = process_time()
        self.rows = 0

    def __call__(self, step: str, more: int) -> None:
        if step == "history":
            self.rows += more
            self._ended, self._cpu_ended = perf_counter(), process_time()

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / (self._ended - self._began)

    @property
    def rate_of_cpu(self) -> float:
        """Rows per second of this process's time on a core, whatever else the machine does."""
        return self.rows / (self._cpu_ended - self._cpu_began)
