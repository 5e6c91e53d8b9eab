"""The log files of commands: one per run, deleted with their jobs or when they are old."""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import Claim
from outlast.store.contract.jobs import Jobs

MAX_BATCH: Final = 500
"""Jobs in one read at most."""

UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
LOG_NAME: Final = re.compile(rf"({UUID})\.{UUID}\.log")
"""Job id and run id. The folder may hold other files, which are left alone."""

LogFiles = Mapping[JobId, Collection[Path]]


def log_path(folder: Path, claim: Claim) -> Path:
    """Return the log file of a run; creates the folder, for this user alone."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"{claim.job_id}.{claim.run_id}.log")
    return folder.absolute() / name


async def remove_expired_logs(
    store: Jobs, folder: Path, *, before: datetime, keep_types: Collection[str] | None
) -> int:
    """Delete the files last written before a moment; return how many.

    Those of live jobs and of stored jobs of `keep_types` stay; None keeps those of all types.
    """
    files = await asyncio.to_thread(_files, folder, before)

    def is_kept(job: Job) -> bool:
        return not job.is_final or keep_types is None or job.type in keep_types

    jobs = await _jobs(store, files)
    return await _remove(files, [own for own, job in jobs if job is None or not is_kept(job)])


async def logs_of_stored_jobs(store: Jobs, folder: Path) -> LogFiles:
    """Return the files of jobs that are in the store; another store may share the folder."""
    files = await asyncio.to_thread(_files, folder, datetime.max.replace(tzinfo=UTC))
    return {job_id: files[job_id] for job_id, job in await _jobs(store, files) if job is not None}


async def remove_logs_of_pruned_jobs(store: Jobs, files: LogFiles) -> int:
    """Delete those of the files whose jobs are no longer in the store; return how many."""
    return await _remove(
        files, [job_id for job_id, job in await _jobs(store, files) if job is None]
    )


def _files(folder: Path, before: datetime) -> dict[JobId, list[Path]]:
    found: dict[JobId, list[Path]] = {}
    for path in folder.glob("*.log"):
        name = LOG_NAME.fullmatch(path.name)
        if name is not None and _written_before(path, before):
            found.setdefault(JobId(name[1]), []).append(path)
    return found


def _written_before(path: Path, moment: datetime) -> bool:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC) < moment
    except OSError:  # another worker deleted it
        return False


async def _jobs(store: Jobs, ids: Iterable[JobId]) -> list[tuple[JobId, Job | None]]:
    found: list[tuple[JobId, Job | None]] = []
    wanted = list(ids)
    for start in range(0, len(wanted), MAX_BATCH):
        some = wanted[start : start + MAX_BATCH]
        found += zip(some, await store.get(some), strict=True)
    return found


async def _remove(files: LogFiles, jobs: Iterable[JobId]) -> int:
    paths = [path for job_id in jobs for path in files[job_id]]
    await asyncio.to_thread(_unlink, paths)
    return len(paths)


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
