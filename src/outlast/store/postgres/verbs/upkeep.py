"""The small writing verbs: renewing, reporting, attaching, pruning."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn

from outlast.core.duration import MICROSECOND
from outlast.core.limits import MAX_PROGRESS, is_storable
from outlast.core.run import Lease
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.postgres.verbs.worker import forget_workers
from outlast.store.rows.jobs import to_json_param

_MOST_TOKEN: Final = 2**31 - 1


def distinct_leases(leases: Sequence[Lease]) -> dict[str, list[Any]]:
    """The leases that can be there at all, each once, in the order in which rows are locked."""
    known = sorted({(each.job_id, each.token) for each in leases if _is_known(each)})
    return {"jobs": [job for job, _ in known], "tokens": [token for _, token in known]}


def rounds(reports: Sequence[tuple[Lease, str]]) -> list[dict[Lease, str]]:
    """No run twice in one, since two reports of it must not share a statement."""
    together: list[dict[Lease, str]] = [{}]
    for lease, text in reports:
        if lease in together[-1]:
            together.append({})
        together[-1][lease] = text
    return together


def reporting(together: Mapping[Lease, str]) -> dict[str, list[Any]]:
    """What of them can be kept, in the order in which rows are locked."""
    kept = sorted(
        (lease.job_id, lease.token, text)
        for lease, text in together.items()
        if _is_known(lease) and _is_progress(text)
    )
    jobs, tokens, texts = zip(*kept, strict=True) if kept else ((), (), ())
    return {"jobs": list(jobs), "tokens": list(tokens), "texts": list(texts)}


async def attach(work: UnitOfWork, lease: Lease, artifacts: Sequence[str]) -> bool:
    if not _is_known(lease):
        return False
    run = {"job": lease.job_id, "token": lease.token}
    if not artifacts:
        return bool(await work.rows("runs.is_attachable", **run))
    run["artifacts"] = to_json_param(list(artifacts))
    if await work.run("runs.attach_open", **run):
        return True
    return await work.run("runs.attach_closed", **run) > 0


async def prune(work: UnitOfWork, older_than: timedelta, limit: int) -> int:
    before = work.now - older_than // MICROSECOND
    roots = await work.rows("maintenance.prunable_chains", before=before, limit=limit)
    gone = await _prune(work, sorted({root for (root,) in roots})) if roots else 0
    await work.run("maintenance.delete_empty_groups", before=before)
    await forget_workers(work, before)
    return gone


async def _prune(work: UnitOfWork, roots: Sequence[str]) -> int:
    found = await work.rows("maintenance.chain_jobs", roots=roots)
    alive = {root for root, _, _, has_ended in found if not has_ended}  # it goes on after all
    found = [row for row in found if row[0] not in alive]
    jobs = sorted(row[1] for row in found)
    for each in (
        "maintenance.delete_reservations",
        "maintenance.delete_jobs",
        "maintenance.delete_runs",
        "maintenance.delete_ends",
        "maintenance.delete_events",
    ):
        await work.run(each, jobs=jobs)
    groups = sorted({row[2] for row in found if row[2] is not None})
    if groups:
        await work.run("maintenance.delete_groups", groups=groups)
    return len(jobs)


def _is_known(lease: Lease) -> bool:
    return is_uuid(lease.job_id) and 0 < lease.token <= _MOST_TOKEN


def _is_progress(text: str) -> bool:
    if not is_storable(text) or len(text.encode()) > MAX_PROGRESS:
        return False
    try:
        json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return False
    return True


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
