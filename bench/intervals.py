"""`python -m bench intervals`: lateness of the slots of a short interval under `outlast worker`."""

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.chaos.worker_tree import WorkerTree, freeze, until, worker_trees

from bench.progress import tell
from bench.report import table
from bench.stores import STORES
from outlast.core.duration import parse_duration
from outlast.core.schedule import SlotOutcome, SlotRecord
from outlast.store.contract import Store
from outlast.store.open import open_store

APP = "bench.interval_app:app"
ROOT = Path(__file__).resolve().parent.parent
ASKED_MS = {"SQLite": 100.0, "PostgreSQL": 100.0, "etcd": 1000.0, "DynamoDB": 1000.0}
"""Milliseconds of lateness below which 99 of 100 slots must be."""

ASKED_FROZEN_MS = 1000.0
"""The same for every slot while the process with the scheduler lock is frozen."""

ALLOWED = {SlotOutcome.RAN, SlotOutcome.LATE}
"""Outcomes that stored a job: none was coalesced or missed."""


@dataclass(frozen=True, slots=True)
class Found:
    """The slots of one store in order: lateness in milliseconds, and the outcomes."""

    label: str
    late: Sequence[float]
    outcomes: Counter[SlotOutcome]
    asked: float

    @property
    def p99(self) -> float:
        return sorted(self.late)[int(len(self.late) * 0.99)]

    @property
    def is_well(self) -> bool:
        return set(self.outcomes) <= ALLOWED and self.p99 < self.asked

    @property
    def row(self) -> list[str]:
        late, other = sorted(self.late), self.outcomes.total() - self.outcomes[SlotOutcome.RAN]
        figures = [self.late[0], late[len(late) // 2], self.p99, late[-1]]
        slots = [str(len(late)), str(other)]
        return [self.label, *slots, *(f"{each:.0f}" for each in figures), f"{self.asked:.0f}"]


def main(words: Sequence[str]) -> int:
    """Return 0 if every store meets its target, else 1."""
    asked = _parser().parse_args(words)
    env = {"OUTLAST_BENCH_EVERY": asked.every, "PYTHONPATH": str(ROOT)}
    if asked.poll:
        env["OUTLAST_BENCH_POLL"] = asked.poll
    with ExitStack() as stack:
        urls = {label: stack.enter_context(url()) for label, url in _stores(asked).items()}
        tell(f"{asked.slots} slots every {asked.every} on {', '.join(urls)} at the same time")
        with ThreadPoolExecutor(len(urls)) as pool:
            measure = _frozen if asked.frozen else _on_time
            found = list(pool.map(lambda each: measure(*each, env, asked.slots), urls.items()))
    tell()
    head = ["store", "slots", "not ran", "first, ms", "p50", "p99", "latest", "p99 asked, under"]
    print("\n".join(table([head, *(each.row for each in found)])))
    return 0 if all(each.is_well for each in found) else 1


def _on_time(label: str, url: str, env: dict[str, str], slots: int) -> Found:
    """Measure one worker from its first start."""
    with _workers(url, env, 1):
        rows = _rows_after(url, slots, env)
    return _found(label, rows, ASKED_MS[label])


def _frozen(label: str, url: str, env: dict[str, str], slots: int) -> Found:
    """Measure the slots that a second worker fires while the one with the lock is frozen."""
    with _workers(url, env, 2) as trees:
        [holder] = until(lambda: [tree for tree in trees if tree.lines("scheduler lock acquired")])
        before = len(_rows_after(url, 3, env))
        freeze(holder.members())
        rows = _rows_after(url, before + slots + 1, env)
    return _found(f"{label}, frozen", rows[before + 1 :], ASKED_FROZEN_MS)


def _found(label: str, rows: Sequence[SlotRecord], asked: float) -> Found:
    late = [(row.actual - row.planned) / timedelta(milliseconds=1) for row in rows]
    return Found(label, late, Counter(row.outcome for row in rows), asked)


def _rows_after(url: str, slots: int, env: dict[str, str]) -> list[SlotRecord]:
    """Wait until there are that many slots; return all, the first one first."""
    every = parse_duration(env["OUTLAST_BENCH_EVERY"], what="every").total_seconds()
    while True:
        rows = asyncio.run(_rows(url))
        if len(rows) >= slots:
            return rows[::-1]
        time.sleep(max(1.0, every * (slots - len(rows)) / 2))


async def _rows(url: str) -> list[SlotRecord]:
    store: Store = open_store(url)
    await store.open()
    try:
        [schedule] = await store.schedules(limit=1) or [None]
        return await store.slots(schedule.id, limit=100_000) if schedule else []
    finally:
        await store.close()


@contextmanager
def _workers(url: str, env: dict[str, str], number: int) -> Iterator[list[WorkerTree]]:
    with (
        tempfile.TemporaryDirectory(prefix="outlast-bench-") as name,
        worker_trees(Path(name)) as grow,
    ):
        env = {**env, "OUTLAST_BENCH_URL": url}
        trees = [grow(app=APP, env=env) for _ in range(number)]
        for tree in trees:
            tree.ready()
        yield trees


def _stores(asked: argparse.Namespace) -> dict[str, Callable[[], AbstractContextManager[str]]]:
    if asked.only:
        return {asked.only: STORES[asked.only]}
    return STORES if asked.servers else {name: STORES[name] for name in ("SQLite", "PostgreSQL")}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench intervals", description=__doc__)
    add = parser.add_argument
    add("--slots", type=int, default=200, help="how many slots are measured (200)")
    add("--every", default="1s", help="the interval (1s)")
    add("--poll", help="the setting `poll` of the worker [the store's]")
    add("--servers", action="store_true", help="measure on etcd and DynamoDB as well")
    add("--only", help="measure on this store alone, such as DynamoDB")
    add("--frozen", action="store_true", help="freeze the worker with the scheduler lock")
    return parser
