"""`python -m bench keyvalue`: requests per job and per idle worker on etcd and DynamoDB."""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench import keyvalue_units
from bench.keyvalue_slots import slots
from bench.metered import Meter, Metered, Spent, capacity
from bench.progress import tell
from bench.report import table
from outlast.config import Settings
from outlast.core.decide import succeed
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.run import Claim, Lease, LeaseHolder
from outlast.core.worker import WorkerInfo
from outlast.store.keyvalue.engine import Engine
from outlast.store.keyvalue.store import KeyValueStore

BACKLOGS: Final = (100, 1_000, 10_000)
ABANDONED: Final = timedelta(hours=1)
LEASE: Final = timedelta(seconds=15)
HOLDER: Final = LeaseHolder(instance_id="bench", boot_id="tree.bench")
HOUR: Final = 3600
ROUNDS: Final = 20
BATCH: Final = 500
ENGINES: Final = ("etcd", "dynamodb")


def main(words: Sequence[str]) -> int:
    """Print one table for each engine asked for."""
    asked = _parser().parse_args(words)
    for name in asked.engines:
        with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
            lines = _measured(name, Path(folder), asked)
            print("\n".join(lines), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench keyvalue", description=__doc__)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--backlogs", nargs="+", type=int, default=list(BACKLOGS))
    parser.add_argument("--payloads", nargs="+", type=int, default=list(keyvalue_units.SIZES))
    parser.add_argument("--shards", type=int, default=1, help="spread jobs over so many")
    return parser


def _measured(name: str, folder: Path, asked: argparse.Namespace) -> list[str]:
    with _server(name, folder) as make:
        return asyncio.run(_lines(name, make, asked))


@contextmanager
def _server(name: str, folder: Path) -> Iterator[Callable[[Meter], Engine]]:
    """Run a real server during the measurement."""
    if name == "etcd":
        from outlast.testing.servers.etcd import shared_etcd  # noqa: PLC0415 - only if asked for

        with shared_etcd(folder) as cluster:
            yield lambda meter: Metered(_etcd(cluster.hosts), meter)
        return
    from outlast.testing.servers.dynamodb import CREDENTIALS, shared_dynamodb  # noqa: PLC0415 - same

    os.environ.update(CREDENTIALS)
    with shared_dynamodb(folder) as endpoint:
        yield lambda meter: Metered(_dynamodb(endpoint, meter), meter)


def _etcd(hosts: tuple[str, ...]) -> Engine:
    from outlast.store.keyvalue.engines.etcd.client import Cluster  # noqa: PLC0415 - same
    from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine  # noqa: PLC0415 - only if asked for

    return EtcdEngine(Cluster(hosts=hosts), prefix="bench")


def _dynamodb(endpoint: str, meter: Meter) -> Engine:
    from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine  # noqa: PLC0415 - only if asked

    engine = DynamoDBEngine("bench", region="eu-central-1", endpoint=endpoint)
    capacity(engine, meter)
    return engine


@dataclass(frozen=True, slots=True)
class Bench:
    """A store with its meter and the ids of its jobs."""

    store: KeyValueStore
    meter: Meter
    numbers: Iterator[int]

    async def cost(self, act: Callable[[], Awaitable[Any]], times: int = ROUNDS) -> Spent:
        """Return the cost of one call."""
        self.meter.reset()
        for _ in range(times):
            await act()
        return self.meter.spent.over(times)

    def job(self) -> NewJob:
        number = JobId(f"00000000-0000-7000-8000-{next(self.numbers):012x}")
        return NewJob(id=number, type="bench", name="bench", params='{"n":1}', queue="default")


async def _lines(
    name: str, make: Callable[[Meter], Engine], asked: argparse.Namespace
) -> list[str]:
    meter = Meter()
    store = KeyValueStore(make(meter), shards=asked.shards)
    await store.open()
    bench = Bench(store, meter, count(1))
    rows = [[name, "reads", "transactions", "read units", "write units"]]
    idle = await _idle(bench)  # before another queue is known, which maintenance would read
    units = await keyvalue_units.lines(store, meter.bill, bench.numbers, asked.payloads)
    filled = 0
    for backlog in asked.backlogs:
        tell(f"{name}, {backlog:,} waiting")
        while filled < backlog:
            await store.add([bench.job() for _ in range(min(BATCH, backlog - filled))])
            filled += min(BATCH, backlog - filled)
        rows += [_row(f"{act} at {backlog:,}", spent) for act, spent in await _acts(bench)]
    tell()
    triggered = await slots(bench)
    await store.close()
    told = table(rows + [_row(act, spent) for act, spent in [*idle, *triggered]])
    return [*told, "", *table(units)] if name == "dynamodb" else told


async def _acts(bench: Bench) -> list[tuple[str, Spent]]:
    """Measure the operations; the backlog keeps its size."""
    store, claims = bench.store, list[Claim]()

    async def take() -> None:
        claims.extend(
            await store.claim(HOLDER, queue="default", types=["bench"], limit=1, lease=LEASE)
        )

    async def finish() -> None:
        claim = claims.pop()
        assert await store.apply([succeed(claim.job_id, claim.token, None)]) == [True]

    enqueued = await bench.cost(lambda: store.add([bench.job()]))
    claimed = await bench.cost(take)
    leases = [Lease(claim.job_id, claim.token) for claim in claims]
    renewed = (await bench.cost(lambda: store.renew(leases, span=LEASE), 1)).over(len(leases))
    finished = await bench.cost(finish)
    return [
        ("enqueue", enqueued),
        ("claim", claimed),
        ("renewal", renewed),
        ("finish", finished),
    ]


async def _idle(bench: Bench) -> list[tuple[str, Spent]]:
    """Return the requests of an idle worker, per call and per hour."""
    store = bench.store
    settings = Settings().with_store_defaults(
        poll=store.polling_defaults.poll, tick=store.polling_defaults.tick
    )
    await store.add([bench.job()])
    await store.claim(HOLDER, queue="default", types=["bench"], limit=1, lease=LEASE)
    info = WorkerInfo(
        instance_id=HOLDER.instance_id,
        boot_id=HOLDER.boot_id,
        host="here",
        pid=1,
        queues=("default",),
        types=("bench",),
        concurrency=1,
    )
    await store.register_worker(info)
    hold = await store.acquire_lock(HOLDER.boot_id, shared=True)
    assert hold is not None
    nothing = await bench.cost(
        lambda: store.claim(HOLDER, queue="default", types=["bench"], limit=1, lease=LEASE)
    )
    look = await bench.cost(lambda: store.maintenance_due(abandoned=ABANDONED))
    beat = await bench.cost(lambda: store.heartbeat(HOLDER, span=LEASE))
    held = await bench.cost(store._locks.heartbeat)  # noqa: SLF001 - a thread's otherwise
    await hold.release()
    hour = (
        nothing.times(HOUR / settings.poll.total_seconds())
        .plus(look.times(HOUR / settings.tick.total_seconds()))
        .plus(beat.times(HOUR / settings.renew.total_seconds()))
    )
    return [
        ("claim of nothing", nothing),
        ("maintenance query", look),
        ("heartbeat", beat),
        ("heartbeat while holding locks", held),
        (f"idle hour at poll {settings.poll.total_seconds():g} s", hour),
        ("hour of holding locks", held.times(HOUR / store.engine.limits.beat)),
    ]


def _row(name: str, spent: Spent) -> list[str]:
    units = [f"{each:,.1f}" if each else "-" for each in (spent.read_units, spent.write_units)]
    return [name, f"{spent.reads:,.1f}", f"{spent.transactions:,.1f}", *units]
