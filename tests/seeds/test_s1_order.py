"""S1: which job is next, positions and gaps, and an order that only stored columns decide."""
# ruff: noqa: S608 - the words that make up these statements are ours

import sqlite3
from pathlib import Path
from random import Random

import pytest

from outlast import Outlast, Run
from outlast.core.event import Failed
from outlast.core.group import GroupMode
from outlast.core.ordering import Ordering
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    SECOND,
    claim_order,
    group_of,
    job_of,
    make_job,
    put,
    put_group,
    settle,
    sweep,
    take,
    take_many,
)

from .app_helpers import drain, ids_of, order_of
from .database_file import Sql, copy_of, opened

TYPES = ("story", "research")
NEXT = """
SELECT id FROM outlast_job_state
WHERE state = 'queued' AND queue = 'default'
ORDER BY priority DESC, position ASC, available_at ASC, created_at ASC, seq ASC
"""
"""The order as S1 and T-41 give it, over the columns of the one view."""


async def by_position(store: SqliteStore, gap: int = 100, name: str = "default") -> None:
    await store.set_queue(Queue(name=name, ordering=Ordering.POSITION, gap=gap))


async def position(store: SqliteStore, **over: object) -> int:
    """The position a new job gets."""
    return (await job_of(store, await put(store, **over))).position


async def positions(store: SqliteStore, together: bool, **over: object) -> list[int]:
    """The positions of three new jobs, added in one go or one after the other."""
    jobs = [make_job(**over) for _ in range(3)]
    for batch in [jobs] if together else [[job] for job in jobs]:
        await store.add(batch)
    return [(await job_of(store, job.id)).position for job in jobs]


async def shuffle(store: SqliteStore, clock: FakeClock, random: Random) -> None:
    """Fill the default queue with jobs alike in some ways and not in others."""
    for _ in range(random.randrange(5, 10)):
        clock.set_wall(START + random.randrange(5) * SECOND)
        at = START - random.randrange(3) * SECOND
        kind = random.choice(TYPES)
        await put(store, type=kind, priority=random.randrange(-1, 2), at=random.choice([None, at]))
    clock.set_wall(START + 10 * SECOND)


@pytest.mark.req("S1-3.1.a")
async def test_the_highest_priority_goes_first(store: SqliteStore, clock: FakeClock) -> None:
    below, low = await put(store, priority=-1), await put(store, priority=1)
    clock.advance("1h")
    high, highest = await put(store, priority=9), await put(store, priority=10)

    assert await claim_order(store, limit=1) == [highest]
    assert await claim_order(store) == [high, low, below]


@pytest.mark.req("S1-3.1.b")
async def test_within_a_priority_the_lowest_position_goes_first(
    store: SqliteStore, sql: Sql
) -> None:
    await by_position(store)
    jobs = [await put(store) for _ in range(3)]
    sql.write("UPDATE outlast_waiting SET position = 50 WHERE job = 3")

    assert await order_of(store) == [jobs[2], jobs[0], jobs[1]]
    assert await claim_order(store) == [jobs[2], jobs[0], jobs[1]]


@pytest.mark.req("S1-3.1.c")
async def test_within_a_position_the_oldest_goes_first(
    store: SqliteStore, clock: FakeClock
) -> None:
    younger = await put(store, at=START)
    clock.set_wall(START - 10 * SECOND)  # so that the order of insertion says the opposite
    older = await put(store, at=START)
    clock.set_wall(START + SECOND)

    assert (await job_of(store, older)).created_at < (await job_of(store, younger)).created_at
    assert await claim_order(store) == [older, younger]


@pytest.mark.req("S1-3.1.d")
async def test_on_random_queues_the_claim_takes_what_the_query_returns(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    random = Random(11)
    for ordering in [*Ordering] * 3:
        await store.set_queue(Queue(name="default", ordering=ordering))
        await shuffle(store, clock, random)
        while expected := sql.rows(f"{NEXT} LIMIT 3"):
            few = random.randrange(1, len(expected) + 1)
            claims = await take_many(store, limit=few, types=TYPES)
            assert [(claim.id,) for claim in claims] == expected[:few]
        assert await take_many(store, types=TYPES) == []


@pytest.mark.req("S1-3.1.d")
async def test_the_dispatcher_runs_a_queue_in_the_order_of_the_query(
    app: Outlast, sql: Sql
) -> None:
    random, ran = Random(3), []

    @app.job
    async def story(run: Run) -> None:
        ran.append((run.job_id,))

    for _ in range(30):
        await story.options(priority=random.randrange(4)).enqueue()
    expected = sql.rows(NEXT)

    await drain(app, concurrency=1)

    assert ran == expected
    assert len(ran) == 30


@pytest.mark.req("S1-3.2.a")
@pytest.mark.parametrize("together", [False, True])
async def test_a_new_job_goes_a_gap_behind_the_last_queued_of_its_priority(
    together: bool, store: SqliteStore
) -> None:
    await by_position(store)

    assert await positions(store, together) == [100, 200, 300]
    assert await position(store, type="other") == 400
    await take(store, types=["other"])  # the last one is running now
    assert await positions(store, together) == [400, 500, 600]
    assert await position(store, active_key="a") == 700


@pytest.mark.req("S1-3.2.b")
@pytest.mark.parametrize("together", [False, True])
async def test_the_gap_is_a_hundred_and_can_be_set(together: bool, store: SqliteStore) -> None:
    await by_position(store, name="plain")
    await by_position(store, gap=10, name="tight")

    assert Queue(name="unset").gap == 100
    assert await positions(store, together, queue="plain") == [100, 200, 300]
    assert await positions(store, together, queue="tight") == [10, 20, 30]


@pytest.mark.req("S1-3.2.c")
@pytest.mark.parametrize("together", [False, True])
async def test_the_first_of_a_priority_gets_the_gap_as_its_position(
    together: bool, store: SqliteStore
) -> None:
    await by_position(store)
    await positions(store, together, priority=0)
    await put(store, priority=7)
    await take(store)  # so that nothing is queued at priority 7

    assert await positions(store, together, priority=7) == [100, 200, 300]
    assert await position(store, priority=0) == 400


@pytest.mark.req("S1-5.4.a")
async def test_a_copied_database_gives_the_same_order_over_a_hundred_reads(
    store: SqliteStore, clock: FakeClock, path: Path, tmp_path: Path
) -> None:
    random = Random(4)
    for _ in range(3):
        await shuffle(store, clock, random)
    copy = await opened(copy_of(path, tmp_path / "copy.db"), clock=FakeClock())

    reads = [await order_of(store), *[await order_of(copy) for _ in range(100)]]
    taken = await claim_order(copy, types=TYPES)
    await copy.close()

    assert len(reads[0]) > 10
    assert all(read == reads[0] for read in [*reads, taken])


@pytest.mark.req("S1-5.4.c")
async def test_a_stored_number_settles_every_tie(
    store: SqliteStore, clock: FakeClock, path: Path, sql: Sql
) -> None:
    alike = [make_job() for _ in range(20)]
    Random(6).shuffle(alike)  # so that their ids, which tell the time, do not settle it
    await store.add(alike)
    clock.advance("1h")

    orders = [await order_of(store)]
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute("VACUUM")  # which may renumber what is not stored
    connection.close()
    await store.open()
    orders += [await order_of(store), await claim_order(store)]

    assert orders == [ids_of(alike)] * 3
    assert sql.rows("SELECT id FROM outlast_jobs ORDER BY seq") == [(job.id,) for job in alike]


@pytest.mark.req("S1-5.4.d")
async def test_the_size_of_gaps_does_not_matter(store: SqliteStore, sql: Sql) -> None:
    orders = []
    for queue, positions in {"wide": (100, 5000, 5001), "tight": (1, 2, 3)}.items():
        jobs = [await put(store, queue=queue) for _ in range(3)]
        for job_id, place in zip(jobs[::-1], positions, strict=True):
            sql.write(
                f"UPDATE outlast_waiting SET position = {place}"
                f" WHERE job = (SELECT seq FROM outlast_jobs WHERE id = '{job_id}')"
            )
        orders.append([jobs.index(job_id) for job_id in await claim_order(store, queue=queue)])

    assert orders == [[2, 1, 0], [2, 1, 0]]


@pytest.mark.req("S1-6.3.x")
async def test_a_bare_group_id_changes_nothing_in_the_dispatch(
    store: SqliteStore, clock: FakeClock
) -> None:
    priorities = [0, 3, 0, 9, 3]
    orders = []
    for groups in ([None] * 5, ["a"] * 5, ["a", "b", "a", "b", "a"]):
        given = zip(priorities, groups, strict=True)
        jobs = [await put(store, priority=p, group_id=group) for p, group in given]
        assert [(await job_of(store, job_id)).group_id for job_id in jobs] == groups
        orders.append([jobs.index(claim.id) for claim in await take_many(store)])

    assert orders == [[3, 1, 4, 0, 2]] * 3


@pytest.mark.req("S1-6.3.x")
@pytest.mark.parametrize("becomes", ["filling", "sealed", "stopped"])
async def test_a_bare_group_id_changes_nothing_beside_a_group_of_that_id(
    store: SqliteStore, becomes: str
) -> None:
    group_id, members = await put_group(
        store, make_job(queue="lane"), mode=GroupMode.SEQUENTIAL, is_sealed=becomes == "sealed"
    )
    jobs = [await put(store, priority=p, group_id=group_id) for p in (0, 3, 9)]
    if becomes == "stopped":
        await store.stop_group(group_id, reason=None)
        await sweep(store)

    claims = await take_many(store)
    await settle(store, claims[0], Failed("broke", permanent=True))

    assert [claim.id for claim in claims] == jobs[::-1]
    assert not any([(await job_of(store, job_id)).cancel_requested for job_id in jobs])
    group = await group_of(store, group_id)
    assert (group.total, sum(group.counts.values())) == (1, len(members))
    assert (group.closing is not None) == (becomes == "stopped")
