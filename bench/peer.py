"""Huey with SQLite under the same measurements: one thread, no results, full sync."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import perf_counter, sleep
from typing import Any

from huey import SqliteHuey  # type: ignore[import-untyped]  # it has no types

from bench.probe import GAP, LIMIT, WARM, Probe, pick_up, rate

POLL = 0.01
"""Longest sleep of the idle worker in seconds; Huey's default starts at 0.1 s."""

Noop = Callable[[float], Any]


def one(path: Path, jobs: int) -> dict[str, float]:
    """Enqueue one after the other; the call returns when it is durable."""
    _, noop = _huey(path, Probe())
    noop(0.0)
    since = perf_counter()
    for _ in range(jobs):
        noop(0.0)
    return rate(jobs, since)


def bulk(path: Path, jobs: int) -> dict[str, float]:
    """Enqueue in a loop, since Huey has no bulk call."""
    return one(path, jobs - 1)


def drain(path: Path, jobs: int) -> dict[str, float]:
    """Run the queued jobs, from the first start of a handler until the queue is empty."""
    full = Event()
    probe = Probe(jobs, full.set)
    huey, _ = _huey(path, probe)
    with _consuming(huey):
        _require(full)
        while huey.storage.queue_size():
            sleep(0.001)
        return rate(jobs, probe.first)


def latency(path: Path, jobs: int) -> dict[str, float]:
    """Measure from the call to the start of the handler in another thread."""
    full = Event()
    probe = Probe(WARM + jobs, full.set)
    huey, noop = _huey(path, probe)
    with _consuming(huey):
        for _ in range(WARM + jobs):
            sleep(GAP)
            noop(perf_counter())
        _require(full)
    return pick_up(probe.waits)


def pragmas(path: Path) -> dict[str, Any]:
    """Read from a connection of the storage's own."""
    storage = _huey(path, Probe())[0].storage
    names = ("journal_mode", "synchronous")
    return {name: storage.sql(f"pragma {name}", results=True)[0][0] for name in names}


def _huey(path: Path, probe: Probe) -> tuple[Any, Noop]:
    huey = SqliteHuey("bench", filename=str(path), results=False, fsync=True)

    def noop(sent: float) -> None:
        probe.hit(sent)

    return huey, huey.task(name="noop")(noop)


@contextmanager
def _consuming(huey: Any) -> Iterator[None]:
    logging.getLogger("huey").setLevel(logging.WARNING)
    consumer = huey.create_consumer(
        workers=1,
        worker_type="thread",
        periodic=False,
        initial_delay=POLL,
        max_delay=POLL,
        check_worker_health=False,
    )
    consumer.start()
    try:
        yield
    finally:
        consumer.stop(graceful=True)


def _require(full: Event) -> None:
    if not full.wait(LIMIT):
        raise TimeoutError(f"Huey did not start every job within {LIMIT:.0f} s")
