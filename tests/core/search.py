"""An exhaustive search of everything two jobs and a few workers can go through (G10).

A state is (crew, line, line). No step touches both lines, so the steps on one line are worked out
once per (crew, line) and the search itself only combines numbers.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from holdfast.core.delivery import Delivery

from .crew import Mode, Worker
from .invariants import Broken, check_line, check_step, check_workers
from .lineage import Line
from .steps import settle, Rules, by_worker, by_world

BITS: Final = 14
MASK: Final = (1 << BITS) - 1
PROGRESS: Final = (
    "thaw", "answer", "arrive", "send succeeded", "due", "lapse", "see", "reclaim", "claim",
)  # fmt: skip
"""Which step leads on when nothing more goes wrong and no dead worker says another word."""


class Crew(NamedTuple):
    """The workers by number, sorted since they are interchangeable, and what may yet go wrong."""

    workers: tuple[int, ...]
    crashes: int
    pauses: int


class Move(NamedTuple):
    what: str
    crew: int
    line: int


@dataclass(frozen=True)
class Found:
    states: int
    steps: int


class Violation(AssertionError):
    """The invariant that broke, and the shortest way there."""

    def __init__(self, reason: str, trace: Sequence[str]) -> None:
        super().__init__(f"{reason}, after: {', '.join(trace)}")
        self.reason = reason
        self.trace = trace


class Numbers(dict[Hashable, int]):
    """Gives every distinct thing a number, and the thing back for its number."""

    def __init__(self) -> None:
        super().__init__()
        self.things = []

    def __missing__(self, thing):
        self[thing] = number = len(self.things)
        self.things.append(thing)
        return number


class Search:
    def __init__(self, rules, deliveries, *, workers, crashes, pauses):
        self.rules = rules
        self.lines = Numbers()
        self.workers = Numbers()
        self.crews = Numbers()
        self.moves = ({}, {})
        self.crew_moves = {}
        self.checked = set()
        self.work = {}
        a, b = (self.lines[Line(d)] for d in deliveries)
        crew = self.crews[Crew((self.workers[Worker()],) * workers, crashes, pauses)]
        self.start = crew << 2 * BITS | a << BITS | b
        self.parents = {}
        self.steps = 0

    def run(self):
        parents = self.parents = {self.start: None}
        order = [self.start]
        steps = 0
        zero, one = self.moves
        for key in order:
            crew, a, b = key >> 2 * BITS, key >> BITS & MASK, key & MASK
            m = zero.get((crew, a))
            if m is None:
                m = zero[crew, a] = self.moves_on(0, crew, a, key)
            for move in m:
                new = move.crew << 2 * BITS | move.line << BITS | b
                if new not in parents:
                    parents[new] = key
                    order.append(new)
            steps += len(m)
            m = one.get((crew, b))
            if m is None:
                m = one[crew, b] = self.moves_on(1, crew, b, key)
            low = a << BITS
            for move in m:
                new = move.crew << 2 * BITS | low | move.line
                if new not in parents:
                    parents[new] = key
                    order.append(new)
            steps += len(m)
            m = self.crew_moves.get(crew)
            if m is None:
                m = self.crew_moves[crew] = self.moves_of(crew)
            low |= b
            for move in m:
                new = move.crew << 2 * BITS | low
                if new not in parents:
                    parents[new] = key
                    order.append(new)
            steps += len(m)
        return len(order), steps

    def moves_on(self, number, crew_id, line_id, key):
        crew = self.crews.things[crew_id]
        out = {}
        for w in dict.fromkeys(crew.workers):
            for what, l2, w2 in self.working(w, number, line_id):
                out.setdefault((self.settled(self.replaced(crew, w, w2),number,l2,line_id), l2), what)
        line = self.lines.things[line_id]
        for what, after in by_world(self.rules, line):
            check_step(what, line, after)
            l2=self.line(after)
            out.setdefault((self.settled(crew_id,number,l2,line_id), l2), what)
        out.pop((crew_id, line_id), None)
        return [Move(what, c, l) for (c, l), what in out.items()]

    def working(self, w, number, line_id):
        k = (w, number, line_id)
        if k not in self.work:
            line = self.lines.things[line_id]
            res = []
            for what, after, worker in by_worker(self.rules, self.workers.things[w], number, line):
                check_step(what, line, after)
                res.append((what, self.line(after), self.workers[worker]))
            self.work[k] = res
        return self.work[k]

    def line(self, line):
        if line not in self.lines:
            check_line(line, self.rules.store)
        return self.lines[line]

    def replaced(self, crew, old, new, crashes=0, pauses=0):
        ws = list(crew.workers)
        ws.remove(old)
        ws.append(new)
        ws.sort()
        c2 = Crew(tuple(ws), crew.crashes - crashes, crew.pauses - pauses)
        if c2 not in self.crews:
            check_workers([self.workers.things[w] for w in c2.workers])
        return self.crews[c2]

    def moves_of(self, crew_id):
        crew = self.crews.things[crew_id]
        out = []
        for w in dict.fromkeys(crew.workers):
            worker = self.workers.things[w]
            if worker.mode is not Mode.CRASHED and crew.crashes:
                out.append(Move("crash", self.replaced(crew, w, self.workers[Worker(Mode.CRASHED, tuple(h for h in worker.held if h.snapshot))], 1), 0))
            if worker.mode is Mode.ALIVE and crew.pauses:
                out.append(Move("pause", self.replaced(crew, w, self.workers[worker._replace(mode=Mode.PAUSED)], 0, 1), 0))
            if worker.mode is Mode.PAUSED:
                out.append(Move("thaw", self.replaced(crew, w, self.workers[worker._replace(mode=Mode.ALIVE)]), 0))
        return out

    def settled(self, crew_id, number, line_id, old):
        if line_id == old: return crew_id
        k = ("s", crew_id, number, line_id)
        if k not in self.work:
            crew = self.crews.things[crew_id]
            line = self.lines.things[line_id]
            ws = [self.workers[settle(self.workers.things[w], number, line)] for w in crew.workers]
            self.work[k] = self.crews[crew._replace(workers=tuple(sorted(ws)))]
        return self.work[k]
