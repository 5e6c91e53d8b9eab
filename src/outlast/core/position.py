"""What may be changed of a job that waits, and the positions that bring it to its new place."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from outlast.core.ids import JobId
from outlast.core.ordering import distribute_positions, first_position, next_position
from outlast.errors import InvalidArgument

ROOM: Final = 4
"""Positions there must be for each job of a window before it is worth spreading."""

WINDOW: Final = 8
"""How many jobs on each side are spread first when there is no room between two."""


class Anchor(StrEnum):
    """Which place among the waiting jobs of its queue and priority."""

    FRONT = "front"
    BACK = "back"
    BEFORE = "before"  # right before the target
    AFTER = "after"  # right behind it
    SWAP = "swap"  # where the target is, which comes to where the job was


@dataclass(frozen=True, slots=True)
class MoveTo:
    """Where a job is to go; `target` is whom it goes before, behind, or changes places with."""

    where: Anchor
    target: JobId | None = None

    def __post_init__(self) -> None:
        if (self.target is None) != (self.where in (Anchor.FRONT, Anchor.BACK)):
            raise InvalidArgument(
                f"place {self.where} with target {self.target}; front and back have "
                "none, before, after and swap need one"
            )

    def __str__(self) -> str:
        return f"{self.where} {self.target}" if self.target else str(self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit:
    """What is to be another; None leaves it as it is. Due `at` a moment, or `delay` from now."""

    params: str | None = None
    priority: int | None = None
    delay: timedelta | None = None
    at: datetime | None = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.at is not None:
            raise InvalidArgument(
                "delay and at were both given; a job is due once, so give one of them"
            )
        if not self.fields:
            raise InvalidArgument("nothing to edit; give params, priority, delay or at")

    @property
    def is_due_time(self) -> bool:
        """Whether the job is to be due at another time."""
        return self.delay is not None or self.at is not None

    @property
    def fields(self) -> str:
        """The names of what is given: the record of the edit, which never tells the params."""
        given = {"params": self.params, "priority": self.priority, "delay": self.delay}
        return ", ".join(
            name for name, value in [*given.items(), ("at", self.at)] if value is not None
        )


@dataclass(frozen=True, slots=True)
class PositionedJob:
    """A waiting job, by its `seq`, and the position it has."""

    seq: int
    position: int


class WaitingLine(Protocol):
    """The waiting jobs of one queue and priority in claim order, as a store finds them.

    A job named `without` is looked through as if it were not there. Asked by coroutines, because a
    server answers them; see `at_once` for whoever need not wait.
    """

    async def position(self, seq: int) -> int:
        """The position of that job."""
        ...

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        """The lowest and the highest position other than 0."""
        ...

    async def before(
        self, seq: int | None, number: int, *, without: int
    ) -> Sequence[PositionedJob]:
        """The nearest before that job whose position has the same sign, the nearest first.

        None stands for 0: the nearest of those with a negative position.
        """
        ...

    async def after(self, seq: int, number: int, *, without: int) -> Sequence[PositionedJob]:
        """The nearest behind that job whose position has the same sign, the nearest first."""
        ...

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        """The jobs at position 0 in claim order, up to that one, which is the last."""
        ...


Write = Callable[[Mapping[int, int]], Awaitable[None]]
"""Gives each job, by its `seq`, a position; what the lane finds afterwards has it."""

_Sides = tuple[Sequence[PositionedJob], Sequence[PositionedJob]]
_Look = Callable[[int], Awaitable[_Sides]]
"""The nearest so many on each side of a place, the nearest first."""

NOBODY: Final = 0
"""A `seq` that no job has."""


async def move_job(
    lane: WaitingLine, write: Write, where: Anchor, *, moved: int, target: int | None, gap: int
) -> None:
    """Bring `moved` to its place; the order of all others stays.

    A few rows are written: one, or two for a swap, unless neighbours must make room or jobs
    without a position must get one. That is never 0.
    """
    match where:
        case Anchor.FRONT:
            lowest, _ = await lane.ends(without=moved)
            await write({moved: first_position(lowest, gap)})
        case Anchor.BACK:
            _, highest = await lane.ends(without=moved)
            await write({moved: next_position(highest, gap)})
        case Anchor.SWAP:
            assert target is not None
            for each in (moved, target):
                await write(await _apart(lane, each, gap))
            theirs, own = await lane.position(target), await lane.position(moved)
            await write({moved: theirs, target: own})
        case Anchor.BEFORE | Anchor.AFTER:
            assert target is not None
            await write(await _beside(lane, where, moved, target, gap))


async def _beside(
    lane: WaitingLine, where: Anchor, moved: int, target: int, gap: int
) -> Mapping[int, int]:
    at = await lane.position(target)
    if at == 0:
        line = await lane.unplaced(target, without=moved)
        line.insert(len(line) - (where is Anchor.BEFORE), moved)
        return await _numbered(lane, line, gap, without=moved)

    async def look(number: int) -> _Sides:
        before = await lane.before(target, number, without=moved)
        after = await lane.after(target, number, without=moved)
        own = PositionedJob(target, at)
        return (before, [own, *after]) if where is Anchor.BEFORE else ([own, *before], after)

    return await _fit([moved], look, sign=at, gap=gap)


async def _apart(lane: WaitingLine, seq: int, gap: int) -> Mapping[int, int]:
    """What gives the job a position that is its own; nothing, if it has one."""
    at = await lane.position(seq)
    if at == 0:
        line = await lane.unplaced(seq, without=NOBODY)
        return await _numbered(lane, line, gap, without=NOBODY)

    async def look(number: int) -> _Sides:
        before = await lane.before(seq, number, without=NOBODY)
        return before, await lane.after(seq, number, without=NOBODY)

    before, after = await look(1)
    is_tied = any(spot.position == at for spot in (*before, *after))
    return await _fit([seq], look, sign=at, gap=gap) if is_tied else {}


async def _numbered(
    lane: WaitingLine, line: Sequence[int], gap: int, *, without: int
) -> Mapping[int, int]:
    """Positions for jobs that had none: behind the negative ones, before all still without."""

    async def look(number: int) -> _Sides:
        return await lane.before(None, number, without=without), []

    return await _fit(line, look, sign=-1, gap=gap)


async def _fit(line: Sequence[int], look: _Look, *, sign: int, gap: int) -> Mapping[int, int]:
    """Positions for the jobs of `line`, between those that `look` finds, who make room if need be.

    The window grows until it has room enough, or reaches the outer end, where there is no bound.
    So room is made where it is wanted, and the cost is small even when all come to one place.
    """
    window = 0
    while (places := _spread(line, *await look(window + 1), window, sign, gap)) is None:
        window = max(WINDOW, 2 * window)
    return places


def _spread(
    line: Sequence[int],
    before: Sequence[PositionedJob],
    after: Sequence[PositionedJob],
    window: int,
    sign: int,
    gap: int,
) -> Mapping[int, int] | None:
    low = before[window].position if len(before) > window else None if sign < 0 else 0
    high = after[window].position if len(after) > window else None if sign > 0 else 0
    ahead = [spot.seq for spot in reversed(before[:window])]
    jobs = [*ahead, *line, *(spot.seq for spot in after[:window])]
    needed = 1 if len(jobs) == 1 else ROOM * len(jobs)
    if low is not None and high is not None and high - low - 1 < needed:
        return None
    step = max(gap, ROOM) if window else gap
    return dict(zip(jobs, distribute_positions(len(jobs), low, high, step), strict=True))
