"""Speed of claim and finish while the store grows."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter

from bench.finished import add_finished
from bench.ours import Noop, make_app
from bench.probe import Probe
from bench.progress import tell
from outlast import Outlast
from outlast.core.decide import succeed
from outlast.core.run import LeaseHolder
from outlast.store.sqlite.store import SqliteStore

BATCH = 100
"""Jobs per claim and per apply, about as in a busy worker."""

STEP = 1_000
"""How many are timed at a stretch, and then put back."""

FEWEST = 50 * STEP
"""Of rows: a fiftieth of them must still be enough for one step."""

CHUNK = 10_000
LEASE = timedelta(minutes=10)
HOLDER = LeaseHolder(instance_id="bench", boot_id="bench")


@dataclass(frozen=True, slots=True)
class Size:
    """A store size: number of waiting and of finished jobs."""

    queued: int
    finished: int = 0

    @property
    def name(self) -> str:
        ended = f", {self.finished:,} finished" if self.finished else ""
        return f"{self.queued:,} queued{ended}"


def sizes(rows: int) -> list[Size]:
    """Return the sizes; the others are compared with the first."""
    return [Size(STEP), Size(rows // 10), Size(rows), Size(rows // 50, rows)]


class Backlog:
    """One store of a given size, kept at that size while it is measured."""

    def __init__(self, folder: Path, size: Size) -> None:
        self.size = size
        self._path = folder / f"growth-{size.queued}-{size.finished}.db"
        self._store = SqliteStore(self._path)
        self._app, self._noop = make_app(self._store, Probe())

    async def open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._app)
        add_finished(self._path, self.size.finished)
        await fill(self._app, self._noop, self.size.queued)

    async def step(self) -> float:
        """Return the seconds to claim and finish a step; refilling is not counted."""
        since = perf_counter()
        for _ in range(STEP // BATCH):
            await self._turn()
        seconds = perf_counter() - since
        await fill(self._app, self._noop, STEP)
        return seconds

    async def _turn(self) -> None:
        claims = await self._store.claim(
            HOLDER, queue="default", types=["noop"], limit=BATCH, lease=LEASE
        )
        done = await self._store.apply([succeed(c.job_id, c.token, None) for c in claims])
        assert len(done) == BATCH
        assert all(done)


async def fill(app: Outlast, noop: Noop, jobs: int) -> None:
    """Enqueue in chunks, so that a million handles are not held in memory at a time."""
    for start in range(0, jobs, CHUNK):
        count = min(CHUNK, jobs - start)
        await app.enqueue_many(noop.bind(0.0) for _ in range(count))


async def measure(
    folder: Path, wanted: Sequence[Size], *, jobs: int, rounds: int
) -> list[list[float]]:
    """Jobs per second for each size in each round."""
    backlogs = [Backlog(folder, size) for size in wanted]
    async with AsyncExitStack() as stack:
        for backlog in backlogs:
            tell(f"growth, making a store with {backlog.size.name}")
            await backlog.open(stack)
        tell("growth, the sizes in turn")
        await _round(backlogs, STEP)  # warm
        taken = [await _round(backlogs, jobs) for _ in range(rounds)]
        tell()
    return [list(column) for column in zip(*taken, strict=True)]


async def _round(backlogs: Sequence[Backlog], jobs: int) -> list[float]:
    """Alternate between the sizes step by step, so that load changes affect all of them equally."""
    steps = max(1, jobs // STEP)
    seconds = [0.0] * len(backlogs)
    for _ in range(steps):
        for place, backlog in enumerate(backlogs):
            seconds[place] += await backlog.step()
    return [steps * STEP / spent for spent in seconds]
