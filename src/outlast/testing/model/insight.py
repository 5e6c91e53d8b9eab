"""Overview and explain reads of the model store."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from outlast.clock import Clock
from outlast.core.delivery import Delivery
from outlast.core.explain import MOST_AHEAD, BlockingJob, WaitFacts
from outlast.core.group import GroupMode
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.ordering import sort_key
from outlast.core.overview import Backlog, Overview, Running
from outlast.core.run import LeaseHolder
from outlast.core.state import WAITING, State
from outlast.core.worker_capacity import able, in_use, types_wanted_by
from outlast.testing.model import workers
from outlast.testing.model.base import ModelOperations
from outlast.testing.model.claim import choose
from outlast.testing.model.tables import Tables

SHOWN = 3


class ModelInsightOperations(ModelOperations):
    """Overview and explain reads of the model store."""

    async def overview(self, *, span: timedelta) -> Overview:
        """Return counts per queue and type, and what ended within the span."""
        return overview(self._tables, self._clock, span)

    async def wait_facts(self, job_id: JobId) -> WaitFacts | None:
        """Return all that decides when a job is claimed, or None."""
        return situation(self._tables, self._clock, job_id)

    async def describe(self) -> Mapping[str, str]:
        """Return a short description."""
        return {"engine": "a model in memory", "jobs": str(len(self._tables.jobs))}

    def connection_warnings(self) -> list[str]:
        """Return no warnings."""
        return []

    async def health_warnings(self) -> list[str]:
        """Return the warning that memory is not durable."""
        return ["it forgets everything when its process ends"]


def overview(tables: Tables, clock: Clock, span: timedelta) -> Overview:
    """Return all that waits and runs, and what ended within the span."""
    jobs, now = list(tables.jobs.values()), clock.now()
    waiting = [job for job in jobs if job.state in WAITING]
    running = [job for job in jobs if job.id in tables.leases]
    kinds = sorted({(job.queue, job.type, job.state) for job in waiting})
    ended = [j for j in jobs if j.finished_at is not None and j.finished_at >= now - span]
    return Overview(
        now=now,
        span=span,
        backlog=[_backlog([j for j in waiting if _kind(j) == kind], clock) for kind in kinds],
        running=[
            _running([j for j in running if (j.queue, j.type) == kind], tables, clock)
            for kind in sorted({(job.queue, job.type) for job in running})
        ],
        ended=Counter((job.queue, job.state) for job in ended),
    )


def situation(tables: Tables, clock: Clock, job_id: JobId) -> WaitFacts | None:
    """Return all that decides when the job is claimed."""
    job = tables.jobs.get(job_id)
    if job is None:
        return None
    queue, now = tables.queue(job.queue), clock.now()
    open_runs = [
        tables.jobs[each] for each in tables.leases if tables.jobs[each].queue == job.queue
    ]
    open_runs.sort(key=lambda other: (tables.runs[other.id][-1].started_at, other.seq))
    alive = [worker for worker in workers.listed(tables, clock) if worker.is_alive]
    serving, held = able(job, alive), _held(tables)
    wanted = types_wanted_by(serving, held)
    ahead = min((_ahead(tables, job, clock, types) for types in wanted), key=_first_of_fewest)
    return WaitFacts(
        job=job,
        now=now,
        transfer=tables.transfer_status.at(now),
        pause=None if queue.pause is None or queue.pause.is_over(now) else queue.pause,
        concurrency=queue.concurrency,
        open_runs=len(open_runs),
        running=[_other(each) for each in open_runs[:SHOWN]],
        reservation=tables.reservation_of(job.queue),
        overlap=_overlap(tables, job),
        member=_member(tables, job),
        ahead=min(len(ahead), MOST_AHEAD + 1),
        next_one=ahead[0].id if ahead else None,
        workers=alive,
        busy=in_use(serving, held),
        lease_over=job_id in tables.leases and tables.leases[job_id].is_past(clock),
    )


def _kind(job: Job) -> tuple[str, str, State]:
    return job.queue, job.type, job.state


def _backlog(jobs: list[Job], clock: Clock) -> Backlog:
    return Backlog(
        queue=jobs[0].queue,
        type=jobs[0].type,
        state=jobs[0].state,
        jobs=len(jobs),
        due=sum(job.available_at <= clock.now() for job in jobs),
        oldest=min(job.available_at for job in jobs),
    )


def _running(jobs: list[Job], tables: Tables, clock: Clock) -> Running:
    lapsed = sum(tables.leases[job.id].is_past(clock) for job in jobs)
    return Running(queue=jobs[0].queue, type=jobs[0].type, jobs=len(jobs), lapsed=lapsed)


def _other(job: Job) -> BlockingJob:
    return BlockingJob(id=job.id, holder=job.holder)


def _takeable(tables: Tables, queue: str, clock: Clock) -> list[Job]:
    """Return the jobs that a claim finds, in its order; due jobs count as queued."""
    due = {job.id for job in tables.due(clock.now())}
    jobs = tables.jobs.values()
    found = [j for j in jobs if j.queue == queue and (j.state is State.QUEUED or j.id in due)]
    return sorted(found, key=sort_key)


def _held(tables: Tables) -> Counter[LeaseHolder]:
    """Return how many runs each worker holds."""
    runs = [tables.runs[each][-1] for each in tables.leases]
    return Counter(LeaseHolder(instance_id=run.holder, boot_id=run.boot_id) for run in runs)


def _first_of_fewest(ahead: list[Job]) -> tuple[int, str]:
    return len(ahead), ahead[0].id if ahead else ""


def _ahead(tables: Tables, job: Job, clock: Clock, types: frozenset[str] | None) -> list[Job]:
    """Return what one claim of all types, or of those, would claim before the job."""
    if job.state not in WAITING:
        return []
    found = _takeable(tables, job.queue, clock)
    waiting = [other for other in found if types is None or other.type in types]
    taken = choose(tables, waiting, limit=len(waiting), prefetch=0, now=clock.now())
    return [other for other in taken if sort_key(other) < sort_key(job)]


def _overlap(tables: Tables, job: Job) -> BlockingJob | None:
    for other in (tables.jobs[each] for each in tables.leases):
        if other.delivery is Delivery.ONCE and other.name == job.name:
            return _other(other)
    return None


def _member(tables: Tables, job: Job) -> BlockingJob | None:
    group_id = tables.members.get(job.id)
    if job.state is not State.BLOCKED or group_id is None:
        return None
    group = tables.groups[group_id].group
    if group.sealed_at is None or group.mode is not GroupMode.SEQUENTIAL:
        return None
    before = [tables.jobs[each] for each, its in tables.members.items() if its == group_id]
    places = {other.id: tables.jobs[other.root_id].seq for other in before}
    left = [each for each in before if not each.is_final and places[each.id] < job.seq]
    return BlockingJob(id=max(left, key=lambda other: places[other.id]).id) if left else None
