"""Applying changes by group commit: the routine in one statement, the rest under locks."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from outlast.core.decide import Change
from outlast.store.contract.notifications import Notification
from outlast.store.contract.transfer import allowed_while_sealed
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.operations.savepoint import is_data_error, is_unique_violation
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.postgres.verbs.apply import apply, is_plain_success
from outlast.store.postgres.verbs.footing import require_open

AT_ONCE: Final = 1000
"""How many runs one statement finishes."""


class ApplyOperations(PostgresOperations):
    """Applying changes by group commit."""

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        if not changes:
            return []
        return await self._lines.gather("apply", self._apply_group).submit(changes)

    async def _apply_group(self, changes: Sequence[Change], _: bool) -> list[bool]:
        return await retry_while_unavailable(
            partial(self._apply_rest, ApplyBatch(changes)), self.address
        )

    async def _apply_rest(self, batch: "ApplyBatch") -> list[bool]:
        """What has no answer yet; nothing that was written is ever taken for refused."""
        batch.begin()
        for routine in batch.routine():
            await self._finish(batch, routine)
        rest = batch.rest()
        if rest:
            batch.send(rest)
            batch.answer(rest, await self._apply_locked(batch, [batch.changes[n] for n in rest]))
        return [batch.answers[n] for n in range(len(batch.changes))]

    async def _finish(self, batch: "ApplyBatch", numbers: Sequence[int]) -> None:
        """Those of them that end by one statement; halved until what it cannot keep is alone."""
        try:
            await self._finish_plain(batch, numbers)
        except Exception as error:
            if not is_data_error(error):
                raise
            batch.settle(numbers)
            if len(numbers) == 1:
                batch.answer(numbers, [False])
                return
            half = len(numbers) // 2
            await self._finish(batch, numbers[:half])
            await self._finish(batch, numbers[half:])

    async def _finish_plain(self, batch: "ApplyBatch", numbers: Sequence[int]) -> None:
        changes = [batch.changes[n] for n in numbers]
        asked = _finishing(changes) | {"now": self._now}
        async with self._lines.line("apply").acquire() as lane:
            batch.send(numbers)
            [(taken, count)] = await lane.fetch("finish.plain", asked)
        if count:
            self._tell(Notification(ended=True))
        written = numbers if taken is None else [numbers[place - 1] for place in taken]
        batch.answer(written, [True] * len(written))
        batch.settle(numbers)

    async def _apply_locked(self, batch: "ApplyBatch", changes: Sequence[Change]) -> list[bool]:
        unknown = batch.unknown_jobs
        for is_careful in (False, False, True):
            verb = partial(_apply, changes=changes, unknown=unknown, is_careful=is_careful)
            try:
                return await self._lines.transact(verb, "apply")
            except Exception as error:
                if is_careful or not (is_data_error(error) or is_unique_violation(error)):
                    raise
        raise AssertionError("unreachable")


def _finishing(changes: Sequence[Change]) -> dict[str, Any]:
    """What the statement takes; where no run has a result, none is sent."""
    results = [change.result for change in changes]
    return {
        "jobs": ",".join([change.job_id for change in changes]),
        "token_list": ",".join([str(change.token) for change in changes]),
        "results": results if any(result is not None for result in results) else None,
        "number": len(changes),
    }


async def _apply(
    work: UnitOfWork, changes: Sequence[Change], unknown: Collection[str], *, is_careful: bool
) -> list[bool]:
    work.careful = is_careful
    if not all(map(allowed_while_sealed, changes)):
        await require_open(work)
    return await apply(work, changes, unknown=unknown)


class ApplyBatch:
    """Changes on their way: which have their answer, and of which an answer was lost."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.answers: dict[int, bool] = {}
        self._outstanding: set[int] = set()
        self._doubtful: set[int] = set()

    def begin(self) -> None:
        """Another attempt: what the one before sent and heard nothing of is doubtful."""
        self._doubtful |= self._outstanding
        self._outstanding.clear()

    def routine(self) -> list[list[int]]:
        """Successes that may end by one statement, each of another job, in the order of locks."""
        times = Counter(change.job_id for change in self.changes)
        numbers = [
            number
            for number, change in enumerate(self.changes)
            if number not in self.answers
            and is_plain_success(change)
            and times[change.job_id] == 1
            and is_uuid(change.job_id)
        ]
        numbers.sort(key=lambda number: self.changes[number].job_id)
        return [numbers[start : start + AT_ONCE] for start in range(0, len(numbers), AT_ONCE)]

    def rest(self) -> list[int]:
        return [number for number in range(len(self.changes)) if number not in self.answers]

    def send(self, numbers: Iterable[int]) -> None:
        self._outstanding.update(numbers)

    def settle(self, numbers: Iterable[int]) -> None:
        """They were answered, or are known not to be written."""
        self._outstanding.difference_update(numbers)

    def answer(self, numbers: Iterable[int], answers: Iterable[bool]) -> None:
        self.answers.update(zip(numbers, answers, strict=True))

    @property
    def unknown_jobs(self) -> frozenset[str]:
        """Those of which something may have been written that nobody told us of."""
        return frozenset(self.changes[number].job_id for number in self._doubtful)
