"""Workers on PostgreSQL whose network fails for some seconds, and what the records say then."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from outlast import Outlast
from outlast.testing.servers.postgres import PostgresServer
from support.servers.fault_proxy import FaultProxy, fault_proxy

from .ledger import bound
from .notes import Notes
from .worker_app import register
from .worker_tree import WorkerTree, until, worker_trees

JOBS_PER_WORKER: Final = 2
GATE: Final = "network"
WHOLE: Final = {"lease": "15s", "renew": "5s", "tick": "1s", "poll": "500ms", "grace": "30s"}
"""The settings that a user has without choosing any."""

LEASES_OF: Final = (
    "SELECT count(*), min(o.lease_until) FROM outlast.open_runs o "
    "JOIN outlast.workers w ON w.id = o.worker WHERE w.instance_id = ANY(%s)"
)
LEFT: Final = (
    "SELECT (SELECT count(*) FROM outlast.waiting) + (SELECT count(*) FROM outlast.open_runs)"
)
LOST: Final = "SELECT job::text, reason FROM outlast.runs WHERE status = 'lost'"


@dataclass(frozen=True, slots=True)
class Outage:
    """The first `workers` have no network for `seconds`, after a renewal of their leases.

    With `one_returns_first` the network of the others returns after the first one did maintenance,
    which finds the locks of the others free.
    """

    workers: int
    seconds: float
    one_returns_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """What a network failure left, to be judged."""

    jobs: int
    starts: int  # calls of their handlers
    lost: list[tuple[str, str]]  # runs closed as lost: job and reason
    states: Counter[str]
    casualties: list[str]  # logs of workers that ended or replaced a process

    @property
    def is_clean(self) -> bool:
        """Whether each job ran once, under the worker that claimed it, to its success."""
        ran_once = self.starts == self.jobs and not self.lost and not self.casualties
        return ran_once and self.states == Counter(succeeded=self.jobs)


def cut_off(
    folder: Path,
    server: PostgresServer,
    *,
    workers: int,
    outages: Sequence[Outage],
    settings: dict[str, Any] = WHOLE,
    move: Callable[[], PostgresServer] | None = None,
) -> CutOff:
    """Let each worker run two jobs, and cut workers off by each outage in turn.

    `move` returns the server that is used after the first outage; it runs while no worker is
    connected.
    """
    database, notes = server.new_database().rpartition("/")[2], Notes(folder)
    with ExitStack() as stack:
        proxies = [stack.enter_context(fault_proxy(server.port)) for _ in range(workers)]
        grow = stack.enter_context(worker_trees(folder))
        jobs = asyncio.run(_enqueue(server.url(database), notes, JOBS_PER_WORKER * workers))
        trees = [
            _plant(grow, number, server.url(database, port=proxy.port), settings)
            for number, proxy in enumerate(proxies)
        ]
        members = [tree.ready().members() for tree in trees]
        until(lambda: len(notes.all()) == jobs, what="a start of every job")
        for outage in outages:
            _await_renewal(server.url(database), outage.workers)
            with _refusing(proxies[: outage.workers]):
                time.sleep(outage.seconds)  # the fault itself, not a wait for something
                server = move() if move is not None else server
                for proxy in proxies:
                    proxy.redirect(server.port)
                if outage.one_returns_first:
                    proxies[0].accept()
                    for _ in range(3):  # a renewal takes longer than a tick of maintenance
                        _await_renewal(server.url(database), 1)
            until(lambda: all(_is_whole(tree) for tree in trees), what="every lock reacquired")
            _await_renewal(server.url(database), workers)
        url = server.url(database)
        notes.open_gate(GATE)
        until(lambda: _rows(url, LEFT) == [(0,)], what="the end of every job")
        return CutOff(
            jobs=jobs,
            starts=len(notes.all()),
            lost=_rows(url, LOST),
            states=Counter(dict(_rows(url, "SELECT id, state FROM outlast.job_state")).values()),
            casualties=[
                tree.log
                for tree, was in zip(trees, members, strict=True)
                if tree.code is not None or tree.members() != was
            ],
        )


async def _enqueue(url: str, notes: Notes, number: int) -> int:
    async with register(Outlast(url), notes) as app:
        types = ["waits_once", *["waits", "waits_chained"] * number]  # of `once` one runs at a time
        wanted = [(name, {"gate": GATE}) for name in types[:number]]
        return len(await app.enqueue_many(bound(app, wanted, {})))


def _plant(
    grow: Callable[..., WorkerTree], number: int, url: str, settings: dict[str, Any]
) -> WorkerTree:
    options = ("-c", str(JOBS_PER_WORKER), "--instance-id", _name(number))
    return grow(*options, env={"CHAOS_URL": url}, **settings, prefetch=0)


def _name(number: int) -> str:
    return f"w{number + 1}"


@contextmanager
def _refusing(proxies: Sequence[FaultProxy]) -> Iterator[None]:
    for proxy in proxies:
        proxy.refuse()
    yield
    for proxy in proxies:
        proxy.accept()


def _await_renewal(url: str, workers: int) -> None:
    """Wait until every open run of the first workers is renewed after now."""
    names = [_name(number) for number in range(workers)]
    [(before,)] = _rows(url, "SELECT coalesce(max(lease_until), 0) FROM outlast.open_runs")

    def is_renewed() -> bool:
        [(number, earliest)] = _rows(url, LEASES_OF, names)
        return not number or earliest > before

    until(is_renewed, what=f"a renewal of {names}")


def _is_whole(tree: WorkerTree) -> bool:
    """Whether every lock whose connection broke was reacquired or lost."""
    back = len(tree.lines("lock reacquired")) + len(tree.lines("lock lost"))
    return back >= len(tree.lines("lock connection broke"))


def _rows(url: str, sql: str, *values: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(sql.encode(), values).fetchall()
