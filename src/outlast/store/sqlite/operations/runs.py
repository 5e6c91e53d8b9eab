"""Runs: renew leases, record progress, attach artifacts, read runs and events."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby

from outlast.clock import from_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.limits import MAX_PROGRESS, is_storable
from outlast.core.refusals import Refusals, read_refusals
from outlast.core.run import Lease, RunRecord
from outlast.store.contract import runs as run_contract
from outlast.store.contract.jobs import Renewal
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.base import SqliteOperations
from outlast.store.sqlite.writer import WriteTransaction


class SqliteRunOperations(SqliteOperations):
    """Leases, progress, artifacts and history of runs."""

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        """Extend each lease whose token is current to `span` from now."""
        items = [(lease, span) for lease in leases]
        return await self._writer.submit(renew, items) if items else []

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        """Store the progress of each open run; False where the run is not open."""
        return await self._writer.submit(record_progress, reports) if reports else []

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        """Append artifacts to the run of this lease; False if the job was claimed again."""
        attached: bool = (await self._writer.submit(attach, [(lease, artifacts)]))[0]
        return attached

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        """Return every run of a job, the first one first."""
        return [job_rows.run_record(row) for row in await self._reader.rows("runs.all", id=job_id)]

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        """Return the events of a job, or of no job, oldest first."""
        if job_id is None:
            found = await self._reader.rows(
                "runs.events_of_no_job", limit=run_contract.MAX_EVENTS_OF_NO_JOB
            )
        else:
            found = await self._reader.rows("runs.events", id=job_id)
        return [job_rows.event(row) for row in found]

    async def refusals(self, job_ids: Sequence[JobId]) -> list[Refusals | None]:
        """Return the refusals of each job in a row, up to its last ended run."""
        found = await self._reader.rows("runs.refusals", ids=to_json_param(list(job_ids)))
        by_index = {n: read_refusals(detail, from_micros(at)) for n, at, detail in found}
        return [by_index.get(n) for n in range(len(job_ids))]

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        """Return the next events of all jobs by id."""
        found = await self._reader.rows("runs.event_stream", after=after, limit=limit)
        return [job_rows.event(row) for row in found]


def renew(tx: WriteTransaction, items: Sequence[tuple[Lease, timedelta]]) -> list[Renewal]:
    """Renew leases and the reservations of their jobs; neighbours of one span together."""
    renewals: list[Renewal] = []
    for span, group in groupby(items, key=lambda item: item[1]):
        leases = to_json_param([(lease.job_id, lease.token) for lease, _ in group])
        tx.run("runs.renew", leases=leases, until=tx.mono + span // MICROSECOND)
        tx.run("reservations.renew", leases=leases, now=tx.now, mono=tx.mono)
        held = dict(json.loads(tx.value("runs.renewed", leases=leases)))
        count = len(json.loads(leases))
        renewals += [Renewal(n in held, bool(held.get(n))) for n in range(count)]
    return renewals


def record_progress(tx: WriteTransaction, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
    """Store reports in batches in which no run occurs twice: the last report counts."""
    accepted: list[bool] = []
    batch: dict[Lease, str] = {}
    for lease, progress in reports:
        if lease in batch:
            accepted += _record_progress_batch(tx, batch)
            batch = {}
        batch[lease] = progress
    return accepted + _record_progress_batch(tx, batch)


def attach(tx: WriteTransaction, items: Sequence[tuple[Lease, Sequence[str]]]) -> list[bool]:
    """Append artifacts to each run, open or closed."""
    return [_attach_one(tx, lease, artifacts) for lease, artifacts in items]


def _record_progress_batch(tx: WriteTransaction, batch: Mapping[Lease, str]) -> list[bool]:
    texts = [text if _is_valid_progress(text) else "" for text in batch.values()]
    pairs = zip(batch, texts, strict=True)
    reports = to_json_param([(lease.job_id, lease.token, text) for lease, text in pairs])
    tx.run("runs.record_progress", reports=reports)
    accepted = set(json.loads(tx.value("runs.progress_accepted", reports=reports)))
    return [n in accepted for n in range(len(batch))]


def _is_valid_progress(text: str) -> bool:
    return is_storable(text) and len(text.encode()) <= MAX_PROGRESS


def _attach_one(tx: WriteTransaction, lease: Lease, artifacts: Sequence[str]) -> bool:
    values = {"id": lease.job_id, "token": lease.token, "artifacts": to_json_param(list(artifacts))}
    if tx.run("runs.attach_open", **values).rowcount:
        return True
    return tx.run("runs.attach_closed", **values).rowcount > 0
