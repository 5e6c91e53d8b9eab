"""Giving a job that waits another place, or other params, and making positions even."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from outlast.clock import to_micros
from outlast.core import position
from outlast.core.decide import Change
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.ordering import GAP, Ordering
from outlast.core.position import JobEdit, MoveTo, PositionedJob
from outlast.core.state import State
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.postgres.verbs.queue import lock_queues
from outlast.store.rows.jobs import LAST, to_json_param

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


class LockedWaitingJob(Protocol):
    """A waiting job whose row is locked."""

    @property
    def job(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def token(self) -> int: ...


async def rearrange(work: UnitOfWork, change: Change, found: LockedWaitingJob) -> bool:
    """Write the edit or the place of a change of that job, whose queue is locked.

    False, and nothing is written, if its target does not wait beside it, or if its params were
    given to a run already.
    """
    if change.edit is not None:
        return await _edit(work, change.edit, change.move.to, found)
    assert change.place is not None
    return await _move(work, change.place, found)


async def behind(work: UnitOfWork, queue: str, priority: int) -> int:
    """The position of a job that is new there; for a `position` queue that is locked."""
    return int(await work.one("positions.last", queue=queue, priority=priority))


async def normalise(work: UnitOfWork, queue: str) -> int:
    await lock_queues(work, [queue])
    ordering, gap = await _kind(work, queue)
    name = "positions.normalise" if ordering == Ordering.POSITION else "positions.normalise_placed"
    changed = await work.run(name, queue=queue, gap=gap)
    if changed:
        told = {"kind": EventKind.NORMALISED, "reason": None, "detail": str(changed)}
        await work.run("queues.record_event", name=queue, now=work.now, **told)
    return changed


async def _edit(work: UnitOfWork, edit: JobEdit, state: State, found: LockedWaitingJob) -> bool:
    if edit.params is not None:
        if found.token > 0:
            return False
        await work.run("positions.params", job=found.job, params=edit.params)
    due = _due(edit, work.now)
    priority, position = found.priority, found.position
    if edit.priority not in (None, found.priority):
        priority = edit.priority
        position = await behind(work, found.queue, priority)
    values = {"priority": priority, "position": position, "due": due}
    await work.run("positions.edit", job=found.job, state=state, **values)
    if due is not None and due <= work.now:
        work.queues.add(found.queue)
    return True


def _due(edit: JobEdit, now: int) -> int | None:
    due = None if edit.at is None else to_micros(edit.at)
    if edit.delay is not None:
        due = now + edit.delay // MICROSECOND
    if due is not None and due > LAST:
        raise ValueError("it is due after the year 9999")
    return due


async def _move(work: UnitOfWork, to: MoveTo, found: LockedWaitingJob) -> bool:
    lane = PostgresWaitingLine(work, found.queue, found.priority)
    lane.know(found.seq, found.job)
    target = None
    if to.target is not None:
        target = await _target(work, to.target, found)
        if target is None:
            return False
        lane.know(target, to.target)
    _, gap = await _kind(work, found.queue)
    await position.move_job(lane, lane.write, to.where, moved=found.seq, target=target, gap=gap)
    return True


async def _target(work: UnitOfWork, target: str, found: LockedWaitingJob) -> int | None:
    if not is_uuid(target) or target == found.job:
        return None
    beside = {"queue": found.queue, "priority": found.priority}
    seq: int | None = await work.one("positions.target", target=target, **beside)
    return seq


async def _kind(work: UnitOfWork, queue: str) -> tuple[str, int]:
    found = await work.rows("queues.get", name=queue, now=work.now)
    return (found[0][1], found[0][2]) if found else (Ordering.SCHEDULED, GAP)


class PostgresWaitingLine:
    """The waiting jobs of one queue and priority, found by the index of positions.

    The queue is locked, so nobody else places anybody; whoever is claimed meanwhile is gone, and a
    position for it is written to nobody.
    """

    def __init__(self, work: UnitOfWork, queue: str, priority: int) -> None:
        self._work = work
        self._lane = {"queue": queue, "priority": priority}
        self._ids: dict[int, str] = {}

    def know(self, seq: int, job: str) -> None:
        """Whom that number means: rows are found by id."""
        self._ids[seq] = job

    async def write(self, places: Mapping[int, int]) -> None:
        if places:
            by_id = {self._ids[seq]: position for seq, position in places.items()}
            await self._work.run("positions.set", jobs=list(by_id), places=to_json_param(by_id))

    async def position(self, seq: int) -> int:
        return int((await self._spot(seq))["position"])

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        [found] = await self._work.rows("positions.bounds", without=without, **self._lane)
        return found[0], found[1]

    async def before(self, seq: int | None, number: int, *, without: int) -> list[PositionedJob]:
        spot = await self._spot(seq)
        bound = 1 if spot["position"] > 0 else _LEAST
        return await self._spots("positions.before", bound, spot, number, without)

    async def after(self, seq: int, number: int, *, without: int) -> list[PositionedJob]:
        spot = await self._spot(seq)
        bound = -1 if spot["position"] < 0 else _MOST
        return await self._spots("positions.after", bound, spot, number, without)

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        asked = {**self._lane, "last": self._ids[last], "without": without}
        found = await self._work.rows("positions.unplaced", **asked)
        for seq, job in found:
            self.know(seq, job)
        return [seq for seq, _ in found]

    async def _spot(self, seq: int | None) -> dict[str, Any]:
        """Where that job is in the order; before all at 0, if it is None."""
        row: Any = (0, _LEAST, _LEAST)
        if seq is not None:
            [row] = await self._work.rows("positions.order_of", job=self._ids[seq])
        names = ("position", "available_at", "created_at")
        return {**dict(zip(names, row, strict=True)), "seq": seq or 0}

    async def _spots(
        self, name: str, bound: int, spot: Mapping[str, Any], number: int, without: int
    ) -> list[PositionedJob]:
        asked = {**self._lane, **spot, "bound": bound, "limit": number, "without": without}
        found = await self._work.rows(name, **asked)
        for seq, _, job in found:
            self.know(seq, job)
        return [PositionedJob(seq, position) for seq, position, _ in found]
