"""Giving a job that waits another place, or other params, and making positions even."""

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
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.writer import WriteTransaction

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


def rearrange(work: WriteTransaction, change: Change) -> None:
    """Write the edit or the place of the one change that is loaded, if it was found current."""
    if change.edit is not None:
        _edit(work, change.edit)
    if change.place is not None:
        _move(work, change.place)


@require_open_store
def renumber(work: WriteTransaction, queues: Sequence[str]) -> list[int]:
    return [_renumber(work, queue) for queue in queues]


def _edit(work: WriteTransaction, edit: JobEdit) -> None:
    if edit.params is not None:
        work.run("positions.params", params=edit.params)
    due = _due(edit, work.now)
    work.run("positions.edit", due=due, priority=edit.priority)
    if due is not None and due <= work.now:
        work.queues.add("")  # somebody may have work now; which queue is not known here


def _due(edit: JobEdit, now: int) -> int | None:
    due = None if edit.at is None else to_micros(edit.at)
    if edit.delay is not None:
        due = now + edit.delay // MICROSECOND
    if due is not None and due > LAST:
        raise ValueError("it is due after the year 9999")
    return due


def _move(work: WriteTransaction, to: MoveTo) -> None:
    if to.target is not None:
        work.run("positions.check_target", target=to.target)
    subject = work.run("positions.subject", target=to.target, gap=GAP).fetchone()
    if subject is not None:
        moved, target, queue, priority, gap = subject
        lane = SqliteWaitingLine(work, queue, priority)
        write = partial(_write, work)
        run_without_waiting(
            position.move_job(lane, write, to.where, moved=moved, target=target, gap=gap)
        )


async def _write(work: WriteTransaction, places: Mapping[int, int]) -> None:
    if places:
        work.run("positions.write", places=to_json_param(list(places.items())))


def _renumber(work: WriteTransaction, queue: str) -> int:
    found = work.run("queues.get", name=queue).fetchone()
    ordering, gap = found[1:3] if found else (Ordering.SCHEDULED, GAP)
    if ordering == Ordering.POSITION:
        changed = work.run("positions.renumber", queue=queue, gap=gap).rowcount
    else:
        changed = work.run("positions.renumber_placed", queue=queue, gap=gap).rowcount
    if changed:
        told = {"kind": EventKind.RENUMBERED, "detail": str(changed)}
        work.run("positions.renumbered", queue=queue, now=work.now, **told)
    return changed


class SqliteWaitingLine:
    """The waiting jobs of one queue and priority, found by the index of positions."""

    def __init__(self, work: WriteTransaction, queue: str, priority: int) -> None:
        self._work = work
        self._lane = {"queue": queue, "priority": priority}

    async def position(self, seq: int) -> int:
        return int(self._spot(seq)["position"])

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        asked = {**self._lane, "without": without}
        return self._work.one("positions.lowest", **asked), self._work.one(
            "positions.highest", **asked
        )

    async def before(self, seq: int | None, number: int, *, without: int) -> list[PositionedJob]:
        spot = self._spot(seq)
        bound = 1 if spot["position"] > 0 else _LEAST
        return self._spots("positions.before", bound, spot, number, without)

    async def after(self, seq: int, number: int, *, without: int) -> list[PositionedJob]:
        spot = self._spot(seq)
        bound = -1 if spot["position"] < 0 else _MOST
        return self._spots("positions.after", bound, spot, number, without)

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        spot = self._spot(last)
        del spot["position"]
        found = self._work.run("positions.unplaced", without=without, **self._lane, **spot)
        return [seq for (seq,) in found.fetchall()]

    def _spot(self, seq: int | None) -> dict[str, Any]:
        """Where that job is in the order; before all at 0, if it is None."""
        row = (0, _LEAST, _LEAST)
        if seq is not None:
            row = self._work.run("positions.spot", job=seq).fetchone()
        names = ("position", "available_at", "created_at")
        return {**dict(zip(names, row, strict=True)), "job": seq or 0}

    def _spots(
        self, name: str, bound: int, spot: Mapping[str, Any], number: int, without: int
    ) -> list[PositionedJob]:
        asked = {**self._lane, **spot, "bound": bound, "limit": number, "without": without}
        return [PositionedJob(*row) for row in self._work.run(name, **asked).fetchall()]
