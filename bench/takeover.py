"""`python -m bench takeover`: seconds from a kill or a stop to the takeover or exit."""

import argparse
import asyncio
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.chaos.ledger import Ledger, bound
from tests.chaos.notes import Notes
from tests.chaos.test_chaos_takeover import EMBEDDED
from tests.chaos.worker_app import register
from tests.chaos.worker_tree import WorkerTree, freeze, until, worker_trees

from bench.figures import Series
from bench.progress import tell
from bench.report import spread, table
from outlast import Outlast
from outlast.testing.servers import dynamodb
from outlast.testing.servers.etcd import etcd_cluster
from outlast.testing.servers.postgres import postgres_server

LEASE = 2.0
GRACE = 1.0
SHORT = {"lease": "2s", "grace": "1s"}
LONG = {"lease": "60s", "renew": "20s", "tick": "250ms", "poll": "50ms"}
ON_SERVER = {"lease": "8s", "renew": "2s", "tick": "250ms", "poll": "250ms"}
DEFAULTS = {"lease": "15s", "renew": "5s", "tick": "3s", "poll": "5s", "grace": "30s"}
"""The defaults on DynamoDB; the app of the chaos tests has shorter ones."""

DEFAULTS_ELSEWHERE = {**DEFAULTS, "tick": "1s", "poll": "500ms"}
AFTER_RESTART = 15.0 + 10
"""The default lease, and ten seconds."""

BEAT = 1

WAITS = ("waits", {"gate": "never"})
Grow = Callable[..., WorkerTree]


@dataclass(frozen=True, slots=True)
class Case:
    """A measurement and the target of its median."""

    label: str
    measure: Callable[[Path], float]
    asked: float


def child(folder: Path) -> float:
    """From the kill of a child to the next start of its job."""
    with _at_work(folder, "-p", "2", **LONG) as (_, _, notes, job):
        [first] = notes.of(job)
        killed = time.monotonic()
        os.kill(first.pid, signal.SIGKILL)
        return _again(notes, job) - killed


def tree(folder: Path) -> float:
    """From the kill of a worker with all its processes to the next start of its job."""
    with _at_work(folder, **LONG) as (grow, first, notes, job):
        grow(**LONG).ready()
        first.kill()
        killed = time.monotonic()
        return _again(notes, job) - killed


def embedded(folder: Path) -> float:
    """Measure the same for an embedded worker, whose death only its leases show."""
    with _at_work(folder, program=EMBEDDED, **SHORT) as (grow, first, notes, job):
        grow(**SHORT).ready()
        first.kill()
        killed = time.monotonic()
        return _again(notes, job) - killed


def stop(folder: Path) -> float:
    """From SIGTERM to the exit, while a handler outlasts the grace."""
    with _at_work(folder, **SHORT) as (_, worker, _, _):
        return _exit_after(worker)


def second_signal(folder: Path) -> float:
    """From a second SIGTERM to the exit."""
    with _at_work(folder, grace="10m") as (_, worker, _, _):
        worker.signal(signal.SIGTERM)
        until(worker.has_heard, what="the first signal's arrival")
        return _exit_after(worker)


def orphans(folder: Path) -> float:
    """From the kill of a supervisor to the end of its children, one of them blocked."""
    with _at_work(folder, "-p", "2", prefetch=0, **SHORT) as (_, worker, notes, _):
        Ledger(folder).enqueue(("blocks_loop", {"seconds": 600}))
        until(lambda: len(notes.under_way()) == 2, what="two runs")
        killed = worker.kill_supervisor()
        worker.gone()
        return time.monotonic() - killed


def deadly(folder: Path) -> float:
    """Return the delay of ten jobs caused by one that crashes every process it runs in."""
    with worker_trees(folder) as grow:
        grow("-p", "3").ready(3)
        ledger = Ledger(folder)
        before = max(_seconds_for_some(ledger) for _ in range(5))
        [job] = ledger.enqueue(("exits", {}))
        during = [_seconds_for_some(ledger)]
        while ledger.state(job) != "dead_letter":
            during.append(_seconds_for_some(ledger))
        return max(during) - before


def on_postgres(folder: Path) -> float:
    """Measure the same as `tree`, on PostgreSQL."""
    with postgres_server() as server:
        return asyncio.run(_tree_at(server.new_database(), folder, LONG))


def on_etcd(folder: Path) -> float:
    with etcd_cluster(folder) as cluster:
        return asyncio.run(_tree_at(f"{cluster.url('takeover')}?beat={BEAT}", folder, ON_SERVER))


def on_dynamodb(folder: Path) -> float:
    os.environ.update(dynamodb.CREDENTIALS)
    with dynamodb.dynamodb_local(folder) as server:
        url = f"{dynamodb.url(server.endpoint, secrets.token_hex(6))}&beat={BEAT}"
        return asyncio.run(_tree_at(url, folder, ON_SERVER))


def defaults_on_dynamodb(folder: Path) -> float:
    """Measure a frozen worker with default settings, whose death only its leases show."""
    os.environ.update(dynamodb.CREDENTIALS)
    with dynamodb.dynamodb_local(folder) as server:
        url = dynamodb.url(server.endpoint, secrets.token_hex(6))
        return asyncio.run(_tree_at(url, folder, DEFAULTS, freeze_tree))


def restart(folder: Path) -> float:
    """From the kill of the only worker to its job's next start; it is started again at once."""
    return asyncio.run(_restart_at(f"sqlite:///{folder / 'jobs.db'}", folder, DEFAULTS_ELSEWHERE))


def restart_on_postgres(folder: Path) -> float:
    with postgres_server() as server:
        return asyncio.run(_restart_at(server.new_database(), folder, DEFAULTS_ELSEWHERE))


def restart_on_etcd(folder: Path) -> float:
    with etcd_cluster(folder) as cluster:
        return asyncio.run(_restart_at(cluster.url("restart"), folder, DEFAULTS_ELSEWHERE))


def restart_on_dynamodb(folder: Path) -> float:
    os.environ.update(dynamodb.CREDENTIALS)
    with dynamodb.dynamodb_local(folder) as server:
        url = dynamodb.url(server.endpoint, secrets.token_hex(6))
        return asyncio.run(_restart_at(url, folder, DEFAULTS))


def etcd_leader(folder: Path) -> float:
    """From the kill of etcd's leader to the next job stored."""
    with etcd_cluster(folder) as cluster:

        async def measure() -> float:
            async with register(Outlast(cluster.url("leader")), Notes(folder)) as app:
                await app.enqueue_many(bound(app, [WAITS], {}))
                cluster.leader.kill()
                killed = time.monotonic()
                await app.enqueue_many(bound(app, [WAITS], {}))
                return time.monotonic() - killed

        return asyncio.run(measure())


CASES = (
    Case("a killed child's job starts again", child, 1.0),
    Case("a killed worker's job starts again", tree, 1.0),
    Case("an embedded worker's job starts again", embedded, LEASE + 1),
    Case("a worker stops past its grace", stop, GRACE + 1),
    Case("a worker stops at the second signal", second_signal, 2.0),
    Case("children end after their supervisor", orphans, LEASE + 1),
    Case("good jobs beside a deadly one wait", deadly, 1.0),
    Case("restart, default settings: a killed worker's job starts again", restart, AFTER_RESTART),
)
SERVERS = (
    Case("PostgreSQL: a killed worker's job starts again", on_postgres, 1.0),
    Case("etcd: a killed worker's job starts again", on_etcd, 9.0),
    Case("DynamoDB: a killed worker's job starts again", on_dynamodb, 9.0),
    Case(
        "DynamoDB, default settings: a frozen worker's job starts again", defaults_on_dynamodb, 25
    ),
    Case("restart on PostgreSQL, default settings", restart_on_postgres, AFTER_RESTART),
    Case("restart on etcd, default settings", restart_on_etcd, AFTER_RESTART),
    Case("restart on DynamoDB, default settings", restart_on_dynamodb, AFTER_RESTART),
    Case("etcd: a job is stored after the leader's kill", etcd_leader, 3.0),
)


def main(words: Sequence[str]) -> int:
    """Return 0 if every median meets its target, else 1."""
    asked = _parser().parse_args(words)
    rows, is_well = [["", "seconds", "asked"]], True
    cases = (*CASES, *SERVERS) if asked.servers or asked.only else CASES
    for case in [each for each in cases if each.label.startswith(asked.only or "")]:
        tell(case.label)
        took = [_measured(case) for _ in range(asked.rounds)]
        rows.append([case.label, spread(Series(took), 2), f"at most {case.asked:g}"])
        is_well &= median(took) <= case.asked
    tell()
    print("\n".join(table(rows)))
    return 0 if is_well else 1


def _measured(case: Case) -> float:
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as name:
        return case.measure(Path(name))


@contextmanager
def _at_work(
    folder: Path, *options: str, **over: str | int
) -> Iterator[tuple[Grow, WorkerTree, Notes, str]]:
    """A worker in the middle of a job that waits in its first run."""
    ledger = Ledger(folder)
    [job] = ledger.enqueue(WAITS)
    with worker_trees(folder) as grow:
        worker = grow(*options, **over)
        until(lambda: ledger.notes.of(job), what="its run")
        yield grow, worker, ledger.notes, job


def _again(notes: Notes, job: str) -> float:
    """Return when its second run began."""
    return float(until(lambda: notes.of(job)[1:], what="its second run")[0].at)


def _exit_after(worker: WorkerTree) -> float:
    asked = time.monotonic()
    worker.signal(signal.SIGTERM)
    worker.wait()
    return time.monotonic() - asked


def _seconds_for_some(ledger: Ledger) -> float:
    """Return the seconds from the first job stored to the last one ended, by the store's clock."""
    jobs = ledger.enqueue(*[("brief", {"n": 0, "seconds": 0.02})] * 10)
    until(lambda: set(map(ledger.state, jobs)) == {"succeeded"}, what="the end of good jobs")
    created = dict(ledger.rows("SELECT id, created_at / 1e6 FROM outlast_jobs"))
    ended = max(run.finished for run in ledger.runs(*jobs))
    return float(ended - min(created[job] for job in jobs))


def kill_tree(tree: WorkerTree) -> None:
    tree.kill()


def freeze_tree(tree: WorkerTree) -> None:
    freeze(tree.members())


async def _tree_at(
    url: str,
    folder: Path,
    settings: dict[str, str],
    end: Callable[[WorkerTree], None] = kill_tree,
) -> float:
    notes, env = Notes(folder), {"CHAOS_URL": url}
    with worker_trees(folder) as grow:
        async with register(Outlast(url), notes) as app:
            [job] = await app.enqueue_many(bound(app, [WAITS], {}))
        first = grow(env=env, **settings).ready()
        until(lambda: notes.of(job.id), what="its run")
        grow(env=env, **settings).ready()
        end(first)
        ended = time.monotonic()
        return _again(notes, job.id) - ended


async def _restart_at(url: str, folder: Path, settings: dict[str, str]) -> float:
    notes, env = Notes(folder), {"CHAOS_URL": url}
    with worker_trees(folder) as grow:
        async with register(Outlast(url), notes) as app:
            [job] = await app.enqueue_many(bound(app, [WAITS], {}))
        first = grow(env=env, **settings).ready()
        until(lambda: notes.of(job.id), what="its run")
        first.kill()
        killed = time.monotonic()
        grow(env=env, **settings)
        return _again(notes, job.id) - killed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench takeover", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="how often each is measured (5)")
    add("--only", help="measure the cases alone whose name begins so, such as DynamoDB")
    add("--servers", action="store_true", help="measure on PostgreSQL, etcd and DynamoDB as well")
    return parser
