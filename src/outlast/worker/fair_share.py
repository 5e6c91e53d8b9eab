"""The fair share: how much of what waits a worker may prefetch beside other workers."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from math import ceil
from typing import Final

from outlast.core.run import LeaseHolder
from outlast.core.worker_capacity import capacity_beside
from outlast.store.contract.workers import Workers

log = logging.getLogger("outlast.worker")

REFRESH_INTERVAL_S: Final = 1.0
"""Seconds after which a worker with a backlog reads the registry again."""

MAX_AGE_S: Final = 3.0
"""Seconds after which what was read is not used: other workers may have come since."""

MAX_COUNTED: Final = 10_000
"""Waiting jobs that a claim counts at most."""


class FairShare:
    """Bounds the prefetched jobs of one queue by the capacity of the workers that serve it.

    The registry is read beside the jobs, and only while a queue has a backlog. Until it was read
    nothing is prefetched. A worker alone is not bounded and counts nothing.
    """

    def __init__(
        self, store: Workers, holder: LeaseHolder, *, concurrency: int, time: Callable[[], float]
    ) -> None:
        self._store = store
        self._holder = holder
        self._concurrency = concurrency
        self._time = time
        self._others: dict[str, int] = {}  # capacity of all others, by queue
        self._waiting: dict[str, int] = {}  # jobs left in the store, by queue
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    def room(self, queue: str, held: int, room: int) -> int:
        """Return how many of `room` jobs to prefetch from the queue; `held` are prefetched."""
        if not self._is_known:
            return 0
        share = self._share(queue)
        if share == 1:
            return room
        # What waits is what the store has and what is held; the share of that may be held.
        fair = share * self._waiting.get(queue, 0) - (1 - share) * held
        return max(0, min(room, int(fair)))

    def to_count(self, queue: str, held: int, room: int) -> int:
        """Return how many waiting jobs to count, so that the next `room` is not cut: 0 if alone."""
        if not self._is_known or (share := self._share(queue)) == 1:
            return 0
        return min(MAX_COUNTED, ceil((room + (1 - share) * held) / share))

    def claimed(self, queue: str, waiting: int | None) -> None:
        """Record how many jobs a claim left in the queue; None if it does not know."""
        self._waiting[queue] = waiting or 0

    def refresh(self, queues: Collection[str], types: Collection[str]) -> None:
        """Read the registry in the background, unless that was done a moment ago."""
        is_fresh = self._read_at is not None and self._age < REFRESH_INTERVAL_S
        if is_fresh or self._reading is not None:
            return
        self._reading = asyncio.create_task(
            self._read(tuple(queues), frozenset(types)), name="outlast-fair-share"
        )

    async def close(self) -> None:
        """End a read that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _read(self, queues: Sequence[str], types: frozenset[str]) -> None:
        try:
            workers = await self._store.workers()
            self._others = {
                queue: capacity_beside(
                    self._holder, self._concurrency, queue=queue, types=types, workers=workers
                )
                for queue in queues
            }
            self._read_at = self._time()
        except Exception as error:  # noqa: BLE001 - without it nothing is prefetched for a while
            log.debug("cannot read the worker registry: %s", error)
        finally:
            self._reading = None

    @property
    def _age(self) -> float:
        return self._time() - (self._read_at or 0.0)

    @property
    def _is_known(self) -> bool:
        return self._read_at is not None and self._age < MAX_AGE_S

    def _share(self, queue: str) -> float:
        others = self._others.get(queue, 0)
        return self._concurrency / (self._concurrency + others)
