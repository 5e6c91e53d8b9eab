"""Jobs that run: keeping their leases, hearing of them, and clearing up after them."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from outlast.core.duration import MICROSECOND
from outlast.core.event import EventRecord
from outlast.core.job import Job
from outlast.core.run import Lease
from outlast.store.contract.jobs import Renewal
from outlast.store.postgres.parts.changing import ApplyOperations
from outlast.store.postgres.parts.claiming import ClaimOperations
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import Row
from outlast.store.postgres.verbs import upkeep
from outlast.store.postgres.verbs.footing import require_open_store
from outlast.store.postgres.verbs.repair import remove_orphans
from outlast.store.rows import jobs as job_rows


class PostgresRunning(ClaimOperations, ApplyOperations):
    """Jobs that run, from their claim to the day they are forgotten."""

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        if not leases:
            return []
        asked: dict[str, Any] = upkeep.distinct_leases(leases)
        asked |= {"span": span // MICROSECOND, "now": self._now, "mono": self._mono}
        found = await self._leased("runs.renew", asked)
        held = {(job, token): cancel for job, token, cancel in found}
        keys = [(lease.job_id, lease.token) for lease in leases]
        return [Renewal(key in held, held.get(key, False)) for key in keys]

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        answers: list[bool] = []
        for together in upkeep.rounds(reports):
            kept = await self._leased("runs.record_progress", upkeep.reporting(together))
            taken = {(job, token) for job, token in kept}
            answers += [(lease.job_id, lease.token) in taken for lease in together]
        return answers

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        verb = partial(upkeep.attach, lease=lease, artifacts=artifacts)
        return await self._lines.transact(verb)

    async def expired_leases(self, *, limit: int) -> list[Job]:
        return await self._jobs("runs.expired_leases", mono=self._mono, limit=limit)

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        return await self._jobs("runs.missed_start_deadline", now=self._now, limit=limit)

    async def prune(self, *, older_than: timedelta, limit: int) -> int:
        verb = partial(upkeep.prune, older_than=older_than, limit=limit)
        return await self._lines.transact(require_open_store(verb))

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        found = await self._lines.rows("maintenance.find_orphans", limit=limit)
        runs = [job_rows.orphan(tuple(row)) for row in found]
        verb = require_open_store(partial(remove_orphans, found=runs))
        return await self._lines.transact(verb) if runs else []

    async def _leased(self, name: str, values: dict[str, Any]) -> list[Row]:
        """On a line of its own, so that no lease lapses while others wait; safe to repeat."""

        async def ask() -> list[Row]:
            async with self._lines.line("lease").acquire() as lane:
                return await lane.fetch(name, values)

        return await retry_while_unavailable(ask, self.address) if values["jobs"] else []
