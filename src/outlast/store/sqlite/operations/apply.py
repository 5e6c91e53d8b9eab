"""Apply decided changes, each only if its token is current and its guard holds."""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress

from outlast.core.decide import SUCCESS, Change, Guard, Transition
from outlast.core.event import EventKind
from outlast.core.run import Lease
from outlast.core.state import FINAL, WAITING, State
from outlast.store.contract.transfer import allowed_while_sealed
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.base import SqliteOperations
from outlast.store.sqlite.operations.groups import advance_groups
from outlast.store.sqlite.operations.logs import write as write_logs
from outlast.store.sqlite.operations.positions import rearrange
from outlast.store.sqlite.operations.savepoint import in_savepoint
from outlast.store.sqlite.writer import WriteTransaction


class SqliteApplyOperations(SqliteOperations):
    """Apply changes to jobs."""

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Write each change whose token is current and whose guard holds; True where it did."""
        return await self._writer.submit(apply, changes) if changes else []


def apply(tx: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    """Apply changes in order, in batches that one set of statements can write."""
    if not all(map(allowed_while_sealed, changes)):
        tx.require_open()
    if tx.isolate_items:
        return [
            in_savepoint(tx, partial(_apply_batch, tx, [change])) == [True] for change in changes
        ]
    accepted: list[bool] = []
    for batch in _batches(changes):
        accepted += _apply_batch(tx, batch)
    return accepted


def _batches(changes: Sequence[Change]) -> Iterable[Sequence[Change]]:
    """Split changes so that no batch has a job twice or mixes what depends on its order."""
    if all(change.move is SUCCESS for change in changes) and _has_distinct_jobs(changes):
        return [changes]
    batches: list[list[Change]] = [[]]
    for change in changes:
        last = batches[-1]
        if last and not (_fits_beside(change, last[-1]) and _has_distinct_jobs([*last, change])):
            batches.append([])
        batches[-1].append(change)
    return batches


def _fits_beside(one: Change, other: Change) -> bool:
    positions = _sets_position(one) or _sets_position(other)
    unblocks = EventKind.UNBLOCKED in (one.move.kind, other.move.kind)  # an end may unblock too
    return not positions and not unblocks and (one.successor is None) == (other.successor is None)


def _sets_position(change: Change) -> bool:
    """Return whether the change computes a position from those of the other waiting jobs."""
    return change.move.guard is Guard.DETACHED or _rearranges(change)


def _rearranges(change: Change) -> bool:
    return change.edit is not None or change.place is not None


def _has_distinct_jobs(changes: Sequence[Change]) -> bool:
    return len({change.job_id for change in changes}) == len(changes)


def _apply_batch(tx: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    write_logs(tx, [(Lease(c.job_id, c.token), c.log) for c in changes if c.log is not None])
    if all(change.move is SUCCESS and not _has_extras(change) for change in changes):
        return _succeed(tx, changes)
    return _apply_any(tx, changes)


def _has_extras(change: Change) -> bool:
    """Return whether the run leaves more than a result."""
    return bool(change.artifacts) or change.log_path is not None or change.exit_code is not None


def _succeed(tx: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    """Write the routine case, runs that succeed with at most a result, in few statements."""
    tx.run("finish.clear")
    encoded = to_json_param([(change.job_id, change.token, change.result) for change in changes])
    found = tx.run("finish.load", changes=encoded).rowcount
    if found > 0:
        tx.run("finish.close", now=tx.now)
        tx.run("finish.drop_open")
        tx.run("finish.end", now=tx.now)
        tx.run("finish.free_keys")
        tx.notify_queues.update(json.loads(tx.value("finish.limited")))
        advance_groups(tx, tx.run("finish.grouped").fetchall())
        _release_reservations(tx, "reservations.finish")
        tx.notify_ended = True
    if found == len(changes):
        return [True] * found
    return _record_refused(tx, changes)


def _record_refused(tx: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    """Send the stale changes through the general path, which records their refusal."""
    accepted = set(json.loads(tx.value("finish.accepted")))
    stale = [n for n in range(len(changes)) if n not in accepted]
    answers = _apply_any(tx, [changes[n] for n in stale])
    accepted |= set(compress(stale, answers))
    return [n in accepted for n in range(len(changes))]


def _apply_any(tx: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    moves = {change.move for change in changes}
    may_end = any(move.to in FINAL or move.yields_to_cancel for move in moves)
    _load(tx, changes)
    _check_guards(tx, changes, moves)
    if _rearranges(changes[0]):  # then it is the only change of its batch
        rearrange(tx, changes[0])
    else:
        _continue_jobs(tx, changes, moves)
    if may_end:
        _end_jobs(tx, moves)
    accepted: list[int] = json.loads(tx.value("apply.accepted"))
    on_record = _on_record(tx) if len(accepted) < len(changes) else []
    if len(accepted) < len(changes) or any(move.kind for move in moves):
        tx.run("apply.events", now=tx.now)
    if may_end:
        advance_groups(tx, tx.run("apply.grouped").fetchall())
    if any(_gives_work(change) for change in changes):
        tx.notify_queues.add("")  # the queue is not known here
    return _answers(len(changes), [*accepted, *on_record])


def _on_record(tx: WriteTransaction) -> list[int]:
    """Return the refused changes that were written before; none in a handler's transaction.

    There the answer would commit the handler's own writes a second time.
    """
    if tx.is_handlers:
        return []
    tx.run("apply.check_recorded")
    found: list[int] = json.loads(tx.value("apply.on_record"))
    return found


def _load(tx: WriteTransaction, changes: Sequence[Change]) -> None:
    tx.run("apply.clear")
    encoded = to_json_param([job_rows.change_params(change) for change in changes])
    tx.run("apply.load", changes=encoded)


def _check_guards(tx: WriteTransaction, changes: Sequence[Change], moves: set[Transition]) -> None:
    """Mark the accepted changes, then close the runs that they close."""
    guards = {move.guard for move in moves}
    if guards & {Guard.OPEN, Guard.LAPSED}:
        tx.run("apply.check_open", mono=tx.mono)
    if guards & {Guard.WAITING, Guard.STATE}:
        tx.run("apply.check_waiting")
        tx.run("apply.check_ended")
    if Guard.RESERVATION_EXPIRED in guards:
        tx.run("apply.check_reservation_expired", mono=tx.mono)
    if Guard.DETACHED in guards:
        _check_detached(tx, changes)
    elif any(move.run for move in moves):
        tx.run("apply.close", now=tx.now)
        tx.run("apply.drop_open")
        tx.notify_queues.update(json.loads(tx.value("apply.limited")))


def _check_detached(tx: WriteTransaction, changes: Sequence[Change]) -> None:
    """Mark the accepted changes of detached jobs and write the run that is missing."""
    tx.run("apply.check_detached", now=tx.now)
    if any(change.run_id for change in changes):
        tx.run("apply.raise_token")
        tx.run("apply.close_missing", now=tx.now)


def _continue_jobs(tx: WriteTransaction, changes: Sequence[Change], moves: set[Transition]) -> None:
    """Write what does not end: jobs put back, successors, cancel marks, changed states."""
    left = {move.to for move in moves if move.run or move.guard is Guard.DETACHED}
    if left & WAITING:
        tx.run("apply.put_back", now=tx.now)
    if any(change.successor for change in changes):
        _insert_successors(tx)
    if any(move.kind is EventKind.CANCEL_REQUESTED for move in moves):
        tx.run("apply.mark_cancel")
        tx.notify_cancelled = True
    if any(move.guard in (Guard.WAITING, Guard.STATE) and move.to in WAITING for move in moves):
        tx.run("apply.set_state")


def _insert_successors(tx: WriteTransaction) -> None:
    inserted = tx.run("apply.successors", now=tx.now)
    count, last = inserted.rowcount, inserted.lastrowid or 0
    if count > 0:
        tx.run("apply.queue_successors", now=tx.now)
        tx.run("add.set_positions", first=last - count + 1)


def _end_jobs(tx: WriteTransaction, moves: set[Transition]) -> None:
    guards = {move.guard for move in moves}
    if guards & {Guard.WAITING, Guard.STATE, Guard.RESERVATION_EXPIRED}:
        tx.run("apply.drop_waiting")
        tx.run("apply.declare_dead")
    if any(move.kind is EventKind.MISFIRE for move in moves):
        tx.run("schedules.misfired")
    tx.run("apply.end", now=tx.now)
    tx.run("apply.free_keys")
    _release_reservations(tx, "reservations.end")
    tx.notify_ended = True


def _release_reservations(tx: WriteTransaction, statement: str) -> None:
    """End the reservations of ended direct jobs; other jobs of their queues are claimable again."""
    tx.notify_queues.update(queue for (queue,) in tx.run(statement, now=tx.now).fetchall())


def _answers(count: int, accepted: Sequence[int]) -> list[bool]:
    if len(accepted) == count:
        return [True] * count
    numbers = set(accepted)
    return [n in numbers for n in range(count)]


def _gives_work(change: Change) -> bool:
    return change.move.to in (State.QUEUED, State.RETRY_WAIT) and not _rearranges(change)
