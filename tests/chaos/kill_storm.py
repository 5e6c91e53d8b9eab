"""Jobs by the thousand while whole workers are killed, and what the records say afterwards."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from .ledger import Ledger, Run
from .worker_tree import WorkerTree, until, worker_trees

TREES: Final = 3
CONCURRENCY: Final = 4
MORE: Final = TREES * CONCURRENCY
KINDS: Final = (*("brief", "threaded", "paying", "chained") * 5, "once")
LONGEST: Final = 0.25
STORMY: Final = {"lease": "60s", "renew": "200ms", "prefetch": 8}
"""A killed worker is known by its lock; the living must not lose a lease on a busy machine."""
LATEST: Final = 120.0
"""Seconds without any job ending after the last kill that count as stuck."""


@dataclass(frozen=True, slots=True)
class KillReport:
    """What a storm left, to be judged."""

    ledger: Ledger
    jobs: dict[str, str]  # by id, of which type; `n` is the place
    kills: dict[str, float] = field(default_factory=dict)  # by instance id, when (wall time)
    unfinished_at_last_kill: int = 0

    @property
    def lost(self) -> list[str]:
        """Jobs without a terminal record, of their own or of their chain's last job."""
        states = self.ledger.states()
        final = {"succeeded", "failed", "dead_letter", "skipped", "cancelled"}
        return [job for job in {*self.jobs, *states} if states.get(job) not in final]

    @property
    def unsuccessful(self) -> list[str]:
        """Jobs whose handler never completed, though their delivery promises it."""
        done = {root for (root,) in self.ledger.rows(SUCCEEDED_ROOTS)}
        return [job for job, kind in self.jobs.items() if kind != "once" and job not in done]

    @property
    def repeats(self) -> int:
        """Runs of handlers beyond the first of each job, chains counted as one."""
        roots = dict(self.ledger.rows("SELECT id, root_id FROM outlast_job_state"))
        starts = Counter(roots[note.job] for note in self.ledger.notes.all())
        return sum(number - 1 for number in starts.values())

    @property
    def doubled(self) -> list[str]:
        """Jobs run again although a run of theirs had ended otherwise than by being cut short."""
        by_job: dict[str, list[Run]] = {}
        for run in self.ledger.runs():
            by_job.setdefault(run.job, []).append(run)
        cut_short = {"lost", "released"}
        return [
            job
            for job, runs in by_job.items()
            if {run.status for run in sorted(runs, key=lambda run: run.token)[:-1]} - cut_short
        ]

    @property
    def effects(self) -> Counter[int]:
        return Counter(n for (n,) in self.ledger.rows("SELECT n FROM effects"))

    @property
    def paid(self) -> Counter[int]:
        """What the effects must be."""
        return Counter(n for n, kind in enumerate(self.jobs.values()) if kind == "paying")

    @property
    def unrun(self) -> list[Run]:
        """Lost runs whose handler was never called."""
        started = {(note.job, note.token) for note in self.ledger.notes.all()}
        lost = [run for run in self.ledger.runs() if run.status == "lost"]
        return [run for run in lost if (run.job, run.token) not in started]

    @property
    def cut_short(self) -> list[Run]:
        """Lost runs whose handler had been called and had not returned."""
        returned = self._returned
        return [run for run in self._begun if (run.job, run.token) not in returned]

    @property
    def unwritten(self) -> list[Run]:
        """Lost runs whose handler had returned, while the write of their end was under way."""
        returned = self._returned
        return [run for run in self._begun if (run.job, run.token) in returned]

    @property
    def places_taken(self) -> dict[str, int]:
        """By killed worker: runs in progress, and unstarted ones that must not be prefetched."""
        must_start = [run for run in self.unrun if run.delivery != "lease"]
        return Counter(run.instance for run in (*self.cut_short, *must_start))

    @property
    def _begun(self) -> list[Run]:
        unrun = set(self.unrun)
        return [run for run in self.ledger.runs() if run.status == "lost" and run not in unrun]

    @property
    def _returned(self) -> set[tuple[str, int]]:
        return {(note.job, note.token) for note in self.ledger.notes.all("end")}

    @property
    def refused(self) -> int:
        return len(self.ledger.events("late_write_refused"))

    @property
    def takeovers(self) -> list[float]:
        """For each lost run, how long after the kill another worker freed its job."""
        lost = [run for run in self.ledger.runs() if run.status == "lost"]
        return sorted(
            run.finished - self.kills[run.instance] for run in lost if run.instance in self.kills
        )


SUCCEEDED_ROOTS: Final = "SELECT root_id FROM outlast_job_state WHERE state = 'succeeded'"


def storm(
    folder: Path,
    *,
    jobs: int,
    kills: int,
    seed: int = 7,
    tell: Callable[[str], None] = lambda _: None,
) -> KillReport:
    """Enqueue in as many waves as there are kills; each wave kills the next worker at work."""
    rng = random.Random(seed)
    ledger = Ledger(folder)
    ledger.make_effects()
    report = KillReport(ledger, {})
    with worker_trees(folder) as grow:
        trees = [_plant(grow, number) for number in range(TREES)]
        for kill in range(kills):
            tell(f"kill {kill + 1} of {kills}")
            name, tree = trees.pop(0)
            for _, each in ((name, tree), trees[0]):
                each.ready()  # the victim, and a worker to take over
            _enqueue(report, jobs // kills + (kill < jobs % kills), rng)
            left = _wait_for_work(report, tree, rng)
            report.kills[name] = tree.kill()
            trees.append(_plant(grow, TREES + kill))
        tell("the rest")
        while left_over := ledger.unfinished:
            fewer = partial(_fewer_than, ledger, left_over)
            until(fewer, within=LATEST, what=f"an end of one of {left_over} jobs")
    return KillReport(ledger, report.jobs, report.kills, left)


def _fewer_than(ledger: Ledger, number: int) -> bool:
    return ledger.unfinished < number


def _plant(grow: Callable[..., WorkerTree], number: int) -> tuple[str, WorkerTree]:
    name = f"tree-{number}"
    return name, grow("--instance-id", name, "-c", str(CONCURRENCY), **STORMY)


def _enqueue(report: KillReport, number: int, rng: random.Random) -> None:
    first = len(report.jobs)
    kinds = [KINDS[n % len(KINDS)] for n in range(first, first + number)]
    wanted = [
        (kind, {"n": n, "seconds": rng.random() * LONGEST}) for n, kind in enumerate(kinds, first)
    ]
    ids = report.ledger.enqueue(*wanted)
    report.jobs.update(zip(ids, kinds, strict=True))


def _wait_for_work(report: KillReport, tree: WorkerTree, rng: random.Random) -> int:
    """Until that tree is in the middle of a job, and more are left than it can run: how many.

    A worker is never killed idle: where others were quicker, there are more jobs.
    """

    def is_at_work() -> bool:
        if report.ledger.unfinished <= CONCURRENCY:
            _enqueue(report, MORE, rng)
        return bool({note.pid for note in notes.under_way()} & set(tree.children()))

    notes = report.ledger.notes
    while True:
        until(is_at_work, what="a job begun by the next victim")
        time.sleep(rng.random() * LONGEST / 4)  # any moment is as good as another
        left = report.ledger.unfinished
        if left > CONCURRENCY:
            return left
