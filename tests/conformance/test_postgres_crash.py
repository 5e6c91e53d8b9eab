"""Killed at every statement of every verb, a PostgreSQL schema holds the state before or after."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.core.decide import decide, succeed
from holdfast.core.event import Lost, Unblocked
from holdfast.core.run import Holder
from holdfast.core.state import FINAL, Loss, State
from holdfast.errors import OperatorError
from holdfast.store.base import Filter
from holdfast.store.postgres.address import Address
from holdfast.store.postgres.statements import statements
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing import sizes
from holdfast.testing.crash import Crasher, clocked, play
from holdfast.testing.postgres_bench import BENCH, dump, make
from holdfast.testing.postgres_wreck import empty
from holdfast.testing.scenarios import HOLDER, LEASE, SCENARIOS, TYPES
from holdfast.testing.servers.postgres import PostgresServer
from holdfast.verify import verify
from holdfast.worker.recover import Recovery

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres-crash")]

SOUND = set(SCENARIOS) - {"unblock"}
"""Worlds that nobody has broken; in that one a job is blocked without a group."""
Dump = dict[str, list[Any]]
NEWCOMER = Holder(instance_id="newcomer", boot_id="boot-9")

ELSEWHERE = {
    name for name in statements() if name.startswith(("schema.", "lock.", "hint.", "doctor."))
}
"""Run once per connection, or they write nothing: the tests of these parts run them."""


@pytest.fixture(scope="module")
def crasher() -> Iterator[Crasher]:
    with Crasher("holdfast.testing.postgres_bench:BENCH") as helper:
        yield helper


@pytest.fixture(scope="module")
def where(postgres: PostgresServer) -> Iterator[Address]:
    """One schema for every case, which is emptied first: that takes 5 ms, to make one 150."""
    url = postgres.new_database()
    yield asyncio.run(make(url))
    postgres.drop_database(url.rpartition("/")[2])


@pytest.fixture
def path(where: Address, tmp_path: Path) -> Path:
    file = tmp_path / "address"
    file.write_text(where.dsn)
    return file


def _dump(where: Address) -> dict[str, list[Any]]:
    return asyncio.run(dump(where))


def _empty(where: Address) -> None:
    asyncio.run(empty(where, "effects"))


def _play(path: Path, name: str, *, act: bool) -> None:
    asyncio.run(play(BENCH, path, name, lambda *_: None, act=act))


@pytest.mark.parametrize("name", sorted(BENCH.scenarios))
def test_killed_at_every_statement_it_is_all_or_nothing(
    name: str, crasher: Crasher, path: Path, where: Address
) -> None:
    _empty(where)
    _play(path, name, act=False)
    before = _dump(where)
    asyncio.run(_everything_ends(where, sound=name in SOUND))
    _empty(where)
    points = crasher.points(path, name)
    after = _dump(where)
    asyncio.run(_everything_ends(where, sound=name in SOUND))
    assert points, "the act ran no statement"

    found = []
    both = sizes.SIZES.crash_on_either_side
    for point in [each for each in points if both or not each.after or each is points[-1]]:
        _empty(where)
        crasher.kill(path, name, point)

        state = _dump(where)
        assert _is_allowed(state, before, after), point
        found.append(state == after)
    assert found == list(accumulate(found, max)), "what was durable was lost again"
    assert found[-1], "it was answered, and not durable"


def _is_allowed(state: Dump, before: Dump, after: Dump) -> bool:
    """All or nothing is promised for each item: a call of many may be half done, an item never."""
    jobs = {row[0] for each in (before, after) for row in each["jobs"]}
    return state in (before, after) or (
        all(_about(state, job) in (_about(before, job), _about(after, job)) for job in jobs)
        and all(
            row in before[table] or row in after[table] for table in state for row in state[table]
        )
    )


def _about(state: Dump, job: object) -> list[tuple[str, list[Any]]]:
    return [(table, row) for table, rows in state.items() for row in rows if job in row]


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_connection_cut_at_any_statement_it_is_all_or_nothing(
    name: str, path: Path, where: Address
) -> None:
    """Once in every verb, at another statement in each: the store asks again, or says so."""
    _empty(where)
    _play(path, name, act=False)
    before = _dump(where)
    _empty(where)
    seen: list[str] = []
    asyncio.run(play(BENCH, path, name, lambda n, after: seen.append(n), act=True))
    after = _dump(where)
    nth = sum(map(ord, name)) % len(seen)
    _empty(where)

    answered = asyncio.run(_play_and_cut(path, name, nth, where))

    state = _dump(where)
    assert state == after if answered else _is_allowed(state, before, after), seen[nth]


async def _play_and_cut(path: Path, name: str, nth: int, where: Address) -> bool:
    """Whether it was answered, though every connection was cut at the `nth` call of the probe."""
    calls = iter(range(10_000))

    def probe(_: str, __: bool) -> None:
        if next(calls) == nth:
            _cut(where)

    try:
        await play(BENCH, path, name, probe, act=True)
    except OperatorError:
        return False
    return True


def _cut(where: Address) -> None:
    """From another thread, for this one's loop is in the middle of something."""

    async def cut() -> None:
        connection = await asyncpg.connect(where.dsn)
        await connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'holdfast'"
        )
        await connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, cut()).result()


async def _everything_ends(where: Address, *, sound: bool) -> None:
    """Nothing acknowledged is lost and nothing is stuck: a fresh worker brings all to an end.

    What it leaves is proved; what is `sound` before it came, is too.
    """
    clock, ids = clocked()
    store = PostgresStore(where.dsn, clock=clock, ids=ids)
    await store.open()
    assert not sound or (await verify(store)).violations == ()
    known = {job.id for job in await store.find(Filter(), limit=1000)}
    await Recovery(store, NEWCOMER, scope="instance", new_id=ids.job).run_once()
    for _ in range(10):
        clock.advance("1d")
        for job in await store.lapsed(limit=100):
            await store.apply([decide(job, Lost(Loss.LEASE_EXPIRED), new_id=ids.job)])
        for job in await store.find(Filter(states=frozenset({State.BLOCKED})), limit=100):
            await store.apply([decide(job, Unblocked(), new_id=ids.job)])
        claims = await store.claim(HOLDER, queue="default", types=TYPES, limit=100, lease=LEASE)
        changes = [succeed(claim.job_id, claim.token, None) for claim in claims]
        assert all(await store.apply(changes))
    found = await store.find(Filter(), limit=1000)
    assert (await verify(store)).violations == ()
    await store.close()
    assert known <= {job.id for job in found}
    stuck = [job for job in found if job.state not in FINAL and job.start_deadline is None]
    assert stuck == []


def test_every_statement_is_in_the_list(crasher: Crasher, path: Path, where: Address) -> None:
    seen = set()
    for name in sorted(BENCH.scenarios):
        _empty(where)
        seen |= {point.name for point in crasher.points(path, name)}

    missing = set(statements()) - seen - ELSEWHERE

    assert missing == set(), "give each of these a scenario in which it runs"
