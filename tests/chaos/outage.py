"""Jobs by the thousand while PostgreSQL itself is killed, and what the records say afterwards."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import psycopg

from outlast import Outlast
from outlast.store.open import open_store
from outlast.testing.servers.postgres import PostgresServer, postgres_server
from outlast.verify import verify

from .ledger import bound
from .notes import Notes
from .worker_app import register
from .worker_tree import WorkerTree, until, worker_trees

CONCURRENCY: Final = 5
LONGEST: Final = 0.2
DOWN: Final = (0.2, 1.5)
"""For how many seconds the database is away."""

WHOLE: Final = {"lease": "15s", "renew": "5s", "tick": "1s", "poll": "500ms", "grace": "30s"}
"""The settings that a user has without choosing any."""

LATE: Final = 120.0
BUNCH: Final = 10
LEFT: Final = (
    "SELECT (SELECT count(*) FROM outlast.waiting) + (SELECT count(*) FROM outlast.open_runs)"
)
ENDED_SINCE: Final = "SELECT min(finished_at) FROM outlast.runs WHERE finished_at >= %s"


@dataclass(frozen=True, slots=True)
class Survived:
    """What the outages left, to be judged."""

    acknowledged: list[str]  # jobs whose enqueue was acknowledged
    states: dict[str, str]
    starts: Counter[str]  # how often the handler of each job was called
    pauses: list[float]  # for each outage, seconds from the first answer to the first end of a job
    casualties: list[str]  # workers that ended, or lost a child
    violations: tuple[object, ...]

    @property
    def lost(self) -> list[str]:
        return [job for job in self.acknowledged if self.states.get(job) != "succeeded"]

    @property
    def unfinished(self) -> int:
        return sum(state != "succeeded" for state in self.states.values())

    @property
    def repeats(self) -> int:
        """Calls of handlers beyond the first of each job."""
        return sum(number - 1 for number in self.starts.values())


@dataclass(slots=True)
class _Caller:
    """Enqueues all the while, as an application would that knows nothing of the outages."""

    url: str
    notes: Notes
    numbers: range
    seed: int
    acknowledged: list[str] = field(default_factory=list)

    async def enqueue(self) -> None:
        rng = random.Random(self.seed)
        app = register(Outlast(self.url), self.notes)
        async with app:
            for first in range(self.numbers.start, self.numbers.stop, BUNCH):
                numbers = range(first, min(first + BUNCH, self.numbers.stop))
                wanted = [("brief", {"n": n, "seconds": rng.random() * LONGEST}) for n in numbers]
                handles = await app.enqueue_many(bound(app, wanted, {}))
                self.acknowledged += [handle.id for handle in handles]

    def refill(self) -> None:
        """Enqueue some more if hardly any are left."""
        if _ask(self.url, LEFT) < BUNCH:
            self.numbers = range(self.numbers.stop, self.numbers.stop + 2 * BUNCH)
            asyncio.run(self.enqueue())


def outages(
    folder: Path,
    *,
    jobs: int,
    workers: int,
    kills: int,
    settings: dict[str, Any] = WHOLE,
    seed: int = 7,
    tell: Callable[[str], None] = lambda _: None,
) -> Survived:
    """Half of the jobs wait at first; the server is killed each time a share of all has ended."""
    rng = random.Random(seed)
    with postgres_server(durable=True) as server, worker_trees(folder) as grow:
        url, notes = server.new_database(), Notes(folder)
        before = _Caller(url, notes, range(jobs // 2), seed)
        asyncio.run(before.enqueue())
        after = _Caller(url, notes, range(jobs // 2, jobs), seed + 1)
        trees = [_plant(grow, url, settings) for _ in range(workers)]
        members = [tree.ready().members() for tree in trees]
        more = _Caller(url, notes, range(jobs, jobs), seed + 2)
        with _enqueuing(after):
            pauses = list(_kill_by_and_by(server, more, jobs, kills, rng, tell))
        tell("the rest")
        while left := _ask(url, LEFT):
            until(partial(_is_less, url, left), within=LATE, what=f"an end of one of {left} jobs")
        return Survived(
            acknowledged=[*before.acknowledged, *after.acknowledged, *more.acknowledged],
            states=_states(url),
            starts=Counter(note.job for note in notes.all()),
            pauses=pauses,
            casualties=[
                tree.log[-2000:]
                for tree, was in zip(trees, members, strict=True)
                if tree.code is not None or tree.members() != was
            ],
            violations=asyncio.run(_violations(url)),
        )


def _plant(grow: Callable[..., WorkerTree], url: str, settings: dict[str, Any]) -> WorkerTree:
    return grow("-c", str(CONCURRENCY), env={"CHAOS_URL": url}, **settings)


def _kill_by_and_by(
    server: PostgresServer,
    more: _Caller,
    jobs: int,
    kills: int,
    rng: random.Random,
    tell: Callable[[str], None],
) -> Iterator[float]:
    """Each time some more have ended: down, and up again; how long until the next one ends.

    There is always one to end: where the workers were quicker than this, `more` are enqueued.
    """
    url = more.url
    for kill in range(kills):
        tell(f"outage {kill + 1} of {kills}")
        share = jobs * (kill + 1) // (kills + 2)
        until(lambda share=share: _ended(url) >= share, within=LATE, what=f"{share} jobs ended")
        more.refill()
        server.kill()
        time.sleep(rng.uniform(*DOWN))  # the fault itself, not a wait for something
        server.start()
        back = _ask(url, "SELECT outlast.micros()")
        more.refill()
        ended = until(partial(_ask, url, ENDED_SINCE, back), within=LATE, what="a job's end")
        yield (ended - back) / 1e6


@contextmanager
def _enqueuing(caller: _Caller) -> Iterator[None]:
    """Until all are acknowledged."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(caller.enqueue())
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    thread = Thread(target=run, name="caller")
    thread.start()
    try:
        yield
    finally:
        thread.join(LATE)
    if failed:
        raise failed[0]
    assert not thread.is_alive(), "the enqueuing thread is stuck"


def _ended(url: str) -> int:
    return int(_ask(url, "SELECT count(*) FROM outlast.ends"))


def _is_less(url: str, number: int) -> bool:
    return int(_ask(url, LEFT)) < number


def _states(url: str) -> dict[str, str]:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute("SELECT id, state FROM outlast.job_state").fetchall()
    return {str(job): state for job, state in rows}


def _ask(url: str, sql: str, *values: object) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(sql.encode(), values).fetchone()
    assert row is not None
    return row[0]


async def _violations(url: str) -> tuple[object, ...]:
    store = open_store(url)
    await store.open()
    try:
        return (await verify(store)).violations
    finally:
        await store.close()
