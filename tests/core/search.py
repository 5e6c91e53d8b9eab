"""An exhaustive search of all that two jobs and their workers can go through (G10)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from .invariants import Broken
from .world import BITS, Named, Setting, World

MASK: Final = (1 << BITS) - 1
PROGRESS: Final = ("thaw", "learn", "arrive", "send succeeded", "due", "lapse", "reclaim", "claim")
"""What leads on once nothing more goes wrong; the dead and their supervisors stay silent."""


@dataclass(frozen=True, slots=True)
class Found:
    """How much was searched."""

    states: int
    steps: int


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

    def __missing__(self, part: int) -> list[int]:
        moves = list(self.work_out(part))
        leads = [(PROGRESS.index(what), to) for what, to in moves if what in PROGRESS]
        self.leads[part] = min(leads, default=(len(PROGRESS), -1))
        self[part] = found = list({to for _, to in moves})
        return found
