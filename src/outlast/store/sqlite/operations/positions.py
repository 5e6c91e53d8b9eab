"""Positions: move and edit waiting jobs, renumber the positions of a queue."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from outlast.clock import to_micros
from outlast.core import position
from outlast.core.decide import Change
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.ordering import GAP, Ordering
from outlast.core.position import JobEdit, MoveTo, PositionedJob
from outlast.core.sync_coroutine import run_without_waiting
from outlast.store.rows.jobs import LAST, to_json_param
from outlast.store.sqlite.operations.base import SqliteOperations, require_open_store
from outlast.store.sqlite.writer import WriteTransaction

_MIN_INTEGER: Final = -(2**63)
_MAX_INTEGER: Final = 2**63 - 1


class SqlitePositionOperations(SqliteOperations):
    """Renumber positions; moves and edits are changes that `apply` writes."""

    async def renumber(self, queue: str) -> int:
        """Space the positions of the waiting jobs evenly; return how many changed."""
        changed: int = (await self._writer.submit(renumber, [queue]))[0]
        return changed


@require_open_store
def renumber(tx: WriteTransaction, queues: Sequence[str]) -> list[int]:
    """Renumber each queue; return the number of changed positions of each."""
    return [_renumber_one(tx, queue) for queue in queues]


def rearrange(tx: WriteTransaction, change: Change) -> None:
    """Write the edit or the new position of the only loaded change, if it was accepted."""
    if change.edit is not None:
        _edit(tx, change.edit)
    if change.place is not None:
        _move(tx, change.place)


def _edit(tx: WriteTransaction, edit: JobEdit) -> None:
    if edit.params is not None:
        tx.run("positions.params", params=edit.params)
    due = _due_time(edit, tx.now)
    tx.run("positions.edit", due=due, priority=edit.priority)
    if due is not None and due <= tx.now:
        tx.notify_queues.add("")  # the queue is not known here


def _due_time(edit: JobEdit, now: int) -> int | None:
    due = None if edit.at is None else to_micros(edit.at)
    if edit.delay is not None:
        due = now + edit.delay // MICROSECOND
    if due is not None and due > LAST:
        raise ValueError("it is due after the year 9999")
    return due


def _move(tx: WriteTransaction, to: MoveTo) -> None:
    if to.target is not None:
        tx.run("positions.check_target", target=to.target)
    found = tx.run("positions.subject", target=to.target, gap=GAP).fetchone()
    if found is not None:
        moved, target, queue, priority, gap = found
        line = SqliteWaitingLine(tx, queue, priority)
        write = partial(_write_positions, tx)
        run_without_waiting(
            position.move_job(line, write, to.where, moved=moved, target=target, gap=gap)
        )


async def _write_positions(tx: WriteTransaction, positions: Mapping[int, int]) -> None:
    if positions:
        tx.run("positions.write", positions=to_json_param(list(positions.items())))


def _renumber_one(tx: WriteTransaction, queue: str) -> int:
    found = tx.run("queues.get", name=queue).fetchone()
    ordering, gap = found[1:3] if found else (Ordering.SCHEDULED, GAP)
    if ordering == Ordering.POSITION:
        changed = tx.run("positions.renumber", queue=queue, gap=gap).rowcount
    else:
        changed = tx.run("positions.renumber_positioned", queue=queue, gap=gap).rowcount
    if changed:
        event = {"kind": EventKind.RENUMBERED, "detail": str(changed)}
        tx.run("positions.record_renumbered", queue=queue, now=tx.now, **event)
    return changed


class SqliteWaitingLine:
    """The waiting jobs of one queue and priority, read through the index of positions."""

    def __init__(self, tx: WriteTransaction, queue: str, priority: int) -> None:
        """Read within `tx`."""
        self._tx = tx
        self._line = {"queue": queue, "priority": priority}

    async def position(self, seq: int) -> int:
        """Return the position of a waiting job."""
        return int(self._sort_key(seq)["position"])

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        """Return the lowest and the highest position, without one job."""
        values = {**self._line, "without": without}
        lowest, highest = "positions.lowest", "positions.highest"
        return self._tx.value(lowest, **values), self._tx.value(highest, **values)

    async def before(self, seq: int | None, number: int, *, without: int) -> list[PositionedJob]:
        """Return the jobs before `seq` on its side of 0, the nearest first."""
        key = self._sort_key(seq)
        bound = 1 if key["position"] > 0 else _MIN_INTEGER
        return self._page("positions.before", bound, key, number, without)

    async def after(self, seq: int, number: int, *, without: int) -> list[PositionedJob]:
        """Return the jobs after `seq` on its side of 0, the nearest first."""
        key = self._sort_key(seq)
        bound = -1 if key["position"] < 0 else _MAX_INTEGER
        return self._page("positions.after", bound, key, number, without)

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        """Return the jobs without a position up to and including `last`, in order."""
        key = self._sort_key(last)
        del key["position"]
        found = self._tx.run("positions.unpositioned", without=without, **self._line, **key)
        return [seq for (seq,) in found.fetchall()]

    def _sort_key(self, seq: int | None) -> dict[str, Any]:
        """Return where a job is in the order; for None the start of those without a position."""
        row = (0, _MIN_INTEGER, _MIN_INTEGER)
        if seq is not None:
            row = self._tx.run("positions.sort_key", job=seq).fetchone()
        names = ("position", "available_at", "created_at")
        return {**dict(zip(names, row, strict=True)), "job": seq or 0}

    def _page(
        self, name: str, bound: int, key: Mapping[str, Any], number: int, without: int
    ) -> list[PositionedJob]:
        values = {**self._line, **key, "bound": bound, "limit": number, "without": without}
        return [PositionedJob(*row) for row in self._tx.run(name, **values).fetchall()]
