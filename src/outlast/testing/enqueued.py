"""Expected jobs of a test, and the messages of failed assertions."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

from outlast.core.job import Job
from outlast.core.state import State
from outlast.errors import InvalidParams
from outlast.jobs.jobtype import JobType

MAX_TABLE_ROWS: Final = 20
MAX_WIDTH: Final = 50
NOT_GIVEN: Final = inspect.Parameter.empty
UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedJob:
    """A job type with some of its params, and optionally a queue and a latest due time."""

    kind: JobType[..., Any]
    params: Mapping[str, Any]
    queue: str | None
    within: timedelta | None

    @classmethod
    def new(
        cls,
        kind: JobType[..., Any],
        params: Mapping[str, Any],
        *,
        queue: str | None,
        within: timedelta | None,
    ) -> Self:
        """Return an expected job; InvalidParams names a param that the type does not have."""
        known = _parameters(kind)
        for name in params:
            if name not in known:
                raise InvalidParams(
                    f'"{kind.name}" takes no param "{name[:128]}"; it knows: '
                    f"{', '.join(known) or 'none'}"
                )
        return cls(kind=kind, params=params, queue=queue, within=within)

    def misses(self, job: Job, now: datetime) -> list[str]:
        """Return the differences between a job and this expectation; empty if it matches."""
        if job.type != self.kind.name:
            return [f'type is "{job.type}", not "{self.kind.name}"']
        found = self._differences(job)
        if self.queue is not None and job.queue != self.queue:
            found.append(f'queue is "{job.queue}", not "{self.queue}"')
        if self.within is not None and job.available_at - now > self.within:
            due = shown_span(job.available_at - now)
            found.append(f"it is due in {due}, not within {shown_span(self.within)}")
        return found

    def _differences(self, job: Job) -> list[str]:
        plain: dict[str, Any] = json.loads(job.params)
        loaded = _loaded(self.kind, job.params, plain)
        defaults = {name: each.default for name, each in _parameters(self.kind).items()}
        found = []
        for name, expected in self.params.items():
            actual = loaded.get(name, defaults[name])
            if actual != expected and plain.get(name, NOT_GIVEN) != expected:
                found.append(f"{name} is {_short(repr(actual))}, not {_short(repr(expected))}")
        return found

    def __str__(self) -> str:
        params = ", ".join(f"{name}={_short(repr(value))}" for name, value in self.params.items())
        words = [f'"{self.kind.name}"', f"with {params}" if params else ""]
        words.append(f'in queue "{self.queue}"' if self.queue is not None else "")
        words.append(f"due within {shown_span(self.within)}" if self.within is not None else "")
        return " ".join(filter(None, words))


def explain(
    wanted: ExpectedJob,
    jobs: Sequence[Job],
    fitting: Sequence[Job],
    *,
    count: int | None,
    now: datetime,
) -> str:
    """Return why an assertion failed: the expected job, the stored jobs, the nearest one."""
    if not fitting:
        start = f"no job {wanted} was enqueued"
    elif len(fitting) == 1:
        start = f"1 job {wanted} was enqueued, not {count}"
    else:
        start = f"{len(fitting):,} jobs {wanted} were enqueued, not {count}"
    there = f"{_number(len(jobs))} enqueued:" if jobs else "nothing was enqueued"
    nearest = [] if fitting else _nearest(wanted, jobs, now)
    return "\n".join([start, "", there, *_table(jobs, now), *nearest])


def explain_unwanted(wanted: ExpectedJob, fitting: Sequence[Job], *, now: datetime) -> str:
    """Return why an assertion failed that expected no such job."""
    start = f"no job {wanted} was to be enqueued, but {_number(len(fitting))}:"
    return "\n".join([start, "", *_table(fitting, now)])


def shown_span(span: timedelta) -> str:
    """Return a duration in its two largest units, as `advance` accepts it: `1h30m`."""
    left = span // timedelta(milliseconds=1)
    if left <= 0:
        return "now"
    parts = []
    for unit, size in UNITS:
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts[:2])


def _nearest(wanted: ExpectedJob, jobs: Sequence[Job], now: datetime) -> list[str]:
    alike = [job for job in jobs if job.type == wanted.kind.name]
    if not alike:
        return []
    misses, job = min(((wanted.misses(job, now), job) for job in alike), key=lambda m: len(m[0]))
    return ["", f"nearest: {_short(job.params)}", *(f"  {miss}" for miss in misses)]


def _table(jobs: Sequence[Job], now: datetime) -> list[str]:
    if not jobs:
        return []
    rows = [
        ("type", "params", "queue", "due in", "state"),
        *(_row(job, now) for job in jobs[:MAX_TABLE_ROWS]),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    more = [f"  and {len(jobs) - MAX_TABLE_ROWS:,} more"] if len(jobs) > MAX_TABLE_ROWS else []
    return [*lines, *more]


def _row(job: Job, now: datetime) -> tuple[str, str, str, str, str]:
    due = "-" if job.is_final or job.state is State.RUNNING else shown_span(job.available_at - now)
    return (job.type, _short(job.params), job.queue, due, str(job.state))


def _number(jobs: int) -> str:
    return "1 job was" if jobs == 1 else f"{jobs:,} jobs were"


def _loaded(kind: JobType[..., Any], params: str, plain: dict[str, Any]) -> dict[str, Any]:
    """Return params as the handler gets them; plain JSON values if they do not match it."""
    try:
        return kind.load(params)
    except InvalidParams:
        return plain


def _parameters(kind: JobType[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(kind.function).parameters
    return dict(list(parameters.items())[1 if kind.takes_run else 0 :])


def _short(text: str) -> str:
    return text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 1]}…"
