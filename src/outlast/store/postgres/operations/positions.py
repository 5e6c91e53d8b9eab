"""Positions of waiting jobs: move, edit, renumber."""

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
from outlast.store.postgres.operations.base import PostgresOperations, require_open_store
from outlast.store.postgres.operations.queues import lock_queues, record_queue_event
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows.jobs import LAST, to_json_param

_MIN_POSITION: Final = -(2**63)
_MAX_POSITION: Final = 2**63 - 1


class PostgresPositionOperations(PostgresOperations):
    """Renumber the positions of a queue."""

    async def renumber(self, queue: str) -> int:
        """Renumber the positions of a queue by its gap; return the number of changed jobs."""
        return await self._pool.transact(require_open_store(lambda work: _renumber(work, queue)))


class LockedWaitingJob(Protocol):
    """A waiting job whose row is locked."""

    @property
    def job(self) -> str:
        """The id of the job."""
        ...

    @property
    def seq(self) -> int:
        """The sequence number of the job."""
        ...

    @property
    def queue(self) -> str:
        """The queue of the job."""
        ...

    @property
    def priority(self) -> int:
        """The priority of the job."""
        ...

    @property
    def position(self) -> int:
        """The position of the job."""
        ...

    @property
    def token(self) -> int:
        """The token of its last claim, 0 if there was none."""
        ...


async def move_or_edit(work: PostgresUnitOfWork, change: Change, locked: LockedWaitingJob) -> bool:
    """Write the edit or the move of a change; the queue of the job is locked.

    Returns False, with nothing written, if the target does not wait in the same queue with the
    same priority, or if new params come after the first claim.
    """
    if change.edit is not None:
        return await _edit(work, change.edit, change.move.to, locked)
    assert change.place is not None
    return await _move(work, change.place, locked)


async def last_position(work: PostgresUnitOfWork, queue: str, priority: int) -> int:
    """Return the position of a job that is new in a queue; a `position` queue is locked."""
    return int(await work.one("positions.last", queue=queue, priority=priority))


async def _renumber(work: PostgresUnitOfWork, queue: str) -> int:
    await lock_queues(work, [queue])
    ordering, gap = await _ordering(work, queue)
    name = "positions.renumber" if ordering == Ordering.POSITION else "positions.renumber_placed"
    changed = await work.run(name, queue=queue, gap=gap)
    if changed:
        await record_queue_event(work, queue, EventKind.RENUMBERED, None, str(changed))
    return changed


async def _edit(
    work: PostgresUnitOfWork, edit: JobEdit, state: State, locked: LockedWaitingJob
) -> bool:
    if edit.params is not None:
        if locked.token > 0:
            return False
        await work.run("positions.params", job=locked.job, params=edit.params)
    due = _due(edit, work.now)
    priority, position = locked.priority, locked.position
    if edit.priority not in (None, locked.priority):
        priority = edit.priority
        position = await last_position(work, locked.queue, priority)
    values = {"priority": priority, "position": position, "due": due}
    await work.run("positions.edit", job=locked.job, state=state, **values)
    if due is not None and due <= work.now:
        work.queues.add(locked.queue)
    return True


def _due(edit: JobEdit, now: int) -> int | None:
    due = None if edit.at is None else to_micros(edit.at)
    if edit.delay is not None:
        due = now + edit.delay // MICROSECOND
    if due is not None and due > LAST:
        raise ValueError("it is due after the year 9999")
    return due


async def _move(work: PostgresUnitOfWork, to: MoveTo, locked: LockedWaitingJob) -> bool:
    line = PostgresWaitingLine(work, locked.queue, locked.priority)
    line.know(locked.seq, locked.job)
    target = None
    if to.target is not None:
        target = await _target(work, to.target, locked)
        if target is None:
            return False
        line.know(target, to.target)
    _, gap = await _ordering(work, locked.queue)
    await position.move_job(line, line.write, to.where, moved=locked.seq, target=target, gap=gap)
    return True


async def _target(work: PostgresUnitOfWork, target: str, locked: LockedWaitingJob) -> int | None:
    if not is_uuid(target) or target == locked.job:
        return None
    beside = {"queue": locked.queue, "priority": locked.priority}
    seq: int | None = await work.one("positions.target", target=target, **beside)
    return seq


async def _ordering(work: PostgresUnitOfWork, queue: str) -> tuple[str, int]:
    found = await work.rows("queues.get", name=queue, now=work.now)
    return (found[0][1], found[0][2]) if found else (Ordering.SCHEDULED, GAP)


class PostgresWaitingLine:
    """The waiting line of one queue and priority, read by the index of positions.

    The queue is locked, so no other transaction assigns positions. A job that is claimed meanwhile
    has no waiting row, and the write of its position changes nothing.
    """

    def __init__(self, work: PostgresUnitOfWork, queue: str, priority: int) -> None:
        self._work = work
        self._line = {"queue": queue, "priority": priority}
        self._ids: dict[int, str] = {}

    def know(self, seq: int, job: str) -> None:
        """Remember the id of a job: rows are read by id."""
        self._ids[seq] = job

    async def write(self, positions: Mapping[int, int]) -> None:
        """Write positions by sequence number."""
        if positions:
            by_id = {self._ids[seq]: position for seq, position in positions.items()}
            await self._work.run("positions.set", jobs=list(by_id), positions=to_json_param(by_id))

    async def position(self, seq: int) -> int:
        """Return the position of a job."""
        return int((await self._order_of(seq))["position"])

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        """Return the lowest and the highest position, without one job."""
        [found] = await self._work.rows("positions.bounds", without=without, **self._line)
        return found[0], found[1]

    async def before(self, seq: int | None, number: int, *, without: int) -> list[PositionedJob]:
        """Return up to `number` jobs before a job, nearest first."""
        order = await self._order_of(seq)
        bound = 1 if order["position"] > 0 else _MIN_POSITION
        return await self._neighbours("positions.before", bound, order, number, without)

    async def after(self, seq: int, number: int, *, without: int) -> list[PositionedJob]:
        """Return up to `number` jobs after a job, nearest first."""
        order = await self._order_of(seq)
        bound = -1 if order["position"] < 0 else _MAX_POSITION
        return await self._neighbours("positions.after", bound, order, number, without)

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        """Return the jobs without a position up to a job, in claim order."""
        values = {**self._line, "last": self._ids[last], "without": without}
        found = await self._work.rows("positions.unplaced", **values)
        for seq, job in found:
            self.know(seq, job)
        return [seq for seq, _ in found]

    async def _order_of(self, seq: int | None) -> dict[str, Any]:
        """Return the sort columns of a job; None stands before all jobs at position 0."""
        row: Any = (0, _MIN_POSITION, _MIN_POSITION)
        if seq is not None:
            [row] = await self._work.rows("positions.order_of", job=self._ids[seq])
        names = ("position", "available_at", "created_at")
        return {**dict(zip(names, row, strict=True)), "seq": seq or 0}

    async def _neighbours(
        self, name: str, bound: int, order: Mapping[str, Any], number: int, without: int
    ) -> list[PositionedJob]:
        values = {**self._line, **order, "bound": bound, "limit": number, "without": without}
        found = await self._work.rows(name, **values)
        for seq, _, job in found:
            self.know(seq, job)
        return [PositionedJob(seq, position) for seq, position, _ in found]
