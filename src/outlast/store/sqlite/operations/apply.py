"""Writing decided changes, each behind its fence."""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from outlast.core.decide import SUCCESS, Change, Guard
from outlast.core.event import EventKind
from outlast.core.state import FINAL, WAITING, State
from outlast.store.contract.transfer import allowed_while_sealed
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.positions import rearrange
from outlast.store.sqlite.operations.savepoint import in_savepoint
from outlast.store.sqlite.verbs.group import advance
from outlast.store.sqlite.writer import WriteTransaction


def apply(work: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    """In rounds, since two changes of one job must not share a statement."""
    if not all(map(allowed_while_sealed, changes)):
        work.require_open()
    if work.isolate_items:
        return [in_savepoint(work, partial(_apply, work, [change])) == [True] for change in changes]
    answers: list[bool] = []
    for together in _rounds(changes):
        answers += _apply(work, together)
    return answers


def _rounds(changes: Sequence[Change]) -> Iterable[Sequence[Change]]:
    """No job twice in one, and no successor beside others: its place depends on their order."""
    if all(change.move is SUCCESS for change in changes) and _distinct(changes):
        return [changes]
    together: list[list[Change]] = [[]]
    for change in changes:
        last = together[-1]
        if last and not (_alike(change, last[-1]) and _distinct([*last, change])):
            together.append([])
        together[-1].append(change)
    return together


def _alike(one: Change, other: Change) -> bool:
    placed = _is_placed(one) or _is_placed(other)
    unblocks = EventKind.UNBLOCKED in (one.move.kind, other.move.kind)  # an end may have done that
    return not placed and not unblocks and (one.successor is None) == (other.successor is None)


def _is_placed(change: Change) -> bool:
    """Whether it gives the job a place of its own, which the next one's depends on."""
    return change.move.guard is Guard.DETACHED or _rearranges(change)


def _rearranges(change: Change) -> bool:
    return change.edit is not None or change.place is not None


def _distinct(changes: Sequence[Change]) -> bool:
    return len({change.job_id for change in changes}) == len(changes)


def _apply(work: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    if all(change.move is SUCCESS and not _leaves(change) for change in changes):
        return _succeed(work, changes)
    return _apply_any(work, changes)


def _leaves(change: Change) -> bool:
    """Whether the run leaves more behind than its result."""
    return bool(change.artifacts) or change.log_path is not None or change.exit_code is not None


def _succeed(work: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    """The routine path: runs that end well and leave nothing but a result."""
    work.run("finish.clear")
    encoded = to_json_param([(change.job_id, change.token, change.result) for change in changes])
    found = work.run("finish.load", changes=encoded).rowcount
    if found > 0:
        work.run("finish.close", now=work.now)
        work.run("finish.drop_open")
        work.run("finish.end", now=work.now)
        work.run("finish.free_keys")
        work.queues.update(json.loads(work.one("finish.limited")))
        advance(work, work.run("finish.grouped").fetchall())
        _free_queues(work, "reservations.finish")
        work.ended = True
    if found == len(changes):
        return [True] * found
    return _with_refused(work, changes)


def _with_refused(work: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    """Some were stale: they go the long way, which refuses them and writes that down."""
    taken = set(json.loads(work.one("finish.answer")))
    late = [change for n, change in enumerate(changes) if n not in taken]
    _apply_any(work, late)
    return [n in taken for n in range(len(changes))]


def _apply_any(work: WriteTransaction, changes: Sequence[Change]) -> list[bool]:
    moves = {change.move for change in changes}
    guards = {move.guard for move in moves}
    ends = {move.to for move in moves}
    work.run("apply.clear")
    work.run(
        "apply.load", changes=to_json_param([job_rows.change_params(change) for change in changes])
    )
    if guards & {Guard.OPEN, Guard.LAPSED}:
        work.run("apply.check_open", mono=work.mono)
    if guards & {Guard.WAITING, Guard.STATE}:
        work.run("apply.check_waiting")
        work.run("apply.check_ended")
    if Guard.RESERVATION_EXPIRED in guards:
        work.run("apply.check_silent", mono=work.mono)
    if Guard.DETACHED in guards:
        _apply_detached(work, changes)
    elif any(move.run for move in moves):
        work.run("apply.close", now=work.now)
        work.run("apply.drop_open")
        work.queues.update(json.loads(work.one("apply.limited")))
    if _rearranges(changes[0]):  # which is alone
        rearrange(work, changes[0])
    else:
        _keep_going(work, changes, moves)
    if ends & FINAL or any(move.yields_to_cancel for move in moves):
        _end(work, guards, moves)
    accepted = json.loads(work.one("apply.answer"))
    if len(accepted) < len(changes) or any(move.kind for move in moves):
        work.run("apply.events", now=work.now)
    if ends & FINAL or any(move.yields_to_cancel for move in moves):
        advance(work, work.run("apply.grouped").fetchall())
    return _answers(work, changes, accepted)


def _apply_detached(work: WriteTransaction, changes: Sequence[Change]) -> None:
    """Check it, and write the run that is missing."""
    work.run("apply.check_adrift", now=work.now)
    if any(change.run_id for change in changes):
        work.run("apply.raise_token")
        work.run("apply.close_missing", now=work.now)


def _keep_going(work: WriteTransaction, changes: Sequence[Change], moves: Iterable[Any]) -> None:
    """What does not end: back to its place, on as a successor, marked, or moved along."""
    left = {move.to for move in moves if move.run or move.guard is Guard.DETACHED}
    if left & WAITING:
        work.run("apply.put_back", now=work.now)
    if any(change.successor for change in changes):
        written = work.run("apply.successors", now=work.now)
        first = (written.lastrowid or 0) - written.rowcount + 1
        if written.rowcount > 0:
            work.run("apply.queue_successors", now=work.now)
            work.run("add.place", first=first)
    if any(move.kind is EventKind.CANCEL_REQUESTED for move in moves):
        work.run("apply.mark_cancel")
        work.cancelled = True
    if any(move.guard in (Guard.WAITING, Guard.STATE) and move.to in WAITING for move in moves):
        work.run("apply.move")


def _end(work: WriteTransaction, guards: set[Guard], moves: Iterable[Any]) -> None:
    if guards & {Guard.WAITING, Guard.STATE, Guard.RESERVATION_EXPIRED}:
        work.run("apply.drop_waiting")
        work.run("apply.bury")
    if any(move.kind is EventKind.MISFIRE for move in moves):
        work.run("schedules.misfired")
    work.run("apply.end", now=work.now)
    work.run("apply.free_keys")
    _free_queues(work, "reservations.end")
    work.ended = True


def _free_queues(work: WriteTransaction, statement: str) -> None:
    """With a direct job its hold on the queue ends: others may be taken again."""
    work.queues.update(queue for (queue,) in work.run(statement, now=work.now).fetchall())


def _answers(work: WriteTransaction, changes: Sequence[Change], accepted: list[int]) -> list[bool]:
    if len(accepted) == len(changes):
        answers = [True] * len(changes)
    else:
        taken = set(accepted)
        answers = [n in taken for n in range(len(changes))]
    if any(_gives_work(change) for change in changes):
        work.queues.add("")  # somebody may have work again; which queue is not known here
    return answers


def _gives_work(change: Change) -> bool:
    return change.move.to in (State.QUEUED, State.RETRY_WAIT) and not _rearranges(change)
