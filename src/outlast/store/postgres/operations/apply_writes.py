"""Writing what changes come to: each kind of row in one statement for all of them."""

from collections.abc import Iterable, Sequence
from typing import Any

from outlast.core.decide import Change, Guard
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.state import RunStatus, State
from outlast.store.postgres.operations.apply_lookup import LockedJob, rearranges
from outlast.store.postgres.operations.apply_resolution import ResolvedChange
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.postgres.verbs.group import advance, lock_groups
from outlast.store.postgres.verbs.reservation import end_reservations
from outlast.store.rows.jobs import to_json_param


async def write(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    """Runs, places, successors, ends and keys of changes of as many jobs; then what they free."""
    await _close(work, [r for r in rulings if r.closes])
    await _close_missing(work, [r for r in rulings if r.change.run_id is not None])
    await _put_back(work, [r for r in rulings if r.puts_back])
    await _follow(work, [r for r in rulings if r.successor is not None])
    await _mark(work, [r for r in rulings if r.kind is EventKind.CANCEL_REQUESTED])
    await _move(work, [r for r in rulings if r.moves and not rearranges(r.change)])
    await _end(work, [r for r in rulings if r.ends])
    await _mark_slots_skipped(work, [r for r in rulings if r.kind is EventKind.MISFIRE])
    await _write_dead_letters(
        work, [r for r in rulings if r.had_ended and r.to is not r.found.state]
    )
    await _free(work, [r for r in rulings if r.is_final])


async def write_events(
    work: UnitOfWork, outcomes: Iterable[tuple[Change, ResolvedChange | None]]
) -> None:
    """The events of what was written, and of a former holder's write that was not."""
    rows = [row for change, ruling in outcomes if (row := _event(change, ruling)) is not None]
    names = ("jobs", "kinds", "tokens", "run_ids", "reasons", "details")
    if rows:
        await work.run("apply.record_events", now=work.now, **columns(names, rows))


def _event(change: Change, ruling: ResolvedChange | None) -> tuple[Any, ...] | None:
    if ruling is not None:
        return None if ruling.kind is None else _told(ruling)
    if change.move.guard is not Guard.OPEN:
        return None
    return change.job_id, EventKind.LATE_WRITE_REFUSED, change.token, None, change.move.to, None


def _told(ruling: ResolvedChange) -> tuple[Any, ...]:
    """The error of a failed run is in its record; any other is told here."""
    has_run = ruling.run is not None or ruling.is_adrift or ruling.to is State.RUNNING
    detail = None if ruling.run is RunStatus.FAILED else ruling.change.error
    run_id = ruling.run_id if has_run else None
    return ruling.job, ruling.kind, ruling.token, run_id, ruling.reason, detail


async def move_groups(work: UnitOfWork, rulings: Iterable[ResolvedChange]) -> None:
    """Ends of members may move their group. A link of a chain that is followed is no end."""
    ends = [r for r in rulings if r.is_final and r.successor is None and _is_members_end(r)]
    still_open = {
        group
        for group, _, closing, _ in await lock_groups(
            work, (r.found.member_group_id or "" for r in ends)
        )
        if closing is None
    }
    await advance(work, [_member(r) for r in ends if r.found.member_group_id in still_open])


def _is_members_end(ruling: ResolvedChange) -> bool:
    subject = ruling.found.subject
    is_moved = subject.mode == "sequential" or ruling.to not in (State.SUCCEEDED, State.SKIPPED)
    return (
        subject.member_group_id is not None and is_moved and not ruling.found.is_followed_in_group
    )


def _member(ruling: ResolvedChange) -> tuple[Any, ...]:
    it = ruling.found.subject
    was_blocked = ruling.found.state is State.BLOCKED
    place = (it.root_seq, it.member_group_id, it.mode, it.on_failure)
    return ruling.job, ruling.token, *place, ruling.to, was_blocked


async def _close(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    if not rulings:
        return
    names = (
        "jobs", "statuses", "reasons", "errors", "results", "exit_codes", "log_paths", "artifacts",
    )  # fmt: skip
    rows = [_closing(r.job, r.change) for r in rulings]
    await work.run("apply.close", now=work.now, **columns(names, rows))
    # There is room again.
    work.queues.update(r.found.queue for r in rulings if r.found.subject.is_limited)


def _closing(job: str, change: Change) -> tuple[Any, ...]:
    artifacts = to_json_param(list(change.artifacts)) if change.artifacts else None
    what = (change.move.run, change.reason, change.error, change.result)
    return job, *what, change.exit_code, change.log_path, artifacts


async def _close_missing(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    if rulings:
        names = ("jobs", "tokens", "run_ids", "statuses", "reasons", "errors")
        rows = [(r.job, r.token, r.run_id, r.run, r.change.reason, r.change.error) for r in rulings]
        await work.run("apply.close_missing", now=work.now, **columns(names, rows))


async def _put_back(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    if not rulings:
        return
    names = ("jobs", "states", "priorities", "positions", "available", "tokens", *_COUNTS)
    rows = [
        (r.job, r.to, *_place(r.found), r.available_at(work.now), r.token, r.failures, r.losses)
        for r in rulings
    ]
    await work.run("apply.requeue", **columns(names, rows))
    work.queues.update(r.found.queue for r in rulings)


async def _follow(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    if not rulings:
        return
    pairs = [(r, r.successor) for r in rulings if r.successor]
    jobs = [(r.job, after.id) for r, after in pairs]
    await work.run("apply.add_successors", now=work.now, **columns(("jobs", "successors"), jobs))
    places = [
        (after.id, after.delay // MICROSECOND, r.found.priority, r.failures, r.losses)
        for r, after in pairs
    ]
    names = ("successors", "delays", "priorities", *_COUNTS)
    await work.run("apply.queue_successors", now=work.now, **columns(names, places))
    work.queues.update(r.found.queue for r, after in pairs if not after.delay)


async def _mark(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    if rulings:
        await work.run("apply.mark_cancel", jobs=[r.job for r in rulings])
        work.cancelled = True


async def _move(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    if rulings:
        rows = [(r.job, r.to) for r in rulings]
        await work.run("apply.move", **columns(("jobs", "states"), rows))
        work.queues.update(r.found.queue for r in rulings if r.to is State.QUEUED)


async def _end(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    if not rulings:
        return
    waited = [r.job for r in rulings if r.found.state is not State.RUNNING]
    if waited:
        await work.run("apply.drop_waiting", jobs=waited)
    names = (
        "jobs", "seqs", "states", "reasons", "queues", "priorities", "positions", "available",
        "tokens", *_COUNTS,
    )  # fmt: skip
    rows = [_ending(r) for r in rulings]
    await work.run("apply.end", now=work.now, **columns(names, rows))


def _ending(ruling: ResolvedChange) -> tuple[Any, ...]:
    found = ruling.found
    what = (ruling.job, found.seq, ruling.to, ruling.reason, found.queue)
    where = (*_place(found), found.available_at)
    return *what, *where, ruling.token, ruling.failures, ruling.losses


async def _mark_slots_skipped(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    """The slot of a job that could not start in time."""
    if rulings:
        await work.run("schedules.mark_slots_skipped", jobs=[r.job for r in rulings])


async def _write_dead_letters(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    if rulings:
        rows = [(r.job, r.to, r.reason) for r in rulings]
        await work.run("apply.dead_letter", **columns(("jobs", "states", "reasons"), rows))


async def _free(work: UnitOfWork, rulings: Sequence[ResolvedChange]) -> None:
    """The active key of a chain that is over, and the queue that a direct job held."""
    if not rulings:
        return
    work.ended = True
    roots = [r.found.subject.root for r in rulings if r.ends_chain and r.found.subject.active]
    if roots:
        await work.run("apply.free_keys", roots=roots)
    held = [_letting_go(r) for r in rulings if r.found.subject.is_reserved]
    if held:
        await end_reservations(work, held)


def _letting_go(ruling: ResolvedChange) -> tuple[str, str, str | None]:
    if ruling.run is RunStatus.LOST or ruling.kind is EventKind.ABANDONED:
        return ruling.job, "expired", ruling.reason
    return ruling.job, "released", None


def _place(found: LockedJob) -> tuple[int, int]:
    return found.priority, found.position


_COUNTS = ("failures", "losses")


def columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """What `unnest` takes: a list for each column."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
