"""Writing decided changes, each behind its fence."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from outlast.core.decide import SUCCESS, Change
from outlast.core.event import EventKind
from outlast.core.state import FINAL
from outlast.store.postgres.operations.apply_lookup import (
    JobIdentity,
    LockedJob,
    find,
    is_placed,
    rearranges,
    subjects,
)
from outlast.store.postgres.operations.apply_resolution import ResolvedChange, resolve
from outlast.store.postgres.operations.apply_writes import columns, move_groups, write, write_events
from outlast.store.postgres.operations.positions import rearrange
from outlast.store.postgres.operations.savepoint import is_data_error, is_unique_violation, saved
from outlast.store.postgres.unit_of_work import UnitOfWork


async def apply(
    work: UnitOfWork, changes: Sequence[Change], *, unknown: Collection[str] = ()
) -> list[bool]:
    """In rounds, since two changes of one job must not share a statement.

    `unknown`: jobs whose changes, these very ones, were sent before and no answer came; what is on
    record just as it was asked for then counts as written.
    """
    known = await subjects(work, changes)  # with every lock that comes before those of jobs
    answers: list[bool] = []
    for together in _rounds(work, changes):
        if work.careful:
            answers += await _apply_alone(work, together, known, unknown)
        else:
            answers += await _apply(work, together, known, unknown)
    return answers


def is_plain_success(change: Change) -> bool:
    """Whether it is a success that leaves nothing but a result: the routine."""
    return (
        change.move is SUCCESS
        and not change.artifacts
        and change.log_path is None
        and change.exit_code is None
    )


def _rounds(work: UnitOfWork, changes: Sequence[Change]) -> Iterable[Sequence[Change]]:
    """No job twice in one, and no successor beside others: its place depends on their order."""
    if work.careful:
        return [[change] for change in changes]
    together: list[list[Change]] = [[]]
    jobs: set[str] = set()
    for change in changes:
        last = together[-1]
        if last and (change.job_id in jobs or not _alike(change, last[-1])):
            together.append([])
            jobs = set()
        together[-1].append(change)
        jobs.add(change.job_id)
    return together if changes else []


def _alike(one: Change, other: Change) -> bool:
    placed = is_placed(one) or is_placed(other)
    unblocks = EventKind.UNBLOCKED in (one.move.kind, other.move.kind)  # an end may have done that
    return not placed and not unblocks and (one.successor is None) == (other.successor is None)


async def _apply_alone(
    work: UnitOfWork,
    changes: Sequence[Change],
    known: Mapping[str, JobIdentity],
    unknown: Collection[str],
) -> list[bool]:
    """Under a savepoint: what cannot be kept, or what somebody else has written, is refused."""
    try:
        return await saved(work, lambda: _apply(work, changes, known, unknown))
    except Exception as error:
        if not (is_data_error(error) or is_unique_violation(error)):
            raise
        return [False]


async def _apply(
    work: UnitOfWork,
    changes: Sequence[Change],
    known: Mapping[str, JobIdentity],
    unknown: Collection[str],
) -> list[bool]:
    found = await find(work, changes, known)
    rulings = [await _ruling(work, *pair) for pair in zip(changes, found, strict=True)]
    written = [ruling for ruling in rulings if ruling is not None]
    await write(work, written)
    outcomes = list(zip(changes, rulings, strict=True))
    recorded = await _recorded(work, outcomes, known.keys() & unknown)
    told = [pair for n, pair in enumerate(outcomes) if n not in recorded]
    await write_events(work, [pair for pair in told if pair[0].job_id in known])
    await move_groups(work, written)
    return [ruling is not None or n in recorded for n, ruling in enumerate(rulings)]


async def _ruling(
    work: UnitOfWork, change: Change, found: LockedJob | None
) -> ResolvedChange | None:
    """What it comes to; a change that rearranges, which is alone, is written at once."""
    if found is None or (rearranges(change) and not await rearrange(work, change, found)):
        return None
    return resolve(change, found)


async def _recorded(
    work: UnitOfWork,
    outcomes: Sequence[tuple[Change, ResolvedChange | None]],
    unknown: Collection[str],
) -> frozenset[int]:
    """Those refused whose run, or end without one, is on record exactly as it was asked for."""
    asked = [
        (n, change.job_id, change.token, change.move.run, change.move.to)
        for n, (change, ruling) in enumerate(outcomes)
        if ruling is None and change.job_id in unknown
        if change.move.run is not None or change.move.to in FINAL
    ]
    if not asked:
        return frozenset()
    names = ("jobs", "tokens", "runs", "states")
    found = await work.rows("apply.recorded", **columns(names, [row[1:] for row in asked]))
    return frozenset(asked[n - 1][0] for (n,) in found)
