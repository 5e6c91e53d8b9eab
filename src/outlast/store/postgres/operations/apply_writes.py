"""Write resolved changes, one statement per table."""

from collections.abc import Iterable, Sequence
from typing import Any

from outlast.core.decide import Change, Guard
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.state import RunStatus, State
from outlast.store.postgres.operations.apply_lookup import LockedJob, moves_or_edits
from outlast.store.postgres.operations.apply_resolution import ResolvedChange
from outlast.store.postgres.operations.groups import advance, lock_groups
from outlast.store.postgres.operations.reservations import end_reservations
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.rows.jobs import to_json_param


async def write_changes(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    """Write runs, waiting rows, successors and ends, then release keys and reservations.

    No job may occur twice.
    """
    await _close(work, [r for r in changes if r.closes])
    await _close_missing(work, [r for r in changes if r.change.run_id is not None])
    await _requeue(work, [r for r in changes if r.requeues])
    await _add_successors(work, [r for r in changes if r.successor is not None])
    await _mark_cancelled(work, [r for r in changes if r.kind is EventKind.CANCEL_REQUESTED])
    await _change_waiting_state(
        work, [r for r in changes if r.changes_waiting_state and not moves_or_edits(r.change)]
    )
    await _end(work, [r for r in changes if r.ends])
    await _mark_slots_skipped(work, [r for r in changes if r.kind is EventKind.MISFIRE])
    await _write_dead_letters(
        work, [r for r in changes if r.had_ended and r.to is not r.locked.state]
    )
    await _release(work, [r for r in changes if r.is_final])


async def write_events(
    work: PostgresUnitOfWork, outcomes: Iterable[tuple[Change, ResolvedChange | None]]
) -> None:
    """Record the events of written changes, and of late writes that were refused."""
    rows = [row for change, resolved in outcomes if (row := _event(change, resolved)) is not None]
    names = ("jobs", "kinds", "tokens", "run_ids", "reasons", "details")
    if rows:
        await work.run("apply.record_events", now=work.now, **columns(names, rows))


def _event(change: Change, resolved: ResolvedChange | None) -> tuple[Any, ...] | None:
    if resolved is not None:
        return None if resolved.kind is None else _event_row(resolved)
    if change.move.guard is not Guard.OPEN:
        return None
    return change.job_id, EventKind.LATE_WRITE_REFUSED, change.token, None, change.move.to, None


def _event_row(resolved: ResolvedChange) -> tuple[Any, ...]:
    """Return the event of a change."""
    has_run = resolved.run is not None or resolved.is_detached or resolved.to is State.RUNNING
    detail, run_id = resolved.change.event_detail, resolved.run_id if has_run else None
    return resolved.job, resolved.kind, resolved.token, run_id, resolved.reason, detail


async def advance_groups(work: PostgresUnitOfWork, changes: Iterable[ResolvedChange]) -> None:
    """Apply the ends of members to their groups. A job with a successor is not a member's end."""
    ends = [r for r in changes if r.is_final and r.successor is None and _ends_member(r)]
    still_open = {
        group
        for group, _, closing, _ in await lock_groups(
            work, (r.locked.member_group_id or "" for r in ends)
        )
        if closing is None
    }
    await advance(work, [_member(r) for r in ends if r.locked.member_group_id in still_open])


def _ends_member(resolved: ResolvedChange) -> bool:
    identity = resolved.locked.identity
    is_affected = identity.mode == "sequential" or resolved.to not in (
        State.SUCCEEDED,
        State.SKIPPED,
    )
    return (
        identity.member_group_id is not None
        and is_affected
        and not resolved.locked.has_successor_in_group
    )


def _member(resolved: ResolvedChange) -> tuple[Any, ...]:
    it = resolved.locked.identity
    was_blocked = resolved.locked.state is State.BLOCKED
    group = (it.root_seq, it.member_group_id, it.mode, it.on_failure)
    return resolved.job, resolved.token, *group, resolved.to, was_blocked


async def _close(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    if not changes:
        return
    names = (
        "jobs", "statuses", "reasons", "errors", "results", "exit_codes", "log_paths", "artifacts",
    )  # fmt: skip
    rows = [_closing(r.job, r.change) for r in changes]
    await work.run("apply.close", now=work.now, **columns(names, rows))
    # A queue with a concurrency limit has capacity again.
    work.queues.update(r.locked.queue for r in changes if r.locked.identity.is_limited)


def _closing(job: str, change: Change) -> tuple[Any, ...]:
    artifacts = to_json_param(list(change.artifacts)) if change.artifacts else None
    what = (change.move.run, change.reason, change.error, change.result)
    return job, *what, change.exit_code, change.log_path, artifacts


async def _close_missing(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    if changes:
        names = ("jobs", "tokens", "run_ids", "statuses", "reasons", "errors")
        rows = [(r.job, r.token, r.run_id, r.run, r.change.reason, r.change.error) for r in changes]
        await work.run("apply.close_missing", now=work.now, **columns(names, rows))


async def _requeue(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    if not changes:
        return
    names = ("jobs", "states", "priorities", "positions", "available", "tokens", *_COUNTS)
    rows = [
        (r.job, r.to, *_order(r.locked), r.available_at(work.now), r.token, r.failures, r.losses)
        for r in changes
    ]
    await work.run("apply.requeue", **columns(names, rows))
    work.queues.update(r.locked.queue for r in changes)


async def _add_successors(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    if not changes:
        return
    pairs = [(r, r.successor) for r in changes if r.successor]
    jobs = [(r.job, after.id) for r, after in pairs]
    await work.run("apply.add_successors", now=work.now, **columns(("jobs", "successors"), jobs))
    places = [
        (after.id, after.delay // MICROSECOND, r.locked.priority, r.failures, r.losses)
        for r, after in pairs
    ]
    names = ("successors", "delays", "priorities", *_COUNTS)
    await work.run("apply.queue_successors", now=work.now, **columns(names, places))
    work.queues.update(r.locked.queue for r, after in pairs if not after.delay)


async def _mark_cancelled(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    if changes:
        await work.run("apply.mark_cancel", jobs=[r.job for r in changes])
        work.cancelled = True


async def _change_waiting_state(
    work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]
) -> None:
    if changes:
        rows = [(r.job, r.to) for r in changes]
        await work.run("apply.move", **columns(("jobs", "states"), rows))
        work.queues.update(r.locked.queue for r in changes if r.to is State.QUEUED)


async def _end(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    if not changes:
        return
    waited = [r.job for r in changes if r.locked.state is not State.RUNNING]
    if waited:
        await work.run("apply.drop_waiting", jobs=waited)
    names = (
        "jobs", "seqs", "states", "reasons", "queues", "priorities", "positions", "available",
        "tokens", *_COUNTS,
    )  # fmt: skip
    rows = [_ending(r) for r in changes]
    await work.run("apply.end", now=work.now, **columns(names, rows))


def _ending(resolved: ResolvedChange) -> tuple[Any, ...]:
    locked = resolved.locked
    what = (resolved.job, locked.seq, resolved.to, resolved.reason, locked.queue)
    where = (*_order(locked), locked.available_at)
    return *what, *where, resolved.token, resolved.failures, resolved.losses


async def _mark_slots_skipped(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    """Mark the slots of jobs that missed their start deadline as skipped."""
    if changes:
        await work.run("schedules.mark_slots_skipped", jobs=[r.job for r in changes])


async def _write_dead_letters(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    if changes:
        rows = [(r.job, r.to, r.reason) for r in changes]
        await work.run("apply.dead_letter", **columns(("jobs", "states", "reasons"), rows))


async def _release(work: PostgresUnitOfWork, changes: Sequence[ResolvedChange]) -> None:
    """Release the active keys of ended chains and the reservations of ended direct jobs."""
    if not changes:
        return
    work.ended = True
    roots = [r.locked.identity.root for r in changes if r.ends_chain and r.locked.identity.active]
    if roots:
        await work.run("apply.free_keys", roots=roots)
    reserved = [_reservation_end(r) for r in changes if r.locked.identity.is_reserved]
    if reserved:
        await end_reservations(work, reserved)


def _reservation_end(resolved: ResolvedChange) -> tuple[str, str, str | None]:
    if resolved.run is RunStatus.LOST or resolved.kind is EventKind.ABANDONED:
        return resolved.job, "expired", resolved.reason
    return resolved.job, "released", None


def _order(locked: LockedJob) -> tuple[int, int]:
    return locked.priority, locked.position


_COUNTS = ("failures", "losses")


def columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows as one list per column, for `unnest`."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
