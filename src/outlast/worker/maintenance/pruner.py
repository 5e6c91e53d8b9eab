"""Deletion of old history: of all jobs alike, or of each job type after its own time."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Final

from outlast.clock import MICROSECOND, Clock, SystemClock
from outlast.store.contract import Store
from outlast.store.contract.jobs import EndedJob

Retentions = Mapping[str, timedelta | None]
"""How long ended jobs are kept, by type; None keeps them for ever."""

BATCH: Final = 500
"""Jobs that are looked at, and deleted, at a time."""

LOOK_AGAIN: Final = timedelta(days=1)
"""Time after which jobs that were passed over are looked at again."""


class Pruner:
    """Deletes old history, a batch at a time.

    If no type has a time of its own, the store chooses the jobs. Otherwise the ended jobs are read
    in the order of their ends, once for each time: a step continues behind the last job it saw, so
    that jobs which are kept for long are not read again and again. Jobs that could not be deleted
    yet, such as members of a group that is not over, are looked at again after a day.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen: dict[timedelta, EndedJob] = {}
        self._own: Retentions = {}
        self._began = clock.monotonic()

    async def step(
        self, retention: timedelta | None, own: Retentions, batch: int = BATCH
    ) -> int | None:
        """Delete one batch of what is older than `retention`, or than its type's own time.

        Returns how many jobs were deleted; None if none is left to be looked at.
        """
        if not own:
            return await self._prune_all(retention, batch)
        if own != self._own:
            self._own = dict(own)
            self._seen.clear()
        if (self._clock.monotonic() - self._began) * MICROSECOND >= LOOK_AGAIN:
            self._seen.clear()
            self._began = self._clock.monotonic()
        spans = {span for span in (retention, *own.values()) if span is not None}
        deleted: list[int | None] = []
        for span in sorted(spans):
            types = [name for name, kept in own.items() if kept == span]
            keeps = own.keys() if span == retention else None
            deleted.append(await self._walk(span, types, keeps, batch))
        if any(each is not None for each in deleted):
            return sum(each or 0 for each in deleted)
        if retention is not None:
            await self._store.prune(older_than=retention, limit=batch, chains=False)
        return None

    async def _prune_all(self, retention: timedelta | None, batch: int) -> int | None:
        if retention is None:
            return None
        return await self._store.prune(older_than=retention, limit=batch) or None

    async def _walk(
        self, span: timedelta, types: Iterable[str], others: Collection[str] | None, batch: int
    ) -> int | None:
        """Look at the next jobs; delete those of `types`, and of all types but `others`.

        Returns how many jobs were deleted; None if there were none to look at.
        """
        found = await self._store.ended_jobs(
            older_than=span, after=self._seen.get(span), limit=batch
        )
        named = set(types)
        old = [
            job
            for job in found
            if job.type in named or (others is not None and job.type not in others)
        ]
        if not found:
            return None
        deleted = await self._store.prune_jobs(old, older_than=span) if old else 0
        self._seen[span] = found[-1]
        return deleted


async def prune_all(
    store: Store, older_than: timedelta, own: Retentions, batch: int
) -> AsyncIterator[int]:
    """Delete all that is that old, except the jobs of types that keep theirs; yield the numbers."""
    pruner = Pruner(store, SystemClock())
    while (deleted := await pruner.step(older_than, own, batch)) is not None:
        yield deleted


def dump_retentions(own: Retentions) -> dict[str, float | None]:
    """Return them as JSON values, for another process."""
    return {name: None if span is None else span.total_seconds() for name, span in own.items()}


def load_retentions(values: Mapping[str, float | None]) -> Retentions:
    """Return what `dump_retentions` wrote."""
    return {
        name: None if seconds is None else timedelta(seconds=seconds)
        for name, seconds in values.items()
    }


def no_retentions() -> Retentions:
    """Return that no type has a time of its own."""
    return {}


GetRetentions = Callable[[], Retentions]
