"""Invariants that hold for everything a store holds, after any history."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import RunRecord
from outlast.core.state import RunStatus, State


@dataclass(frozen=True, slots=True)
class Dump:
    """All that a store tells of its jobs."""

    jobs: Mapping[JobId, Job]
    runs: Mapping[JobId, list[RunRecord]]
    events: Mapping[JobId, list[EventRecord]]


def check_dump(dump: Dump, *, chained: Collection[JobId]) -> None:
    """Every invariant of one moment. `chained` are the jobs that a closing write brought about."""
    for job in dump.jobs.values():
        _check_place(job, dump.runs[job.id])
        _check_tokens(job, dump.runs[job.id])
        before = dump.jobs[job.retry_of] if job.retry_of and job.id in chained else None
        _check_counts(job, before, dump.runs[job.id])
    _check_successors(dump)
    _check_retries(dump, chained)
    _check_once(dump)


def check_since(before: Mapping[JobId, Job], now: Mapping[JobId, Job]) -> None:
    """Every invariant of two moments: tokens only rise, and an end stays the end."""
    for job in now.values():
        earlier = before.get(job.id, job)
        assert job.token >= earlier.token, f"the token of {job.id} fell"
        assert job.failures >= earlier.failures, f"{job.id} forgot a failure"
        is_given_up = (earlier.state, job.state) == (State.FAILED, State.DEAD_LETTER)
        assert not earlier.is_final or is_given_up or job == earlier, f"{job.id} ended twice"


def _check_place(job: Job, runs: list[RunRecord]) -> None:
    is_open = [run.status is RunStatus.RUNNING for run in runs]
    assert not any(is_open[:-1]), f"{job.id} has an open run that is not its last"
    assert any(is_open) == (job.state is State.RUNNING), f"{job.id} is in two places"
    assert job.is_final == (job.finished_at is not None), f"{job.id} ended without a record"
    assert all((run.finished_at is None) == now for run, now in zip(runs, is_open, strict=True))
    assert job.is_final or job.reason is None, f"{job.id} has a reason for no end"


def _check_tokens(job: Job, runs: list[RunRecord]) -> None:
    assert [run.token for run in runs] == list(range(1, job.token + 1)), f"{job.id} lost a run"
    at_most_once = job.delivery in {Delivery.LINKED, Delivery.ONCE}
    assert len(runs) <= 1 or not at_most_once, f"{job.id} ({job.delivery}) ran twice"


def _check_counts(job: Job, before: Job | None, runs: list[RunRecord]) -> None:
    ended = Counter(run.status for run in runs)
    failures, losses = (before.failures, before.losses) if before else (0, 0)
    assert job.failures == failures + ended[RunStatus.FAILED] + ended[RunStatus.LOST], job
    assert job.losses == losses + ended[RunStatus.LOST], job


def _check_successors(dump: Dump) -> None:
    links = Counter(job.retry_of for job in dump.jobs.values() if job.retry_of)
    assert all(number == 1 for number in links.values()), f"a job was retried twice: {links}"
    for job in dump.jobs.values():
        before = dump.jobs[job.retry_of] if job.retry_of else None
        assert job.root_id == (before.root_id if before else job.id), f"{job.id} lost its root"
        assert before is None or before.is_final, f"{job.retry_of} was retried before its end"


def _check_retries(dump: Dump, chained: Collection[JobId]) -> None:
    """Each job knows of its retry by hand, and of no other."""
    for job_id, events in dump.events.items():
        told = [event.detail for event in events if event.kind is EventKind.RETRIED]
        after = [job.id for job in dump.jobs.values() if job.retry_of == job_id]
        assert told == [each for each in after if each not in chained], f"{job_id} was told {told}"


def _check_once(dump: Dump) -> None:
    jobs = dump.jobs.values()
    running = [job for job in jobs if job.state is State.RUNNING and job.delivery is Delivery.ONCE]
    names = [job.name for job in running]
    assert len(names) == len(set(names)), f"two once jobs of one name run: {names}"
