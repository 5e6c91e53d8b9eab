"""Which ended jobs may be deleted, and their deletion."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final

from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.state import State
from outlast.store.contract.jobs import EndedJob
from outlast.testing.model import groups, reservations
from outlast.testing.model.tables import Tables

PRUNED: Final = frozenset({State.SUCCEEDED, State.SKIPPED, State.CANCELLED})

LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)


def ended_jobs(tables: Tables, before: datetime, after: EndedJob | None) -> list[EndedJob]:
    """Return the jobs that ended well before that moment, in the order of their ends."""
    start = None if after is None else (after.at, after.seq)
    found = [
        EndedJob(id=job.id, type=job.type, at=job.finished_at, seq=job.seq)
        for job in tables.jobs.values()
        if job.state in PRUNED and job.finished_at is not None and job.finished_at < before
    ]
    found.sort(key=lambda job: (job.at, job.seq))
    return [job for job in found if start is None or (job.at, job.seq) > start]


def prunable(tables: Tables, before: datetime) -> list[JobId]:
    """Return the last jobs of chains that may be deleted, the earliest end first."""
    ended = (tables.jobs[each.id] for each in ended_jobs(tables, before, None))
    return [job.id for job in ended if _ends_a_chain(tables, job)]


def delete_chains(tables: Tables, tips: Collection[JobId]) -> int:
    """Delete the chains that end with these jobs; return how many jobs."""
    gone: Sequence[Job] = [job for tip in tips for job in tables.chain(tables.jobs[tip].root_id)]
    for job in gone:
        tables.forget(job.id)
        reservations.forget(tables, job.id)
    groups.forget(tables, [job.id for job in gone], LONG_AGO)
    return len(gone)


def _ends_a_chain(tables: Tables, job: Job) -> bool:
    return job.id not in tables.successors and not groups.is_kept(tables, job)
