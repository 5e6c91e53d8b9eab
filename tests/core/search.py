"""An exhaustive search of all that two jobs and their workers can go through (G10)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from outlast.core.delivery import Delivery
from outlast.core.state import State

from .search_invariants import InvariantBroken
from .search_model import BITS, Named, Setting, World

MASK: Final = (1 << BITS) - 1
PROGRESS: Final = ("thaw", "learn", "arrive", "send succeeded", "due", "expire", "reclaim", "claim")
"""What leads on once nothing more goes wrong; dead workers and their supervisors take no step."""


@dataclass(frozen=True, slots=True)
class Found:
    """How much was searched."""

    states: int
    steps: int
    happened: frozenset[str]  # which kinds of step
    ends: frozenset[tuple[Delivery, State]]  # how jobs ended, by their delivery


class Violation(AssertionError):
    """An invariant that does not hold, and the shortest way to where it breaks."""

    def __init__(self, invariant: str, trace: list[str]) -> None:
        super().__init__(f"not so: {invariant}\nafter: {', '.join(trace)}")
        self.invariant = invariant
        self.trace = trace


def search(setting: Setting) -> Found:
    """Visit every state, and see that all jobs can end from each; Violation otherwise."""
    searched = Search(setting)
    found = searched.run()
    searched.check_all_can_end()
    return found


class Moves(dict[int, list[int]]):
    """Where a part of the state can go, worked out when first asked."""

    def __init__(self, work_out: Callable[[int], Iterable[Named]]) -> None:
        super().__init__()
        self.work_out = work_out
        self.leads: dict[int, tuple[int, int]] = {}
        self.happened: set[str] = set()

    def __missing__(self, part: int) -> list[int]:
        moves = list(self.work_out(part))
        self.happened.update(what for what, _ in moves)
        leads = [(PROGRESS.index(what), to) for what, to in moves if what in PROGRESS]
        self.leads[part] = min(leads, default=(len(PROGRESS), -1))
        self[part] = found = list({to for _, to in moves})
        return found


class Search:
    """Every state met, each with the one it was first reached from."""

    def __init__(self, setting: Setting) -> None:
        self.world = world = World(setting)
        self.first = Moves(lambda part: world.on_line(0, part >> BITS, part & MASK))
        self.second = Moves(lambda part: world.on_line(1, part >> BITS, part & MASK))
        self.alone = Moves(world.on_pool)
        self.parents = {world.start: -1}

    def run(self) -> Found:
        """Visit every state, breadth first."""
        parents, order, steps = self.parents, [self.world.start], 0
        for key in order:
            for moves, rest in self._moves(key):
                steps += len(moves)
                for part in moves:
                    new = part | rest
                    if new not in parents:
                        parents[new] = key
                        order.append(new)
        happened = self.first.happened | self.second.happened | self.alone.happened
        return Found(len(order), steps, frozenset(happened), self.world.ends())

    def check_all_can_end(self) -> None:
        """From every state visited, with no more faults, all jobs come to an end."""
        ending: set[int] = set()
        for visited in self.parents:
            key, path = visited, dict[int, None]()
            while key not in ending and not self._is_over(key):
                path[key] = None
                key = self._lead(key)
                if key < 0 or key in path:
                    raise Violation("every job can come to its end", self._trace(visited))
            ending.update(path)

    def _moves(self, key: int) -> tuple[tuple[list[int], int], ...]:
        pool, a, b = key >> 2 * BITS, key >> BITS & MASK, key & MASK
        try:
            return (
                (self.first[pool << BITS | a], b),
                (self.second[pool << BITS | b], a << BITS),
                (self.alone[pool], a << BITS | b),
            )
        except InvariantBroken as broken:
            raise Violation(broken.invariant, [*self._trace(key), broken.step]) from broken

    def _lead(self, key: int) -> int:
        """The state after the next step that leads on; negative if there is none."""
        pool, a, b = key >> 2 * BITS, key >> BITS & MASK, key & MASK
        (_, part), rest = min(
            (self.first.leads[pool << BITS | a], b),
            (self.second.leads[pool << BITS | b], a << BITS),
            (self.alone.leads[pool], a << BITS | b),
        )
        return part | rest if part >= 0 else -1

    def _is_over(self, key: int) -> bool:
        return self.world.is_over(key >> BITS & MASK) and self.world.is_over(key & MASK)

    def _trace(self, key: int) -> list[str]:
        trace: list[str] = []
        while key != self.world.start:
            before = self.parents[key]
            trace.append(next(what for what, to in self._named(before) if to == key))
            key = before
        return trace[::-1]

    def _named(self, key: int) -> Iterator[Named]:
        pool, a, b = key >> 2 * BITS, key >> BITS & MASK, key & MASK
        yield from ((f"{what} 0", to | b) for what, to in self.world.on_line(0, pool, a))
        yield from ((f"{what} 1", to | a << BITS) for what, to in self.world.on_line(1, pool, b))
        yield from ((what, to | a << BITS | b) for what, to in self.world.on_pool(pool))
