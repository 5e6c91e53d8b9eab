"""Store whose transactions fail, with callers that repeat each call until it is answered."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, TypeVar

from outlast.core.decide import Change, Guard
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.ordering import sort_key
from outlast.core.run import Claims, Lease, LeaseHolder
from outlast.core.schedule import Firing
from outlast.errors import StoreBusy, StoreUnavailable
from outlast.store.contract.jobs import Added, Renewal
from outlast.store.contract.schedules import FireResult
from outlast.store.keyvalue.engine import Engine, Write
from outlast.store.keyvalue.store import KeyValueStore
from support.engines.faulty import ALL, NOT_WRITTEN, Chooser, Fault, FaultyEngine, at_random

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_ARMED: ContextVar[Sequence[Fault]] = ContextVar("armed", default=())
"""Faults that the call under way may meet."""

_SINGLE: Final = (
    "attach", "set_queue", "pause", "resume", "add_group", "seal_group", "stop_group", "swap",
    "reserve", "extend_reservation", "set_schedule", "register_worker", "heartbeat",
)  # fmt: skip
"""Verbs of one answer, which may not be repeated once they are written."""


class RepeatingStore(KeyValueStore):
    """Lost replies meet only calls that may be repeated, other faults all but a few writes.

    `is_numbered`: a claim of several jobs meets none, for its second try numbers its runs anew.
    """

    def __init__(
        self, engine: Engine, *, seed: int, share: float, is_numbered: bool = False, **given: Any
    ) -> None:
        self.faulty = FaultyEngine(engine, self._chosen)
        super().__init__(self.faulty, **given)
        self._choosers: dict[Sequence[Fault], Chooser] = {
            faults: at_random(seed, share, faults) for faults in (ALL, NOT_WRITTEN)
        }
        self._is_numbered = is_numbered
        for name in _SINGLE:
            setattr(self, name, _repeated(getattr(self, name)))

    def _chosen(self, writes: Sequence[Write]) -> Fault | None:
        armed = _ARMED.get()
        return self._choosers[armed](writes) if armed else None

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Fail only single jobs: of several, those of a second try would be the later ones."""
        faults = ALL if len(jobs) == 1 else ()
        known = {job.id for job in await self.get([job.id for job in jobs]) if job}
        return _as_answered_first(await _each(super().add, jobs, faults), jobs, known)

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        are_ends = all(c.move.guard is Guard.OPEN and c.move.run is not None for c in changes)
        return await _each(super().apply, changes, ALL if are_ends else NOT_WRITTEN)

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        renew = super().renew
        return await _each(lambda some: renew(some, span=span), leases, ALL)

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        return await _each(super().record_progress, reports, ALL)

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        return await _each(super().fire, firings, NOT_WRITTEN)

    async def claim(
        self,
        holder: LeaseHolder,
        *,
        queue: str,
        types: Collection[str],
        limit: int,
        prefetch: int = 0,
        lease: timedelta,
        count: int = 0,
    ) -> Claims:
        """Claim until nothing failed; in claim order, as if it had been one claim."""
        claims = Claims()
        is_whole = False
        with _armed(() if self._is_numbered and limit + prefetch > 1 else ALL):
            while not is_whole and len(claims) < limit + prefetch:
                failed, now = self.faulty.failed.total(), max(0, limit - len(claims))
                later = limit + prefetch - len(claims) - now
                given = {"queue": queue, "types": types, "lease": lease, "count": count}
                try:
                    more = await super().claim(holder, limit=now, prefetch=later, **given)  # type: ignore[arg-type]
                except (StoreBusy, StoreUnavailable):
                    continue
                claims = Claims([*claims, *more], due_in=more.due_in, waiting=more.waiting)
                is_whole = self.faulty.failed.total() == failed
        jobs = {job.id: job for job in await self.get([claim.id for claim in claims]) if job}
        claims.sort(key=lambda claim: sort_key(jobs[claim.id]))
        if claims:
            claims.due_in = None
        return claims


@contextmanager
def _armed(faults: Sequence[Fault]) -> Iterator[None]:
    before = _ARMED.set(faults)
    try:
        yield
    finally:
        _ARMED.reset(before)


def _repeated(verb: Callable[..., Awaitable[Answer]]) -> Callable[..., Awaitable[Answer]]:
    async def until_answered(*args: Any, **kwargs: Any) -> Answer:
        with _armed(NOT_WRITTEN):
            while True:
                try:
                    return await verb(*args, **kwargs)
                except (StoreBusy, StoreUnavailable):
                    continue

    return until_answered


async def _each(
    verb: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
    items: Sequence[Item],
    faults: Sequence[Fault],
) -> list[Answer]:
    """Repeat a call with the items that were not answered."""
    answers: dict[int, Answer] = {}
    with _armed(faults):
        while True:
            left = [n for n in range(len(items)) if n not in answers]
            try:
                told: Sequence[Answer | None] = await verb([items[n] for n in left])
            except (StoreBusy, StoreUnavailable) as error:
                told = error.answers or [None] * len(left)
            answers |= {n: each for n, each in zip(left, told, strict=True) if each is not None}
            if len(answers) == len(items):
                return [answers[n] for n in range(len(items))]


def _as_answered_first(
    answers: Sequence[Added], jobs: Sequence[NewJob], known: Collection[JobId]
) -> list[Added]:
    """Return what the first try would have answered for jobs that it stored."""
    seen, told = set(known), []
    for job, added in zip(jobs, answers, strict=True):
        is_new = added.refused is None and added.id == job.id and job.id not in seen
        told.append(added._replace(created=is_new))
        seen |= {job.id} if is_new else set()
    return told
