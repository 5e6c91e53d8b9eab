"""Apply changes by group commit: plain successes in one statement, the rest under locks."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from outlast.core.decide import SUCCESS, Change, Guard
from outlast.core.event import EventKind
from outlast.core.state import FINAL
from outlast.store.contract.notifications import Notification
from outlast.store.contract.transfer import allowed_while_sealed
from outlast.store.postgres.connection import RETRYABLE
from outlast.store.postgres.operations.apply_lookup import (
    JobIdentity,
    LockedJob,
    changes_position,
    find_locked,
    lock_identities,
    moves_or_edits,
)
from outlast.store.postgres.operations.apply_resolution import ResolvedChange, resolve
from outlast.store.postgres.operations.apply_writes import (
    advance_groups,
    columns,
    write_changes,
    write_events,
)
from outlast.store.postgres.operations.base import PostgresOperations, require_open
from outlast.store.postgres.operations.logs import log_values
from outlast.store.postgres.operations.positions import move_or_edit
from outlast.store.postgres.operations.savepoint import (
    is_data_error,
    is_unique_violation,
    with_savepoint,
)
from outlast.store.postgres.pool import ConnectionPool
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.postgres.uuids import is_uuid

MAX_FINISHED_PER_STATEMENT: Final = 1000
"""Number of runs that one statement finishes."""

RECORDED_NAMES: Final = (
    "jobs", "tokens", "runs", "states", "reasons", "errors", "results", "exit_codes", "log_paths",
    "successors",
)  # fmt: skip
"""Parameters of `apply.recorded`."""


class PostgresApplyOperations(PostgresOperations):
    """Apply changes by group commit."""

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Write each change whose guard holds; return for each one whether it was written."""
        if not changes:
            return []
        return await self._pool.group_commit("apply", self._apply_group).submit(changes)

    async def _apply_group(self, changes: Sequence[Change], _: bool) -> list[bool]:
        return await retry_while_unavailable(
            partial(self._apply_remaining, ApplyBatch(changes)), self.address
        )

    async def _apply_remaining(self, batch: "ApplyBatch") -> list[bool]:
        """Apply the changes without an answer; a written change is never reported as refused."""
        batch.begin_attempt()
        for numbers in batch.plain_successes():
            await self._finish(batch, numbers)
        rest = batch.unanswered()
        if rest:
            batch.mark_sent(rest)
            batch.answer(rest, await self._apply_locked(batch, [batch.changes[n] for n in rest]))
        return [batch.answers[n] for n in range(len(batch.changes))]

    async def _finish(self, batch: "ApplyBatch", numbers: Sequence[int]) -> None:
        """Finish runs by one statement; after a data error, bisect to refuse the bad one alone."""
        try:
            await self._finish_plain(batch, numbers)
        except RETRYABLE:
            batch.mark_settled(numbers)  # the transaction of the rest is repeated after conflicts
        except Exception as error:
            if not is_data_error(error):
                raise
            batch.mark_settled(numbers)
            if len(numbers) == 1:
                batch.answer(numbers, [False])
                return
            half = len(numbers) // 2
            await self._finish(batch, numbers[:half])
            await self._finish(batch, numbers[half:])

    async def _finish_plain(self, batch: "ApplyBatch", numbers: Sequence[int]) -> None:
        changes = [batch.changes[n] for n in numbers]
        statement, values = _finish_statement(changes)
        values["now"] = self._now
        async with self._pool.connection("apply").acquire() as runner:
            batch.mark_sent(numbers)
            [(places, count)] = await runner.fetch(statement, values)
        if count:
            self._notify(Notification(ended=True))
        written = numbers if places is None else [numbers[place - 1] for place in places]
        batch.answer(written, [True] * len(written))
        batch.mark_settled(numbers)

    async def _apply_locked(self, batch: "ApplyBatch", changes: Sequence[Change]) -> list[bool]:
        """Apply changes in one transaction; the last attempt takes each one by itself."""
        unknown = batch.unknown_jobs
        for one_by_one in (False, False, True):
            operation = partial(_apply, changes=changes, unknown=unknown, one_by_one=one_by_one)
            try:
                return await self._pool.transact(operation, "apply")
            except Exception as error:
                if one_by_one or not (is_data_error(error) or is_unique_violation(error)):
                    raise
        raise AssertionError("unreachable")


class ApplyBatch:
    """The changes of one group commit: their answers, and which replies were lost."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.answers: dict[int, bool] = {}
        self._outstanding: set[int] = set()
        self._unknown: set[int] = set()

    def begin_attempt(self) -> None:
        """Begin another attempt: the outcome of what the last one sent is unknown."""
        self._unknown |= self._outstanding
        self._outstanding.clear()

    def plain_successes(self) -> list[list[int]]:
        """Return unanswered plain successes of distinct jobs, in lock order, by statement."""
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
        step = MAX_FINISHED_PER_STATEMENT
        return [numbers[start : start + step] for start in range(0, len(numbers), step)]

    def unanswered(self) -> list[int]:
        """Return the numbers of the changes without an answer."""
        return [number for number in range(len(self.changes)) if number not in self.answers]

    def mark_sent(self, numbers: Iterable[int]) -> None:
        """Note that a statement with these changes is sent."""
        self._outstanding.update(numbers)

    def mark_settled(self, numbers: Iterable[int]) -> None:
        """Note that these changes were answered, or are known not to be written."""
        self._outstanding.difference_update(numbers)

    def answer(self, numbers: Iterable[int], answers: Iterable[bool]) -> None:
        """Record the answers of these changes."""
        self.answers.update(zip(numbers, answers, strict=True))

    @property
    def unknown_jobs(self) -> frozenset[str]:
        """Jobs of which a change may have been written although its reply was lost."""
        return frozenset(self.changes[number].job_id for number in self._unknown)


def _finish_statement(changes: Sequence[Change]) -> tuple[str, dict[str, Any]]:
    """Return the statement that finishes runs, with its values; logs are sent if there are any."""
    values = _finish_values(changes)
    logged = [(n, c.log) for n, c in enumerate(changes, 1) if c.log is not None]
    if not logged:
        return "finish.plain", values
    return "finish.logged", values | log_values(logged, "log_numbers", "drop_numbers")


def _finish_values(changes: Sequence[Change]) -> dict[str, Any]:
    """Return the values of `finish.plain`; results are sent only if there are any."""
    results = [change.result for change in changes]
    return {
        "jobs": ",".join([change.job_id for change in changes]),
        "token_list": ",".join([str(change.token) for change in changes]),
        "results": results if any(result is not None for result in results) else None,
        "number": len(changes),
    }


async def _apply(
    work: PostgresUnitOfWork,
    changes: Sequence[Change],
    unknown: Collection[str],
    *,
    one_by_one: bool,
) -> list[bool]:
    work.one_by_one = one_by_one
    if not all(map(allowed_while_sealed, changes)):
        await require_open(work)
    return await apply_changes(work, changes, unknown=unknown)


async def apply_changes(
    work: PostgresUnitOfWork, changes: Sequence[Change], *, unknown: Collection[str] | None = None
) -> list[bool]:
    """Apply changes in the current transaction; return for each one whether it was written.

    Changes are applied in rounds, because two changes of one job must not share a statement.
    `unknown` are jobs whose changes were sent before without a reply: a change that is on record
    exactly as requested counts as written. An end of a run that is on record always does. With
    None no change does: the transaction commits a handler's own writes, and must not do so twice.
    """
    known = await lock_identities(work, changes)  # takes the locks that come before those of jobs
    answers: list[bool] = []
    for together in _rounds(work, changes):
        if work.one_by_one:
            answers += await _apply_one(work, together, known, unknown)
        else:
            answers += await _apply_round(work, together, known, unknown)
    return answers


def is_plain_success(change: Change) -> bool:
    """Return whether the change is a success that records a result and nothing else."""
    return (
        change.move is SUCCESS
        and not change.artifacts
        and change.log_path is None
        and change.exit_code is None
    )


def _rounds(work: PostgresUnitOfWork, changes: Sequence[Change]) -> Iterable[Sequence[Change]]:
    """Split changes so that no round holds a job twice, or a successor beside other changes."""
    if work.one_by_one:
        return [[change] for change in changes]
    together: list[list[Change]] = [[]]
    jobs: set[str] = set()
    for change in changes:
        last = together[-1]
        if last and (change.job_id in jobs or not _may_share_round(change, last[-1])):
            together.append([])
            jobs = set()
        together[-1].append(change)
        jobs.add(change.job_id)
    return together if changes else []


def _may_share_round(one: Change, other: Change) -> bool:
    positioned = changes_position(one) or changes_position(other)
    # The end of a member in the same round may already have unblocked it.
    unblocks = EventKind.UNBLOCKED in (one.move.kind, other.move.kind)
    return not positioned and not unblocks and (one.successor is None) == (other.successor is None)


async def _apply_one(
    work: PostgresUnitOfWork,
    changes: Sequence[Change],
    known: Mapping[str, JobIdentity],
    unknown: Collection[str] | None,
) -> list[bool]:
    """Apply one change under a savepoint; a data error or unique violation refuses it."""
    try:
        return await with_savepoint(work, lambda: _apply_round(work, changes, known, unknown))
    except Exception as error:
        if not (is_data_error(error) or is_unique_violation(error)):
            raise
        return [False]


async def _apply_round(
    work: PostgresUnitOfWork,
    changes: Sequence[Change],
    known: Mapping[str, JobIdentity],
    unknown: Collection[str] | None,
) -> list[bool]:
    locked = await find_locked(work, changes, known)
    resolved = [await _resolve(work, *pair) for pair in zip(changes, locked, strict=True)]
    written = [each for each in resolved if each is not None]
    await write_changes(work, written)
    outcomes = list(zip(changes, resolved, strict=True))
    recorded = frozenset[int]()
    if unknown is not None and None in resolved:
        recorded = await _recorded(work, outcomes, known.keys(), unknown)
    eventful = [pair for n, pair in enumerate(outcomes) if n not in recorded]
    await write_events(work, [pair for pair in eventful if pair[0].job_id in known])
    await advance_groups(work, written)
    return [each is not None or n in recorded for n, each in enumerate(resolved)]


async def _resolve(
    work: PostgresUnitOfWork, change: Change, locked: LockedJob | None
) -> ResolvedChange | None:
    """Resolve a change; a move or an edit, which is alone in its round, is written here."""
    if locked is None or (moves_or_edits(change) and not await move_or_edit(work, change, locked)):
        return None
    return resolve(change, locked)


async def are_recorded(pool: ConnectionPool, changes: Sequence[Change]) -> bool:
    """Return whether each change that closes a run is on record as requested."""
    values = columns(RECORDED_NAMES, [_requested(change) for change in changes])
    return len(await pool.rows("apply.recorded", **values)) == len(changes)


async def _recorded(
    work: PostgresUnitOfWork,
    outcomes: Sequence[tuple[Change, ResolvedChange | None]],
    known: Collection[str],
    unknown: Collection[str],
) -> frozenset[int]:
    """Return the refused changes whose run, or end without a run, is on record as requested."""
    requested = [
        (n, change)
        for n, (change, resolved) in enumerate(outcomes)
        if resolved is None and change.job_id in known
        if _may_be_recorded(change, is_unknown=change.job_id in unknown)
    ]
    if not requested:
        return frozenset()
    values = columns(RECORDED_NAMES, [_requested(change) for _, change in requested])
    found = await work.rows("apply.recorded", **values)
    return frozenset(requested[n - 1][0] for (n,) in found)


def _may_be_recorded(change: Change, *, is_unknown: bool) -> bool:
    closes_run = change.move.run is not None
    if is_unknown:
        return closes_run or change.move.to in FINAL
    return closes_run and change.move.guard is Guard.OPEN


def _requested(change: Change) -> tuple[Any, ...]:
    """Return the row of RECORDED_NAMES."""
    what = change.reason, change.error, change.result, change.exit_code, change.log_path
    successor = None if change.successor is None else change.successor.id
    return change.job_id, change.token, change.move.run, change.move.to, *what, successor
