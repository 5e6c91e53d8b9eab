"""State space of the protocol search: numbered lines, workers and worker pools."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, Generic, NamedTuple, TypeVar

from outlast.core.delivery import Delivery
from outlast.core.state import State

from .search_invariants import InvariantBroken, check_line, check_step, check_workers
from .search_store import Line
from .search_workers import Mode, Rules, Step, Worker, other_steps, worker_steps

BITS: Final = 12
NO_WORKER: Final = -1

T = TypeVar("T", bound=Hashable)
Named = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a search starts from."""

    rules: Rules
    deliveries: tuple[Delivery, Delivery]
    cancels: tuple[int, int] = (1, 0)
    workers: int = 3
    crashes: int = 2
    pauses: int = 1


class WorkerPool(NamedTuple):
    """The workers by number, sorted because they are interchangeable, and the faults left."""

    workers: tuple[int, ...]
    crashes: int
    pauses: int

    def with_worker(self, old: int, new: int) -> "WorkerPool":
        workers = list(self.workers)
        workers[workers.index(old)] = new
        return self._replace(workers=tuple(sorted(workers)))


class Numbered(dict[T, int], Generic[T]):
    """Gives every new thing a number, after checking it."""

    def __init__(self, check: Callable[[T], None]) -> None:
        super().__init__()
        self.things: list[T] = []
        self._check = check

    def __missing__(self, thing: T) -> int:
        self._check(thing)
        self[thing] = number = len(self.things)
        self.things.append(thing)
        return number


class World:
    """A state is one integer of three parts: pool, first line, second line.

    No step touches both lines, so the steps on a line depend on (pool, line) alone: that is what
    a search asks for, once each, and every invariant is checked on the way.
    """

    def __init__(self, setting: Setting) -> None:
        self.rules = setting.rules
        self.lines: Numbered[Line] = Numbered(lambda line: check_line(line, self.rules.store))
        self.workers: Numbered[Worker] = Numbered(lambda _: None)
        self.pools: Numbered[WorkerPool] = Numbered(self._check_pool)
        self.steps = cache(self._steps)
        self.loser = cache(self._loser)
        self.start = self._start(setting)

    def on_line(self, number: int, pool_id: int, line_id: int) -> Iterator[Named]:
        """What can happen to line `number`: the new pool and line, in their places in a state."""
        pool, what = self.pools.things[pool_id], ""
        try:
            for old in (NO_WORKER, *dict.fromkeys(pool.workers)):
                for what, line, new, is_over in self.steps(number, old, line_id):
                    after = pool if new == old else pool.with_worker(old, new)
                    after_id = self.pools[self._losing(after, number) if is_over else after]
                    if (after_id, line) != (pool_id, line_id):
                        yield what, state(after_id, 0, line) if number else state(after_id, line, 0)
        except InvariantBroken as broken:
            broken.step = broken.step or f"{what} {number}"
            raise

    def on_pool(self, pool_id: int) -> Iterator[Named]:
        """Crashes, pauses and thaws: the new pool, in its place in a state."""
        pool = self.pools.things[pool_id]
        for old in dict.fromkeys(pool.workers):
            for what, mode, left in self._faults(pool, self.workers.things[old].mode):
                new = self.workers[self.workers.things[old].becomes(mode)]
                yield what, state(self.pools[left.with_worker(old, new)], 0, 0)

    def is_over(self, line_id: int) -> bool:
        return bool(self.lines.things[line_id].tip.ends)

    def ends(self) -> frozenset[tuple[Delivery, State]]:
        """How jobs of each delivery ended."""
        lines = self.lines.things
        return frozenset(
            (line.delivery, end) for line in lines for row in line.rows for end in row.ends
        )

    def _start(self, setting: Setting) -> int:
        lines = zip(setting.deliveries, setting.cancels, strict=True)
        first, second = (self.lines[Line(how, cancels=cancels)] for how, cancels in lines)
        idle = (self.workers[Worker()],) * setting.workers
        return state(self.pools[WorkerPool(idle, setting.crashes, setting.pauses)], first, second)

    def _steps(self, number: int, worker_id: int, line_id: int) -> list[tuple[str, int, int, bool]]:
        line = self.lines.things[line_id]
        if worker_id == NO_WORKER:
            steps = other_steps(self.rules, line)
        else:
            steps = worker_steps(self.rules, self.workers.things[worker_id], number, line)
        return [self._checked(number, line, worker_id, step) for step in steps]

    def _checked(
        self, number: int, before: Line, worker_id: int, step: Step
    ) -> tuple[str, int, int, bool]:
        try:
            check_step(before, step)
            after = self.lines[step.line]
        except InvariantBroken as broken:
            broken.step = f"{step.what} {number}"
            raise
        is_over = before.run is not None and before.run != step.line.run
        new = worker_id if step.worker is None else self.workers[step.worker]
        return step.what, after, new, is_over

    def _losing(self, pool: WorkerPool, number: int) -> WorkerPool:
        return pool._replace(workers=tuple(sorted(self.loser(w, number) for w in pool.workers)))

    def _loser(self, worker_id: int, number: int) -> int:
        return self.workers[self.workers.things[worker_id].loses(number)]

    def _faults(self, pool: WorkerPool, mode: Mode) -> Iterator[tuple[str, Mode, WorkerPool]]:
        if mode is not Mode.CRASHED and pool.crashes:
            yield "crash", Mode.CRASHED, pool._replace(crashes=pool.crashes - 1)
        if mode is Mode.ALIVE and pool.pauses:
            yield "pause", Mode.PAUSED, pool._replace(pauses=pool.pauses - 1)
        if mode is Mode.PAUSED:
            yield "thaw", Mode.ALIVE, pool

    def _check_pool(self, pool: WorkerPool) -> None:
        check_workers(self.workers.things[worker] for worker in pool.workers)


def state(pool: int, first: int, second: int) -> int:
    assert max(first, second) < 1 << BITS
    return pool << 2 * BITS | first << BITS | second
