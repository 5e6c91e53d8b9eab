"""Audit reads of logs: the tokens under which jobs have lines."""

from collections.abc import Sequence

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.repositories import logs, runs
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork


async def tokens(unit: UnitOfWork, page: Sequence[JobRecord]) -> list[tuple[int, ...]]:
    """Return the tokens under which each job has lines of a log."""
    ids = [record.job.id for record in page if record.is_logged]
    found = dict(zip(ids, await runs.of_jobs(unit, key_layout.LOG, ids), strict=True))
    chunks = [logs.from_records(found.get(record.job.id, ())) for record in page]
    return [tuple(sorted({token for token, _ in each})) for each in chunks]
