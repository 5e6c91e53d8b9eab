"""Speed of claim and finish while the tables grow."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from time import perf_counter

from bench.growth import HOLDER, LEASE, STEP, Size, fill, sizes
from bench.pg.field import Field
from bench.pg.ground import Ground
from bench.pg.rows import Row
from bench.pg.sides import OURS
from bench.pg.sides.ours import make
from bench.progress import tell
from outlast.core.decide import succeed
from outlast.store.open import open_store

BATCH = 500
"""Jobs per claim and per apply, about as in a busy worker."""


def growth(ground: Ground, rows: int) -> list[Row]:
    """Measure Outlast alone: each size with its ratio to the first, 1,000 waiting jobs."""
    wanted = sizes(rows)
    with ExitStack() as stack:
        fields = [stack.enter_context(ground.field(OURS)) for _ in wanted]
        for field, size in zip(fields, wanted, strict=True):
            tell(f"growth, a database with {size.name}")
            _grow(field, size)
        taken = asyncio.run(_measure(fields, wanted, ground.rounds))
    first = taken[0]
    return [
        row for size, rates in zip(wanted, taken, strict=True) for row in _rows(size, rates, first)
    ]


def _rows(size: Size, rates: Sequence[float], first: Sequence[float]) -> list[Row]:
    kept = [rate / before for rate, before in zip(rates, first, strict=True)]
    name = f"claim and finish, {size.name}"
    asked = "at least 0.90" if rates is not first else ""
    return [
        Row(label=name, unit="jobs/s", values={OURS: rates}),
        Row(label="… of the first", unit="", values={OURS: kept}, digits=2, asked=asked),
    ]


def _grow(field: Field, size: Size) -> None:
    if size.finished:
        field.seconds("bulk", size.finished)
        field.rest()
        field.finish_all(size.finished)
    field.seconds("bulk", size.queued)
    field.rest()


async def _measure(
    fields: Sequence[Field], wanted: Sequence[Size], rounds: int
) -> list[list[float]]:
    async with AsyncExitStack() as stack:
        piles = [_Pile(field) for field in fields]
        for pile in piles:
            await stack.enter_async_context(pile.app)
        for pile in piles:
            await pile.step()  # warm
        taken: list[list[float]] = [[] for _ in wanted]
        for _ in range(rounds):
            await _round(piles, taken)
        return taken


async def _round(piles: "Sequence[_Pile]", taken: list[list[float]]) -> None:
    """Alternate between the sizes step by step, so that load changes affect all of them equally."""
    steps = 10
    seconds = [0.0] * len(piles)
    for _ in range(steps):
        for place, pile in enumerate(piles):
            seconds[place] += await pile.step()
    for rates, spent in zip(taken, seconds, strict=True):
        rates.append(steps * STEP / spent)


class _Pile:
    """One database of a given size, kept at that size while it is measured."""

    def __init__(self, field: Field) -> None:
        self._store = open_store(field.url)
        self.app, self._noop = make(self._store)

    async def step(self) -> float:
        """Return the seconds to claim and finish a step; refilling is not counted."""
        since = perf_counter()
        for _ in range(STEP // BATCH):
            claims = await self._store.claim(
                HOLDER, queue="default", types=["noop"], limit=BATCH, lease=LEASE
            )
            done = await self._store.apply([succeed(c.job_id, c.token, None) for c in claims])
            assert len(done) == BATCH
            assert all(done)
        seconds = perf_counter() - since
        await fill(self.app, self._noop, STEP)
        return seconds
