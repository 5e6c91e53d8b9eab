"""Verify a store: check every invariant of every job, page by page."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from outlast.clock import Clock, SystemClock
from outlast.core.audit.checks import dangling_violation, violations
from outlast.core.audit.violation import Violation
from outlast.errors import InvalidArgument
from outlast.store.contract.audit import AuditReads

PAGE: Final = 500  # jobs read at a time
MAX_PAGE: Final = 10_000
MAX_REPORTED: Final = 1_000
"""Violations listed in a report; further ones are only counted."""

Progress = Callable[[int, int], None]
"""Called with the number of jobs checked and the number of jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a verification.

    Attributes:
        jobs: Jobs checked.
        runs: Runs checked.
        events: Events checked.
        found: Violations found, including those not listed.
        violations: The first violations, at most `MAX_REPORTED`.
        seconds: Duration.
    """

    jobs: int
    runs: int
    events: int
    found: int
    violations: tuple[Violation, ...]
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether no violation was found."""
        return not self.found


async def verify(
    store: AuditReads,
    *,
    progress: Progress | None = None,
    page: int = PAGE,
    clock: Clock | None = None,
) -> Report:
    """Check every invariant of the store's history and return a report.

    It may run while workers are active: each page is one snapshot, and pages are never compared.
    Memory holds one page and the first 1,000 violations, however large the store.

        report = await verify(store, progress=lambda done, total: print(done, total))
    """
    if not 1 <= page <= MAX_PAGE:
        raise InvalidArgument(f"page is {page}; it must be between 1 and {MAX_PAGE:,}")
    clock = clock or SystemClock()
    start = clock.monotonic()
    builder = _ReportBuilder()
    await _check_all_jobs(store, builder, page, progress or _ignore_progress)
    builder.add(
        [dangling_violation(record) for record in await store.dangling_records(limit=MAX_REPORTED)]
    )
    return builder.report((clock.monotonic() - start) / 1_000_000)


async def _check_all_jobs(
    store: AuditReads, builder: "_ReportBuilder", page: int, progress: Progress
) -> None:
    total = await store.job_count()
    progress(0, total)
    after = 0
    while audits := await store.audit_jobs(after=after, limit=page):
        after = audits[-1].seq
        for job in audits:
            builder.jobs += 1
            builder.runs += len(job.runs) + any(place.run_id for place in job.places)
            builder.events += len(job.events)
            builder.add(violations(job))
        total = max(total, builder.jobs)  # jobs may be added meanwhile
        progress(builder.jobs, total)
    if builder.jobs != total:  # jobs were pruned meanwhile
        progress(builder.jobs, builder.jobs)


class _ReportBuilder:
    """Collects counts and violations."""

    def __init__(self) -> None:
        self.jobs = self.runs = self.events = self.found = 0
        self._listed: list[Violation] = []

    def add(self, found: list[Violation]) -> None:
        self.found += len(found)
        self._listed += found[: max(0, MAX_REPORTED - len(self._listed))]

    def report(self, seconds: float) -> Report:
        return Report(
            jobs=self.jobs,
            runs=self.runs,
            events=self.events,
            found=self.found,
            violations=tuple(self._listed),
            seconds=seconds,
        )


def _ignore_progress(_done: int, _total: int) -> None:
    return
