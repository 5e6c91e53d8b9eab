"""Whether a job costs the same in a large group as in a small one, and as in none."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

from bench.figures import Series
from bench.growth import BATCH, HOLDER, LEASE
from bench.ours import Noop, make_app
from bench.probe import Probe
from bench.progress import tell
from bench.report import spread, table
from outlast import GroupHandle, Outlast
from outlast.core.decide import succeed
from outlast.jobs.groups import ModeName
from outlast.store.sqlite.store import SqliteStore

SIZES: Final = (100, 10_000)
"""The first is what the second is compared with; both have the same number of jobs in all."""

STEPS: Final = 1_000
"""How many members of sequential groups are run, one by one."""

ACTS: Final = ("enqueue", "claim and finish", "in sequence", "cancel")
ALONE: Final = "no group"

Rates = dict[str, dict[str, list[float]]]
"""Microseconds per job, by act and by size, in each round."""


def measure(folder: Path, *, jobs: int, rounds: int) -> Rates:
    """The sizes take turns in each round; the first round is to warm up and does not count."""
    names = [ALONE, *(f"groups of {size:,}" for size in SIZES)]
    found: Rates = {act: {name: [] for name in names} for act in ACTS}
    for number in range(rounds + 1):
        tell(f"groups, round {number} of {rounds}")
        for name, size in zip(names, (0, *SIZES), strict=True):
            path = folder / f"groups-{number}-{size}.db"
            taken = asyncio.run(_round(path, size, jobs if number else jobs // 10))
            for act, micros in taken.items():
                found[act][name] += [micros] if number else []
    tell()
    return found


def lines(found: Rates) -> list[str]:
    """Each act with its cost per job, and that of the large group over that of the small one."""
    *_, small, large = found[ACTS[0]]
    rows = [["us per job", ALONE, small, large, "large over small", "asked"]]
    for act, sizes in found.items():
        cells = [spread(Series(sizes[name])) if sizes[name] else "-" for name in sizes]
        ratio = Series(sizes[large]).over(Series(sizes[small]))
        rows.append([act, *cells, f"{spread(ratio, 2)}x", "at most 1.10x"])
    return table(rows)


async def _round(path: Path, size: int, jobs: int) -> dict[str, float]:
    store = SqliteStore(path)
    app, noop = make_app(store, Probe())
    async with app:
        if not size:
            return {
                "enqueue": await _timed(jobs, lambda: app.enqueue_many(_bound(noop, jobs))),
                "claim and finish": await _timed(jobs, lambda: _finish(store, jobs, BATCH)),
            }
        counts = [size] * (jobs // size) or [jobs]
        taken = {"enqueue": await _timed(jobs, lambda: _start(app, noop, counts))}
        taken["claim and finish"] = await _timed(jobs, lambda: _finish(store, jobs, BATCH))
        steps = min(STEPS, jobs)
        await _start(app, noop, counts, mode="sequential")
        taken["in sequence"] = await _timed(steps, lambda: _finish(store, steps, 1))
        for group in await app.groups.list(limit=len(counts)):
            if not group.is_over:
                await app.groups.handle(group.id).cancel()
        groups = await _start(app, noop, counts)
        taken["cancel"] = await _timed(jobs, lambda: _cancel(groups))
        return taken


async def _timed(jobs: int, act: Callable[[], Awaitable[object]]) -> float:
    since = perf_counter()
    await act()
    return (perf_counter() - since) / jobs * 1_000_000


def _bound(noop: Noop, jobs: int) -> list[object]:
    return [noop.bind(0.0) for _ in range(jobs)]


async def _start(
    app: Outlast, noop: Noop, counts: Sequence[int], mode: ModeName = "parallel"
) -> list[GroupHandle]:
    return [await app.groups.start((noop.bind(0.0) for _ in range(n)), mode=mode) for n in counts]


async def _finish(store: SqliteStore, jobs: int, batch: int) -> None:
    """Claim and finish so many, as a worker with that much in hand does."""
    for _ in range(jobs // batch):
        claims = await store.claim(
            HOLDER, queue="default", types=["noop"], limit=batch, lease=LEASE
        )
        assert len(claims) == batch, f"{len(claims)} of {batch}"
        assert all(await store.apply([succeed(c.job_id, c.token, None) for c in claims]))


async def _cancel(groups: Sequence[GroupHandle]) -> None:
    for group in groups:
        await group.cancel()
