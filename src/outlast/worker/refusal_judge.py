"""Refusals: what follows when params do not fit this worker's code."""

import asyncio
import logging
from datetime import timedelta
from typing import Final, Protocol

from outlast.core.decide import Change
from outlast.core.delivery import OnFailure
from outlast.core.event import ZERO, Unfit
from outlast.core.ids import JobId
from outlast.core.refusals import Refusals
from outlast.core.run import Claim
from outlast.errors import OperatorError, StoreClosed
from outlast.store.contract.runs import Runs
from outlast.store.contract.schedules import Schedules
from outlast.worker.finisher import pause_after
from outlast.worker.run_outcome import OutcomeJudge, describe_error

log = logging.getLogger("outlast.worker")

FIRST_TOKEN: Final = 1


class RefusalReads(Runs, Schedules, Protocol):
    """The parts of a store that a refusal reads."""


class RefusalJudge:
    """Decides the change of a claim whose params do not fit this worker's code."""

    def __init__(
        self, store: RefusalReads, judge: OutcomeJudge, *, worker: str, max_unfit: timedelta
    ) -> None:
        self._store = store
        self._judge = judge
        self._worker = worker
        self._max_unfit = max_unfit

    async def refuse(self, claim: Claim, error: BaseException) -> Change:
        """Return the change; reads the earlier refusals of the job until the store answers."""
        before, age = await self._earlier(claim)
        event = Unfit(describe_error(error), self._worker, self._max_unfit, before, age)
        return self._judge.refused(claim, event, error)

    async def _earlier(self, claim: Claim) -> tuple[Refusals | None, timedelta]:
        failed = 0
        while self._may_have_earlier(claim):
            try:
                return await self._read(claim.job_id)
            except StoreClosed:
                raise
            except OperatorError as error:
                failed += 1
                log.warning("refusals of job=%s not read, try %d: %s", claim.id, failed, error)
                await asyncio.sleep(pause_after(failed))
        return None, ZERO

    def _may_have_earlier(self, claim: Claim) -> bool:
        """Return whether the job, or the one it continues, may have been refused before."""
        follows = claim.delivery.on_failure
        is_continued = claim.token > FIRST_TOKEN or follows is OnFailure.SUCCESSOR
        return bool(self._max_unfit) and follows is not OnFailure.CLOSE and is_continued

    async def _read(self, job_id: JobId) -> tuple[Refusals | None, timedelta]:
        [before] = await self._store.refusals([job_id])
        if before is None:
            return None, ZERO
        return before, max(ZERO, await self._store.now() - before.since)
