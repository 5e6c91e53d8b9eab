"""Cost of manual order: moves in a long queue, enqueues into a position queue."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

from bench.figures import Series
from bench.growth import fill
from bench.ours import Noop, make_app
from bench.probe import Probe
from bench.progress import tell
from bench.report import spread, table
from outlast import Outlast
from outlast.core.ordering import Ordering
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.store import SqliteStore

FEW, MOST = 100, 100_000
"""How many jobs the short queue has, and the long one unless fewer are asked for."""

MOVES = 300
STEP = 25
ONE_STEP = 50
PAGE = 10_000
PLACES = ("front", "back", "before", "after", "swap")


def measure(folder: Path, *, rows: int, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Every round's figures: milliseconds of a move, jobs per second of an enqueue."""
    moves = asyncio.run(_moves(folder, rows, rounds))
    return moves | asyncio.run(_enqueues(folder, jobs, rounds))


def lines(found: dict[str, list[float]], rows: int) -> list[str]:
    """Return the figures of both sides with the ratio per round."""
    few, many = Series(found["move_few"]), Series(found["move_many"])
    told = [["order", "", "", "ratio", "asked"]]
    move = f"move in {rows:,} and in {FEW:,}, ms"
    told.append([move, spread(many, 2), spread(few, 2), f"{spread(many.over(few), 2)}x", "small"])
    for what in ("one", "bulk"):
        by, plain = Series(found[f"{what}_position"]), Series(found[f"{what}_scheduled"])
        label = f"enqueue {what}, position and scheduled, jobs/s"
        ratio = f"{spread(by.over(plain), 2)}x"
        told.append([label, spread(by), spread(plain), ratio, "at least 0.5x"])
    return table(told)


async def _moves(folder: Path, rows: int, rounds: int) -> dict[str, list[float]]:
    """Alternate between two queues of different length, a few moves each."""
    async with AsyncExitStack() as stack:
        tell(f"order, making queues of {FEW:,} and {rows:,}")
        lanes = [await _lane(stack, folder / f"order-{size}.db", size) for size in (FEW, rows)]
        tell("order, moving")
        for lane in lanes:
            await lane.step()  # warm
        taken = [await _turns([lane.step for lane in lanes], MOVES // STEP) for _ in range(rounds)]
        tell()
    return {
        name: [1000 * median(round_[place]) for round_ in taken]
        for place, name in enumerate(("move_few", "move_many"))
    }


class Lane:
    """A `position` queue whose jobs are moved to random positions."""

    def __init__(self, app: Outlast, jobs: Sequence[str]) -> None:
        self._app = app
        self._jobs = jobs
        self._random = Random(1)

    async def step(self) -> float:
        """Seconds that one move took, of a few."""
        since = perf_counter()
        for number in range(STEP):
            moved, target = self._random.sample(self._jobs, 2)
            place = PLACES[number % len(PLACES)]
            if place in ("front", "back"):
                await self._app.move(moved, place)  # type: ignore[arg-type]  # one of the two
            else:
                await self._app.move(moved, **{place: target})
        return (perf_counter() - since) / STEP


async def _lane(stack: AsyncExitStack, path: Path, size: int) -> Lane:
    app, noop = await _open(stack, path, Ordering.POSITION)
    jobs: list[str] = []
    for start in range(0, size, PAGE):
        count = min(PAGE, size - start)
        jobs += [each.id for each in await app.enqueue_many(noop.bind(0.0) for _ in range(count))]
    return Lane(app, jobs)


async def _open(stack: AsyncExitStack, path: Path, ordering: Ordering) -> tuple[Outlast, Noop]:
    store = SqliteStore(path)
    app, noop = make_app(store, Probe())
    await stack.enter_async_context(app)
    await store.set_queue(Queue(name="default", ordering=ordering))
    return app, noop


async def _enqueues(folder: Path, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Alternate between both orderings: single enqueues, then bulk enqueues."""
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        tell(f"order, enqueueing, round {number + 1}")
        async with AsyncExitStack() as stack:
            apps = [
                await _open(stack, folder / f"{ordering}-{number}.db", ordering)
                for ordering in Ordering
            ]
            one = [_adding_one(noop) for _, noop in apps]
            many = [_adding_many(*app, jobs // 10) for app in apps]
            for what, steps in (("one", one), ("bulk", many)):
                for step in steps:
                    await step()  # warm
                spent = await _turns(steps, 20 if what == "one" else 10)
                for ordering, each in zip(Ordering, spent, strict=True):
                    found.setdefault(f"{what}_{ordering}", []).append(len(each) / sum(each))
    tell()
    return found


def _adding_one(noop: Noop) -> Callable[[], Awaitable[float]]:
    async def step() -> float:
        since = perf_counter()
        for _ in range(ONE_STEP):
            await noop.enqueue(0.0)
        return (perf_counter() - since) / ONE_STEP

    return step


def _adding_many(app: Outlast, noop: Noop, jobs: int) -> Callable[[], Awaitable[float]]:
    async def step() -> float:
        since = perf_counter()
        await fill(app, noop, jobs)
        return (perf_counter() - since) / jobs

    return step


async def _turns(steps: Sequence[Callable[[], Awaitable[float]]], number: int) -> list[list[float]]:
    """Measure alternately, so that load changes affect all of them equally."""
    taken: list[list[float]] = [[] for _ in steps]
    for _ in range(number):
        for spent, step in zip(taken, steps, strict=True):
            spent.append(await step())
    return taken
