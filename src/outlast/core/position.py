"""Moves and edits of waiting jobs, and the positions that put a job where it belongs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from outlast.core.ids import JobId
from outlast.core.ordering import distribute_positions, first_position, next_position
from outlast.errors import InvalidArgument

SPACE_PER_JOB: Final = 4
"""Free positions per job that a window needs before its jobs are spread."""

_FIRST_WINDOW: Final = 8
"""Jobs on each side that are spread first if two neighbours leave no free position."""


class Anchor(StrEnum):
    """Where a job goes among the waiting jobs of its queue and priority."""

    FRONT = "front"
    BACK = "back"
    BEFORE = "before"  # directly before the target
    AFTER = "after"  # directly behind the target
    SWAP = "swap"  # the job and the target exchange positions


@dataclass(frozen=True, slots=True)
class MoveTo:
    """Where a job moves; `target` is the job it goes before or behind, or is swapped with."""

    where: Anchor
    target: JobId | None = None

    def __post_init__(self) -> None:
        if (self.target is None) != (self.where in (Anchor.FRONT, Anchor.BACK)):
            raise InvalidArgument(
                f"move to {self.where} has the target {self.target}; give a target with "
                "before, after and swap, and none with front and back"
            )

    def __str__(self) -> str:
        return f"{self.where} {self.target}" if self.target else str(self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit:
    """New values for a waiting job; None leaves a field. Due `at` a time or `delay` from now."""

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
        """Whether the edit changes the due time."""
        return self.delay is not None or self.at is not None

    @property
    def fields(self) -> str:
        """Names of the edited fields, for the event record; it never contains the params."""
        given = {"params": self.params, "priority": self.priority, "delay": self.delay}
        return ", ".join(
            name for name, value in [*given.items(), ("at", self.at)] if value is not None
        )


@dataclass(frozen=True, slots=True)
class PositionedJob:
    """A waiting job, by its `seq`, and its position."""

    seq: int
    position: int


class WaitingLine(Protocol):
    """The waiting jobs of one queue and priority in claim order, as a store reads them.

    The job `without` is ignored. The methods are coroutines because a server may answer them; see
    `sync_coroutine` for stores that never suspend.
    """

    async def position(self, seq: int) -> int:
        """Return the position of that job."""
        ...

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        """Return the lowest and the highest position other than 0."""
        ...

    async def before(
        self, seq: int | None, number: int, *, without: int
    ) -> Sequence[PositionedJob]:
        """Return up to `number` jobs before that one with a position of its sign, nearest first.

        With None instead of a job, return the nearest jobs with a negative position.
        """
        ...

    async def after(self, seq: int, number: int, *, without: int) -> Sequence[PositionedJob]:
        """Return up to `number` jobs behind that one with a position of its sign, nearest first."""
        ...

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        """Return the jobs at position 0 in claim order, up to and including `last`."""
        ...


Write = Callable[[Mapping[int, int]], Awaitable[None]]
"""Sets positions by `seq`; later reads of the waiting line see them."""

_Sides = tuple[Sequence[PositionedJob], Sequence[PositionedJob]]
_Look = Callable[[int], Awaitable[_Sides]]
"""Returns up to that many jobs on each side of a position, nearest first."""

_NO_JOB: Final = 0
"""A `seq` that no job has."""


async def move_job(
    lane: WaitingLine, write: Write, where: Anchor, *, moved: int, target: int | None, gap: int
) -> None:
    """Move a job; the order of all other jobs stays.

    It writes one row, or two for a swap, unless neighbours must be spread or jobs without a
    position need one. A moved job never gets position 0.
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
                await write(await _unique_position(lane, each, gap))
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


async def _unique_position(lane: WaitingLine, seq: int, gap: int) -> Mapping[int, int]:
    """Return the position that makes the job's position unique; empty if it is unique."""
    at = await lane.position(seq)
    if at == 0:
        line = await lane.unplaced(seq, without=_NO_JOB)
        return await _numbered(lane, line, gap, without=_NO_JOB)

    async def look(number: int) -> _Sides:
        before = await lane.before(seq, number, without=_NO_JOB)
        return before, await lane.after(seq, number, without=_NO_JOB)

    before, after = await look(1)
    is_tied = any(each.position == at for each in (*before, *after))
    return await _fit([seq], look, sign=at, gap=gap) if is_tied else {}


async def _numbered(
    lane: WaitingLine, line: Sequence[int], gap: int, *, without: int
) -> Mapping[int, int]:
    """Return positions for jobs without one: behind the negative ones, before the rest at 0."""

    async def look(number: int) -> _Sides:
        return await lane.before(None, number, without=without), []

    return await _fit(line, look, sign=-1, gap=gap)


async def _fit(line: Sequence[int], look: _Look, *, sign: int, gap: int) -> Mapping[int, int]:
    """Return positions for the jobs of `line` between the neighbours that `look` returns.

    If there is no free position, neighbours are spread too: the window doubles until it has
    enough, or reaches an end of the line, which has no bound.
    """
    window = 0
    while (places := _spread(line, *await look(window + 1), window, sign, gap)) is None:
        window = max(_FIRST_WINDOW, 2 * window)
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
    ahead = [each.seq for each in reversed(before[:window])]
    jobs = [*ahead, *line, *(each.seq for each in after[:window])]
    needed = 1 if len(jobs) == 1 else SPACE_PER_JOB * len(jobs)
    if low is not None and high is not None and high - low - 1 < needed:
        return None
    step = max(gap, SPACE_PER_JOB) if window else gap
    return dict(zip(jobs, distribute_positions(len(jobs), low, high, step), strict=True))
