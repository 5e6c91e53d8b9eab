"""The proof of a store's own history: every invariant held against every job, page by page."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from outlast.clock import Clock, SystemClock
from outlast.core.audit.checks import dangling_violation, violations
from outlast.core.audit.violation import Violation
from outlast.errors import InvalidArgument
from outlast.store.contract.audit import AuditReads

PAGE: Final = 500
MOST_PAGE: Final = 10_000
KEPT: Final = 1_000
"""How many violations a report names; more are counted only, so that it stays small."""

Progress = Callable[[int, int], None]
"""Called with how many jobs were looked at, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was looked at, and what was found. `found` counts also what is not named."""

    jobs: int
    runs: int
    events: int
    found: int
    violations: tuple[Violation, ...]
    seconds: float

    @property
    def is_sound(self) -> bool:
        return not self.found


async def verify(
    store: AuditReads,
    *,
    progress: Progress | None = None,
    page: int = PAGE,
    clock: Clock | None = None,
) -> Report:
    """Prove or refute every invariant of what the store holds.

    Right also while others work on it: each page is one moment, and nothing is compared between
    two. Memory is that of one page and of the first 1,000 violations, however large the store.

        report = await verify(store, progress=lambda done, total: print(done, total))
    """
    if not 1 <= page <= MOST_PAGE:
        raise InvalidArgument(f"page is {page}; it must be between 1 and {MOST_PAGE:,}")
    clock = clock or SystemClock()
    start = clock.monotonic()
    tally = _ReportBuilder()
    await _through_all_jobs(store, tally, page, progress or _say_nothing)
    tally.take([dangling_violation(stray) for stray in await store.dangling_records(limit=KEPT)])
    return tally.report((clock.monotonic() - start) / 1_000_000)


async def _through_all_jobs(
    store: AuditReads, tally: "_ReportBuilder", page: int, progress: Progress
) -> None:
    total = await store.job_count()
    progress(0, total)
    after = 0
    while dossiers := await store.audit_jobs(after=after, limit=page):
        after = dossiers[-1].seq
        for dossier in dossiers:
            tally.jobs += 1
            tally.runs += len(dossier.runs) + any(place.run_id for place in dossier.places)
            tally.events += len(dossier.events)
            tally.take(violations(dossier))
        total = max(total, tally.jobs)  # new ones may come while it looks
        progress(tally.jobs, total)
    if tally.jobs != total:  # some were pruned meanwhile
        progress(tally.jobs, tally.jobs)


class _ReportBuilder:
    """What was seen so far."""

    def __init__(self) -> None:
        self.jobs = self.runs = self.events = self.found = 0
        self._named: list[Violation] = []

    def take(self, found: list[Violation]) -> None:
        self.found += len(found)
        self._named += found[: max(0, KEPT - len(self._named))]

    def report(self, seconds: float) -> Report:
        return Report(
            jobs=self.jobs,
            runs=self.runs,
            events=self.events,
            found=self.found,
            violations=tuple(self._named),
            seconds=seconds,
        )


def _say_nothing(_done: int, _total: int) -> None:
    return
