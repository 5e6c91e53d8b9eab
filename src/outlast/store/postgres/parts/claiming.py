"""Taking jobs: one statement where nothing stands before them."""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from outlast.core.run import Claim, LeaseHolder
from outlast.errors import StoreBusy, StoreUnavailable
from outlast.store.contract.jobs import PROMOTED_AT_ONCE
from outlast.store.postgres.connection import CONNECTION_ERRORS, RETRYABLE, translated
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.operations.savepoint import is_unique_violation
from outlast.store.postgres.operations.scan_floor import ClaimScan
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.verbs.claim import (
    ClaimRequest,
    ClaimResult,
    claim_with_queue_lock,
    taken,
)
from outlast.store.rows import jobs as job_rows

log = logging.getLogger("outlast.store")

TRIES: Final = 20
"""How often a claim is begun anew that another one got in the way of."""


class ClaimOperations(PostgresOperations):
    """Taking jobs: one statement where nothing stands before them."""

    async def claim(
        self,
        holder: LeaseHolder,
        *,
        queue: str,
        types: Collection[str],
        limit: int,
        prefetch: int = 0,
        lease: timedelta,
    ) -> list[Claim]:
        if limit + prefetch < 1 or not types:
            return []
        wanted = ClaimRequest(
            holder=holder,
            queue=queue,
            types=sorted(types),
            limit=limit,
            prefetch=prefetch,
            lease=lease,
            prefix="",
        )
        return await retry_while_unavailable(
            partial(self._claim_idempotent, wanted, []), self.address
        )

    async def promote_due(self, *, limit: int) -> int:
        with translated(self.address):
            async with self._lines.line("claim").acquire() as lane:
                return await lane.change("claim.promote", {"now": self._now, "limit": limit})

    async def _claim_idempotent(self, wanted: ClaimRequest, sent: list[str]) -> list[Claim]:
        """What it takes, or has taken if the answer that said so was lost."""
        lost = await self._lines.rows("claim.opened_by_prefix", prefixes=sent) if sent else []
        if lost:
            return [job_rows.claim(row) for row in lost]
        sent.append(self._ids.prefix())
        return await self._claim(replace(wanted, prefix=sent[-1]))

    async def _claim(self, wanted: ClaimRequest) -> list[Claim]:
        promoted = False
        for _ in range(TRIES):
            try:
                took = await self._take(wanted, promoted=promoted)
                if took.is_gated and not took.is_paused:
                    return await self._claim_gated(wanted)
            except RETRYABLE:
                await asyncio.sleep(0)
            except Exception as error:
                if not is_unique_violation(error):  # a `once` name: somebody was quicker
                    raise
            else:
                if not await self._clear(wanted, took):
                    return took.claims
                promoted = True
        raise StoreBusy(f"{self.address.safe_text}: other claims were always quicker; try again")

    async def _claim_gated(self, wanted: ClaimRequest) -> list[Claim]:
        verb = partial(claim_with_queue_lock, wanted=wanted, now=self._now, mono=self._mono)
        return await self._lines.transact(verb, "claim")

    async def _take(self, wanted: ClaimRequest, *, promoted: bool) -> ClaimResult:
        """All there is where nothing has piled up, by a small statement; else by the large one."""
        piled_up, floors = self._lines.backlogged_queues, self._lines.floors
        has_floor = any(floors.of(wanted.queue, wanted.types))
        if wanted.queue in piled_up or has_floor or not wanted.limit:
            return await self._claim_backlog(wanted, promoted=promoted)
        few = await self._claim_small(wanted, promoted=promoted)
        if len(few.claims) < wanted.limit and few.seconds < floors.pace.seconds:
            return few
        piled_up.add(wanted.queue)
        if few.is_gated or len(few.claims) < wanted.limit or not wanted.prefetch:
            return few
        return replace(few, claims=few.claims + await self._take_more(wanted, len(few.claims)))

    async def _take_more(self, wanted: ClaimRequest, opened: int) -> list[Claim]:
        """Beyond the limit. What was taken before is ours, whatever becomes of this."""
        try:
            rest = replace(wanted, limit=0, opened=opened)
            return (await self._claim_backlog(rest, promoted=True)).claims
        except (StoreUnavailable, *CONNECTION_ERRORS):
            raise  # it may have taken some: all of them are looked up by the names of their runs
        except Exception:  # noqa: BLE001 - nothing of it was written
            log.warning("no jobs were taken beyond the limit of queue %s", wanted.queue)
            return []

    async def _claim_small(self, wanted: ClaimRequest, *, promoted: bool) -> ClaimResult:
        asked = {"promoted": promoted, "now": self._now, "mono": self._mono}
        async with self._lines.line("claim").acquire() as lane:
            return taken((await lane.fetch("claim.small", wanted.values(**asked)))[0])

    async def _claim_backlog(self, wanted: ClaimRequest, *, promoted: bool) -> ClaimResult:
        # Whoever only prefetches passes over what may not be: its floor is nobody else's.
        known = self._lines.floors if wanted.limit else self._lines.ahead
        floors = known.of(wanted.queue, wanted.types)
        moments = {"now": self._now, "mono": self._mono, "slow": known.pace.seconds}
        asked = {"floors": floors, "promoted": promoted, **moments}
        async with self._lines.line("claim").acquire() as lane:
            took = taken((await lane.fetch("claim.backlog", wanted.values(**asked)))[0])
        look = ClaimScan(took.lasts, took.looked, took.seconds, was_full=not any(floors))
        known.learn(wanted.queue, wanted.types, look)
        if not any(floors) and len(took.claims) < wanted.limit + wanted.prefetch:
            self._lines.backlogged_queues.discard(wanted.queue)
        return took

    async def _clear(self, wanted: ClaimRequest, took: ClaimResult) -> bool:
        """Do what must come before; False if nothing must."""
        if not took.is_due and not (took.worker_unregistered and not took.is_paused):
            return False
        async with self._lines.line("claim").acquire() as lane:
            if took.is_due:
                promote = {"now": self._now, "limit": PROMOTED_AT_ONCE}
                await lane.change("claim.promote", promote)
            if took.worker_unregistered:
                await lane.change("claim.add_worker", wanted.who)
        return True
