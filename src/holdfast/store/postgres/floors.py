"""Where a worker may begin to look: what lies before was taken, and only its remains are left."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

SLOW: Final = 0.004
PER_JOB: Final = 0.00003
"""Seconds at the server: a claim that takes longer than this, and this for each job, is slow."""

SPARING: Final = 10
"""A full look is repeated when so many times its own duration have passed."""


class Floors:
    """Remembers, for each queue whose claims are slow, up to where each type was taken.

    Rows that were taken stay in the index until they are vacuumed away, which a transaction held
    open anywhere prevents; every full look goes through them all. The price: what comes below a
    floor meanwhile, at the same priority, is late by up to ten times the duration of a full look.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._queues: dict[str, _Floor] = {}

    def of(self, queue: str, types: Sequence[str]) -> list[bytes]:
        """Where to begin for each type; empty for a full look."""
        floor = self._queues.get(queue)
        if floor is None or self._time() >= floor.until:
            return [b""] * len(types)
        return [floor.types.get(kind, b"") for kind in types]

    def learn(
        self, queue: str, types: Sequence[str], lasts: Sequence[bytes | None], took: int,
        seconds: float, *, was_full: bool,
    ) -> None:  # fmt: skip
        """A claim of these types reached so far, and took so long."""
        floor = self._queues.get(queue)
        if was_full:
            is_slow = seconds > SLOW + PER_JOB * took
            if not is_slow:
                self._queues.pop(queue, None)
                return
            floor = self._queues[queue] = _Floor(slow=1 + (floor.slow if floor else 0))
            if floor.slow > 1:  # once may be chance
                floor.until = self._time() + SPARING * seconds
        if floor is not None:
            reached = zip(types, lasts, strict=False)
            floor.types.update(
                {k: max(last, floor.types.get(k, b"")) for k, last in reached if last}
            )


@dataclass(slots=True)
class _Floor:
    slow: int
    until: float = 0.0
    types: dict[str, bytes] = field(default_factory=dict)
