"""Metadata costs nothing where no job has any: statements, bytes and rows are as without it."""
# ruff: noqa: S608 - the statements are made of words of this module

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import asyncpg

from outlast.core.decide import decide
from outlast.core.event import Failed
from outlast.core.ids import Ids
from outlast.core.job import DedupeKey
from outlast.store.contract import Store
from outlast.store.postgres.store import PostgresStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import SUCCEEDED, make_job, new_id, take_many

from .sqlite_helpers import Trace, opened, raw, writing

JOBS = 200


async def _work(store: Store, texts: Sequence[str | None] = (None,)) -> None:
    """Jobs in one batch and one by one, claimed and ended, well and badly."""
    await store.add([make_job(metadata=texts[n % len(texts)]) for n in range(JOBS)])
    await store.add([make_job(key=DedupeKey(key="k"), metadata=texts[0])])
    claims = await take_many(store)
    assert len(claims) == JOBS + 1
    ends = [decide(claim, SUCCEEDED, new_id=new_id) for claim in claims[1:]]
    await store.apply(ends)
    await store.apply([decide(claims[0], Failed("no", permanent=True), new_id=new_id)])


async def _sqlite(path: Path, *, with_labels: bool) -> tuple[list[str], int, int]:
    """The statements of that work, the bytes that they wrote, and the label rows."""
    trace, clock = Trace(), FakeClock()
    async with opened(
        path, clock=clock, ids=Ids(clock.now, Random(1).getrandbits), probe=trace
    ) as s:
        if not with_labels:
            writing(s).executescript(
                "DROP TRIGGER outlast_jobs_labelled; DELETE FROM outlast_labels"
            )
        writing(s).execute("PRAGMA wal_checkpoint(TRUNCATE)")
        trace.steps.clear()
        await _work(s)
        written = _size_of_log(path)
        with raw(path) as file:
            [(rows,)] = file.execute("SELECT count(*) FROM outlast_labels")
        return trace.done, written, rows


def _size_of_log(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def test_sqlite_runs_and_writes_the_same_without_metadata(tmp_path: Path) -> None:
    without = await _sqlite(tmp_path / "a.db", with_labels=False)
    as_is = await _sqlite(tmp_path / "b.db", with_labels=True)

    assert as_is[0] == without[0], "the statements"
    assert as_is[1:] == (without[1], 0), "the bytes of the log, and the rows"


async def test_sqlite_runs_no_statement_more_for_a_batch_with_one_metadata(tmp_path: Path) -> None:
    names = []
    for text in (None, '{"tags":["a"]}'):
        trace = Trace()
        async with opened(tmp_path / f"{text is None}.db", clock=FakeClock(), probe=trace) as store:
            trace.steps.clear()
            await _work(store, [text])
        names.append(trace.done)

    assert names[0] == names[1]


async def _postgres(url: str, *, with_labels: bool) -> tuple[list[str], int, tuple[int, int]]:
    """The statements of that work, the label rows, and the bytes of the jobs' rows."""
    trace = Trace()
    store = PostgresStore(url, clock=FakeClock(), probe=trace)
    await store.open()
    connection = await asyncpg.connect(store.address.dsn)
    schema = f'"{store.address.schema}"'
    if not with_labels:
        await connection.execute(f"DROP TRIGGER jobs_labelled ON {schema}.jobs")
    trace.steps.clear()
    await _work(store)
    rows = await connection.fetchval(f"SELECT count(*) FROM {schema}.labels")
    found = trace.done, rows, await _widths(connection, schema)
    await connection.close()
    await store.close()
    return found


async def test_postgres_runs_and_writes_the_same_without_metadata(
    postgres_places: Iterator[str],
) -> None:
    without = await _postgres(next(postgres_places), with_labels=False)
    as_is = await _postgres(next(postgres_places), with_labels=True)

    assert as_is[0] == without[0], "the statements"
    assert as_is[1] == 0, "the label rows"
    assert as_is[2][0] == as_is[2][1], "a column without a value takes no byte of a row"


async def _widths(connection: asyncpg.Connection, schema: str) -> tuple[int, int]:
    """Bytes of all jobs as stored, and as stored in a table without the column."""
    await connection.execute(f"CREATE TEMP TABLE bare AS SELECT * FROM {schema}.jobs")
    own = await connection.fetchval("SELECT sum(pg_column_size(b.*)) FROM bare AS b")
    names = await connection.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'bare'::regclass AND attnum > 0"
    )
    kept = ", ".join(name for (name,) in names if name != "metadata")
    await connection.execute(f"CREATE TEMP TABLE barer AS SELECT {kept} FROM bare")
    without = await connection.fetchval("SELECT sum(pg_column_size(b.*)) FROM barer AS b")
    return own, without
