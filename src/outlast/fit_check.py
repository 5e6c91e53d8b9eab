"""Fit check: try every waiting payload, schedule and template against the code of an app.

Nothing is run, claimed or written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from outlast.core.ids import JobId
from outlast.core.schedule import Schedule
from outlast.core.state import WAITING, State
from outlast.core.template import KIND, from_record
from outlast.errors import InvalidSchedule, TypeNotFound, UnfitParams
from outlast.jobs.registry import JobType, Registry
from outlast.scheduler.slot_job_factory import SlotJobFactories
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter

PAGE: Final = 100
"""How many jobs are read at a time."""

EXAMPLES: Final = 3
"""How many ids or names are kept of each misfit."""

NO_CODE: Final = "the app has no such type"

LIVE: Final = Filter(states=WAITING | {State.RUNNING})

Progress = Callable[[int], None]
"""Called with the number of jobs that were tried since the last call."""


class Tried(StrEnum):
    """What was tried."""

    JOB = "job"  # it waits
    RUNNING_JOB = "running_job"  # it runs, and may wait again
    SCHEDULE = "schedule"
    TEMPLATE = "template"


@dataclass(slots=True, kw_only=True)
class Misfit:
    """What does not fit the app for one reason: its type, the problem, the number, some ids."""

    what: Tried
    type: str
    problem: str
    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FitReport:
    """What was tried, by kind, and the misfits."""

    tried: dict[Tried, int] = field(default_factory=lambda: dict.fromkeys(Tried, 0))
    found: dict[tuple[Tried, str, str], Misfit] = field(default_factory=dict)
    is_complete: bool = True

    @property
    def misfits(self) -> list[Misfit]:
        """The misfits, by kind, type and problem."""
        return [misfit for _, misfit in sorted(self.found.items())]

    @property
    def fits(self) -> bool:
        """Whether all fits; a running job does not count, for its code has read its params."""
        return all(misfit.what is Tried.RUNNING_JOB for misfit in self.found.values())

    def note(self, what: Tried, type_name: str, name: str, problem: str | None) -> None:
        """Count what was tried, and its problem if it has one."""
        self.tried[what] += 1
        if problem is None:
            return
        key = (what, type_name, problem)
        misfit = self.found.setdefault(key, Misfit(what=what, type=type_name, problem=problem))
        misfit.count += 1
        if len(misfit.examples) < EXAMPLES:
            misfit.examples.append(name)


async def check_fit(
    store: Store, registry: Registry, *, limit: int | None = None, progress: Progress
) -> FitReport:
    """Try the newest `limit` live jobs, or all, and every schedule and template."""
    report = FitReport()
    await _check_jobs(store, registry, report, limit, progress)
    factories = SlotJobFactories(store)
    last = ""
    while schedules := await store.schedules(after=last, limit=PAGE):
        for schedule in schedules:
            kind, problem = await _schedule_problem(registry, factories, schedule)
            report.note(Tried.SCHEDULE, kind, schedule.name, problem)
        last = schedules[-1].name
    for record in await store.documents(KIND):
        template = from_record(record)
        problem = _problem(registry, template.type, template.params, _load_part)
        report.note(Tried.TEMPLATE, template.type, template.name, problem)
    return report


async def _check_jobs(
    store: Store, registry: Registry, report: FitReport, limit: int | None, progress: Progress
) -> None:
    before: int | None = None
    left = limit
    while page := await store.find(LIVE, limit=PAGE, before=before):
        for job in page if left is None else page[:left]:
            what = Tried.RUNNING_JOB if job.state is State.RUNNING else Tried.JOB
            report.note(what, job.type, job.id, _problem(registry, job.type, job.params, _load))
        progress(len(page))
        before = page[-1].seq
        if left is not None and (left := left - len(page)) <= 0:
            report.is_complete = False
            return


async def _schedule_problem(
    registry: Registry, factories: SlotJobFactories, schedule: Schedule
) -> tuple[str, str | None]:
    """Return the type of the schedule's jobs, and why their params do not fit."""
    try:
        factory = await factories.factory_for(schedule)
    except InvalidSchedule as error:
        return schedule.plan.making.type, str(error)
    job = factory.job(JobId(""), schedule.created_at, start_within=None)
    return job.type, _problem(registry, job.type, job.params, _load)


def _load(kind: JobType[..., Any], params: str) -> object:
    return kind.load(params)


def _load_part(kind: JobType[..., Any], params: str) -> object:
    return kind.codec.partial().load(params)  # a template may be incomplete


def _problem(
    registry: Registry,
    type_name: str,
    params: str,
    load: Callable[[JobType[..., Any], str], object],
) -> str | None:
    """Return why the params do not fit the type, without their values; None if they do."""
    try:
        load(registry.get(type_name), params)
    except TypeNotFound:
        return NO_CODE
    except UnfitParams as error:
        return "; ".join(error.problems) or "cannot be decoded"
    except Exception as error:  # noqa: BLE001 - a validator of the app raised; its text may quote
        return f"reading them raised {type(error).__name__}"
    return None
