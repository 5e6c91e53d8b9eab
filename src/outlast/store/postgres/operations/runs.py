"""Runs and events: renew leases, record progress, attach artifacts, read history."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, NoReturn

from outlast.clock import from_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.limits import MAX_PROGRESS, is_storable
from outlast.core.refusals import Refusals, read_refusals
from outlast.core.run import Lease, RunRecord
from outlast.store.contract import runs as run_contract
from outlast.store.contract.jobs import Renewal
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork, Row
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param

_MAX_TOKEN: Final = 2**31 - 1


class PostgresRunOperations(PostgresOperations):
    """Renew leases, record progress, attach artifacts, read runs and events."""

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        """Renew leases to `span` from now; return for each whether it is held and cancelled."""
        if not leases:
            return []
        values: dict[str, Any] = distinct_leases(leases)
        values |= {"span": span // MICROSECOND, "now": self._now, "mono": self._mono}
        found = await self._fetch_leased("runs.renew", values, limit=span.total_seconds() / 3)
        held = {(job, token): cancel for job, token, cancel in found}
        keys = [(lease.job_id, lease.token) for lease in leases]
        return [Renewal(key in held, held.get(key, False)) for key in keys]

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        """Write the progress of open runs; return for each report whether it was written."""
        answers: list[bool] = []
        for reported in _rounds(reports):
            written = await self._fetch_leased("runs.record_progress", _progress_values(reported))
            held = {(job, token) for job, token in written}
            answers += [(lease.job_id, lease.token) in held for lease in reported]
        return answers

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        """Append artifacts to the job's latest run; return False if the lease is not that run."""
        return await self._pool.transact(partial(_attach, lease=lease, artifacts=artifacts))

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        """Return the runs of a job, by token."""
        if not is_uuid(job_id):
            return []
        found = await self._pool.rows("runs.of_job", id=job_id)
        return [job_rows.run_record(tuple(row)) for row in found]

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        """Return the events of a job, or those about no job, by id."""
        if job_id is None:
            return await self._events(
                "runs.events_of_no_job", limit=run_contract.MAX_EVENTS_OF_NO_JOB
            )
        return await self._events("runs.events", id=job_id) if is_uuid(job_id) else []

    async def refusals(self, job_ids: Sequence[JobId]) -> list[Refusals | None]:
        """Return the refusals of each job in a row, up to its last ended run."""
        ids = [job_id for job_id in job_ids if is_uuid(job_id)]
        found = await self._pool.rows("runs.refusals", ids=ids) if ids else []
        by_job = {str(job): read_refusals(detail, from_micros(at)) for job, at, detail in found}
        return [by_job.get(job_id) for job_id in job_ids]

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        """Return the next events of all jobs, by id, that no open transaction can precede."""
        return await self._events("runs.stream", after=after, limit=limit)

    async def _events(self, name: str, **values: Any) -> list[EventRecord]:
        return [job_rows.event(tuple(row)) for row in await self._pool.rows(name, **values)]

    async def _fetch_leased(
        self, name: str, values: dict[str, Any], *, limit: float | None = None
    ) -> list[Row]:
        """Run an idempotent statement on the lease connection, which no other work delays.

        `limit`: seconds without a reply after which the connection is given up, as in `acquire`.
        """

        async def fetch() -> list[Row]:
            async with self._pool.connection("lease").acquire(limit=limit) as runner:
                return await runner.fetch(name, values)

        if not values["jobs"]:
            return []
        repeated = partial(self._pool.repeat_on_conflict, fetch)
        return await retry_while_unavailable(repeated, self.address)


def distinct_leases(leases: Sequence[Lease]) -> dict[str, list[Any]]:
    """Return the leases that can exist, each once, in lock order."""
    known = sorted({(each.job_id, each.token) for each in leases if _is_valid(each)})
    return {"jobs": [job for job, _ in known], "tokens": [token for _, token in known]}


def _rounds(reports: Sequence[tuple[Lease, str]]) -> list[dict[Lease, str]]:
    """Split reports so that no round holds a run twice: one statement writes it once."""
    rounds: list[dict[Lease, str]] = [{}]
    for lease, text in reports:
        if lease in rounds[-1]:
            rounds.append({})
        rounds[-1][lease] = text
    return rounds


def _progress_values(reported: Mapping[Lease, str]) -> dict[str, list[Any]]:
    """Return the reports that can be stored, in lock order."""
    storable = sorted(
        (lease.job_id, lease.token, text)
        for lease, text in reported.items()
        if _is_valid(lease) and _is_progress(text)
    )
    jobs, tokens, texts = zip(*storable, strict=True) if storable else ((), (), ())
    return {"jobs": list(jobs), "tokens": list(tokens), "texts": list(texts)}


async def _attach(work: PostgresUnitOfWork, lease: Lease, artifacts: Sequence[str]) -> bool:
    if not _is_valid(lease):
        return False
    values = {"job": lease.job_id, "token": lease.token}
    if not artifacts:
        return bool(await work.rows("runs.is_attachable", **values))
    values["artifacts"] = to_json_param(list(artifacts))
    if await work.run("runs.attach_open", **values):
        return True
    return await work.run("runs.attach_closed", **values) > 0


def _is_valid(lease: Lease) -> bool:
    return is_uuid(lease.job_id) and 0 < lease.token <= _MAX_TOKEN


def _is_progress(text: str) -> bool:
    if not is_storable(text) or len(text.encode()) > MAX_PROGRESS:
        return False
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")
