"""Speed with a growing database: a long queue, a long history, no vacuum."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg

from bench.pg.field import Field
from bench.pg.ground import Ground, share
from bench.pg.rows import Row
from bench.progress import tell
from outlast.testing.servers.postgres import PostgresServer

STEPS = 6
"""How many times the churn measurement enqueues and drains a share of the jobs."""


def backlog(ground: Ground, jobs: int, rows: int) -> list[Row]:
    """Measure the drain of the first jobs of a short queue and of a very long one."""
    few, many = ground.none_yet(), ground.none_yet()
    with ground.fields() as short, ground.fields() as long:
        for side in ground.sides:
            tell(f"backlog, {side} enqueues {share(side, rows):,}")
            long[side].seconds("bulk", share(side, rows))
            long[side].rest()
        for side in ground.turns("backlog"):
            few[side].append(_begin(short[side], share(side, jobs)))
            many[side].append(_begin(long[side], share(side, jobs)))
    return [
        Row(label=f"drain, {jobs:,} waiting", unit="jobs/s", values=few),
        Row(label=f"drain, {rows:,} waiting", unit="jobs/s", values=many),
        _kept(f"kept with {rows:,} waiting", few, many),
    ]


def _begin(field: Field, jobs: int) -> float:
    field.seconds("bulk", jobs)
    field.rest()
    return field.begin(jobs)


def finished(ground: Ground, jobs: int, rows: int) -> list[Row]:
    """Measure a drain without history and after very many finished jobs."""
    fresh, after = ground.none_yet(), ground.none_yet()
    with ground.fields() as new, ground.fields() as old:
        for side in ground.sides:
            tell(f"finished, {side} runs {share(side, rows):,}")
            old[side].seconds("bulk", share(side, rows))
            old[side].rest()
            old[side].finish_all(share(side, rows))
            old[side].rest()
        for side in ground.turns("finished"):
            fresh[side].append(_drain(new[side], share(side, jobs)))
            after[side].append(_drain(old[side], share(side, jobs)))
    return [
        Row(label="drain, nothing finished before", unit="jobs/s", values=fresh),
        Row(label=f"drain, {rows:,} finished before", unit="jobs/s", values=after),
        _kept(f"kept with {rows:,} finished", fresh, after),
    ]


def churn(ground: Ground, rows: int, *, held: bool) -> list[Row]:
    """Measure drains without vacuum; `held` keeps a transaction open meanwhile."""
    first, last = ground.none_yet(), ground.none_yet()
    name = "churn, a transaction held open" if held else "churn, no vacuum"
    with _no_vacuum(ground.server):
        for side in ground.turns(name):
            rates = _churn(ground, side, rows // STEPS, held=held)
            first[side].append(rates[0])
            last[side].append(rates[-1])
    return [
        Row(label=f"{name}: first {rows // STEPS:,}", unit="jobs/s", values=first),
        Row(label=f"{name}: last of {rows:,}", unit="jobs/s", values=last),
        _kept(f"{name}: kept", first, last),
    ]


def _churn(ground: Ground, side: str, jobs: int, *, held: bool) -> list[float]:
    with ground.field(side) as field, _held(field.url if held else None):
        rates = []
        for _ in range(STEPS):
            field.seconds("bulk", share(side, jobs))
            field.query("CHECKPOINT")
            rates.append(field.drain(share(side, jobs)))
        return rates


@contextmanager
def _held(url: str | None) -> Iterator[None]:
    """Keep a snapshot open, as an idle transaction of another client does."""
    if url is None:
        yield
        return
    with closing(psycopg.connect(url)) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1")
        yield


@contextmanager
def _no_vacuum(server: PostgresServer) -> Iterator[None]:
    server.execute("ALTER SYSTEM SET autovacuum = off")
    server.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        server.execute("ALTER SYSTEM RESET autovacuum")
        server.execute("SELECT pg_reload_conf()")


def _drain(field: Field, jobs: int) -> float:
    field.seconds("bulk", jobs)
    field.rest()
    return field.drain(jobs)


def _kept(label: str, before: dict[str, list[float]], after: dict[str, list[float]]) -> Row:
    """The ratio of each side to itself."""
    values = {
        side: [late / early for early, late in zip(before[side], after[side], strict=True)]
        for side in before
    }
    return Row(label=label, unit="of its own", values=values, digits=2)
