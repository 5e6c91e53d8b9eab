"""S1: an order that can be changed while jobs wait, in one transaction, and never once they run."""
# ruff: noqa: S608 - the words that make up these statements are ours

import sqlite3
from pathlib import Path
from random import Random

import pytest

from outlast import OperatorError, Outlast, TransitionRefused
from outlast.core.event import Released
from outlast.core.ordering import Ordering
from outlast.core.state import State
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import claim_order, job_of, put, settle, take

from .app_helpers import order_of
from .child_process import ask
from .crashing import wrecks
from .database_file import Sql, copy_of, opened
from .store_programs import enqueue

FROZEN = "outlast: a job is frozen at its first claim"
OPEN = "outlast: of an open run only lease, cancel mark, progress and artifacts change"
FAULT = """
CREATE TRIGGER fault BEFORE UPDATE OF position ON outlast_waiting WHEN NEW.job = {}
BEGIN SELECT RAISE(ABORT, 'disk fault'); END
"""
PLACES = "SELECT job, priority, position, available_at, state FROM outlast_waiting ORDER BY job"
PARAMS = "SELECT params FROM outlast_jobs ORDER BY seq"


async def lane(store: SqliteStore, number: int, *, gap: int = 100) -> list[str]:
    """So many jobs in the default queue, ordered by position."""
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION, gap=gap))
    return [await put(store) for _ in range(number)]


async def positions(store: SqliteStore) -> list[int]:
    """In claim order."""
    return [job.position for job in await store.peek("default", limit=1000)]


async def shuffle(app: Outlast, jobs: list[str], random: Random, moves: int) -> list[str]:
    """Move jobs about at random; the order that must come of it."""
    order = list(jobs)
    for _ in range(moves):
        moved, target = random.sample(jobs, 2)
        to = random.choice(["front", "back", "before", "after", "swap"])
        if to == "swap":
            one, other = order.index(moved), order.index(target)
            order[one], order[other] = target, moved
        else:
            order.remove(moved)
            ends = {"front": 0, "back": len(order), "after": len(order)}
            beside = {"before": 0, "after": 1}
            at = order.index(target) + beside[to] if to in beside else ends[to]
            order.insert(at, moved)
        if to in ("front", "back"):
            await app.move(moved, to)
        else:
            await app.move(moved, **{to: target})
    return order


@pytest.mark.req("S1-R.c")
async def test_a_dispatched_job_is_immutable_at_the_api_and_in_the_database(
    app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    @app.job
    def story(words: int) -> None: ...

    running, other = await story.enqueue(1), await story.enqueue(2)
    await take(store, types=["story"])
    before = await running.read()
    assert before.state is State.RUNNING

    for attempt in (
        running.edit(params={"words": 9}),
        running.edit(priority=9),
        running.edit(delay="1h"),
        running.move("front"),
        running.move(swap=other.id),
        other.move(swap=running.id),
    ):
        with pytest.raises(TransitionRefused, match=f"{running.id} is running"):
            await attempt
    for change in ("params = '{}'", "type = 'poem'"):
        assert sql.refuses(f"UPDATE outlast_jobs SET {change} WHERE seq = 1") == FROZEN
    for change in ("priority = 9", "position = 9", "available_at = 9"):
        assert sql.refuses(f"UPDATE outlast_open_runs SET {change}") == OPEN
    sql.refuses(
        "INSERT INTO outlast_waiting SELECT 1, state, queue, type, name, delivery, 9, 9,"
        " available_at, created_at, start_deadline, token, failures, losses, member_of"
        " FROM outlast_waiting"
    )

    assert await running.read() == before


@pytest.mark.req("S1-R.c")
async def test_making_room_and_renumbering_leave_a_running_job_alone(
    app: Outlast, store: SqliteStore
) -> None:
    jobs = await lane(store, 4, gap=1)
    running = await take(store)
    before = await job_of(store, running.id)

    await app.move(jobs[3], before=jobs[2])
    await app.queues.renumber("default")
    await app.move(jobs[1], "back")

    assert await job_of(store, running.id) == before
    await settle(store, running, Released("drain"))
    assert (await job_of(store, running.id)).position == before.position


@pytest.mark.req("S1-2.1.f")
async def test_params_are_editable_while_queued_and_refused_once_running(
    app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    @app.job
    def story(words: int) -> None: ...

    handle = await story.enqueue(1)

    assert (await handle.edit(params={"words": 2})).params == '{"words":2}'
    assert sql.value(PARAMS) == '{"words":2}'
    claim = await take(store, types=["story"])
    assert claim.params == '{"words":2}'
    with pytest.raises(TransitionRefused, match="running"):
        await handle.edit(params={"words": 3})
    assert sql.refuses("UPDATE outlast_jobs SET params = '{}'") == FROZEN
    await settle(store, claim, Released("drain"))  # queued again, but it has run
    with pytest.raises(TransitionRefused, match="frozen at its first claim"):
        await handle.edit(params={"words": 3})
    assert sql.refuses("UPDATE outlast_jobs SET params = '{}'") == FROZEN
    assert sql.value(PARAMS) == '{"words":2}'


@pytest.mark.req("S1-2.1.h")
async def test_priority_changes_while_queued_and_the_order_follows(
    app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    a, b, c = await lane(store, 3)
    await app.edit(c, priority=7)
    await app.edit(b, priority=7)

    assert await order_of(store) == [c, b, a]
    assert [job.position for job in await app.queues.next_jobs("default", 3)] == [100, 200, 100]
    assert await claim_order(store, limit=1) == [c]
    with pytest.raises(TransitionRefused, match=f"{c} is running"):
        await app.edit(c, priority=0)
    assert sql.refuses("UPDATE outlast_open_runs SET priority = 0") == OPEN
    assert await claim_order(store) == [b, a]


@pytest.mark.req("S1-2.1.i")
async def test_position_changes_while_queued_and_the_order_follows(
    app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    a, b, c = await lane(store, 3)
    await app.move(c, before=a)

    assert await order_of(store) == [c, a, b]
    assert await claim_order(store, limit=1) == [c]
    with pytest.raises(TransitionRefused, match=f"{c} is running"):
        await app.move(c, "back")
    assert sql.refuses("UPDATE outlast_open_runs SET position = 900") == OPEN
    assert await claim_order(store) == [a, b]


@pytest.mark.req("S1-2.1.t")
@pytest.mark.parametrize("number", [4, 5, 9, 10])
async def test_a_fault_in_mid_reorder_leaves_the_old_order(
    number: int, app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    jobs = await lane(store, 12, gap=1)  # no room: whoever is near is moved along
    before = sql.rows(PLACES)
    sql.write(FAULT.format(number))

    with pytest.raises((OperatorError, TransitionRefused)):
        await app.move(jobs[9], before=jobs[4])

    assert sql.rows(PLACES) == before
    assert await order_of(store) == jobs
    assert sql.value("SELECT count(*) FROM outlast_events") == 0
    sql.write("DROP TRIGGER fault")
    await app.move(jobs[9], before=jobs[4])
    assert await order_of(store) == [*jobs[:4], jobs[9], *jobs[4:9], *jobs[10:]]


@pytest.mark.req("S1-2.1.t")
@pytest.mark.parametrize("name", ["move_tight", "move_unplaced", "move_swap", "swap_unplaced"])
def test_killed_in_mid_reorder_the_order_is_the_old_one_or_the_new_one(
    name: str, tmp_path: Path
) -> None:
    found = wrecks(name, tmp_path, every=True)
    old, new = (tables["outlast_waiting"] for tables in (found[0].before, found[0].after))

    left = [wreck.found["outlast_waiting"] for wreck in found]

    assert old != new
    assert [rows in (old, new) for rows in left] == [True] * len(left)
    assert (left[0], left[-1]) == (old, new)
    assert len(found) > 5


@pytest.mark.req("S1-3.2.d")
async def test_inserting_between_two_jobs_shifts_nobody(
    app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    a, b, c = await lane(store, 3)
    before = sql.rows(PLACES)

    assert (await app.move(c, before=b)).position == 150

    after = sql.rows(PLACES)
    assert after[:2] == before[:2]
    assert await order_of(store) == [a, c, b]
    assert await positions(store) == [100, 150, 200]


@pytest.mark.req("S1-3.2.e")
async def test_a_swap_exchanges_positions_and_changes_two_rows_only(
    app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    jobs, random = await lane(store, 30), Random(8)
    for _ in range(20):
        one, other = random.sample(jobs, 2)
        before, order = sql.rows(PLACES), await order_of(store)

        await app.move(one, swap=other)

        changed = [old for old, new in zip(before, sql.rows(PLACES), strict=True) if old != new]
        exchanged = {one: other, other: one}
        assert len(changed) == 2
        assert await order_of(store) == [exchanged.get(job_id, job_id) for job_id in order]
        assert sorted(await positions(store)) == [100 * n for n in range(1, 31)]


@pytest.mark.req("S1-3.2.f")
async def test_positions_are_renumbered_in_order(
    app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    a, b, c = await lane(store, 3)
    sql.write(
        "UPDATE outlast_waiting SET position = 151 WHERE job = 2",
        "UPDATE outlast_waiting SET position = 150 WHERE job = 3",
    )
    assert await positions(store) == [100, 150, 151]

    assert await app.queues.renumber("default") == 2

    assert await positions(store) == [100, 200, 300]
    assert await order_of(store) == [a, c, b]
    assert await app.queues.renumber("default") == 0


@pytest.mark.req("S1-3.2.g")
@pytest.mark.parametrize("number", [1, 3, 6])
async def test_a_fault_midway_through_renumbering_leaves_the_old_positions(
    number: int, app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    jobs = await lane(store, 6)
    for job_id in jobs[::-1]:
        await app.move(job_id, "front")
    before = sql.rows(PLACES)
    sql.write(FAULT.format(number))

    with pytest.raises(OperatorError, match="disk fault"):
        await app.queues.renumber("default")

    assert sql.rows(PLACES) == before
    assert await store.events(None) == []
    sql.write("DROP TRIGGER fault")
    assert await app.queues.renumber("default") == 6
    assert await order_of(store) == jobs


@pytest.mark.req("S1-3.2.g")
@pytest.mark.parametrize("name", ["renumber", "renumber_placed"])
def test_killed_while_renumbering_the_positions_are_all_old_or_all_new(
    name: str, tmp_path: Path
) -> None:
    found = wrecks(name, tmp_path, every=True)
    old, new = found[0].before, found[0].after

    assert old["outlast_waiting"] != new["outlast_waiting"]
    assert [wreck.found in (old, new) for wreck in found] == [True] * len(found)
    assert (found[0].found, found[-1].found) == (old, new)


@pytest.mark.req("S1-1.2.d", "S1-5.4.a")
@pytest.mark.parametrize("ordering", Ordering)
async def test_an_order_made_by_hand_is_in_the_file_and_nowhere_else(
    ordering: Ordering,
    app: Outlast,
    store: SqliteStore,
    clock: FakeClock,
    path: Path,
    tmp_path: Path,
) -> None:
    await store.set_queue(Queue(name="default", ordering=ordering))
    jobs = [await put(store) for _ in range(15)]
    expected = await shuffle(app, jobs, Random(5), 60)
    copy = copy_of(path, tmp_path / "copy.db")
    vacuumed = sqlite3.connect(copy_of(path, tmp_path / "vacuumed.db"))
    vacuumed.execute("VACUUM")
    vacuumed.close()

    assert await order_of(store) == expected
    assert ask(enqueue, path, []) == expected  # another process
    for other in (copy, tmp_path / "vacuumed.db"):
        elsewhere = await opened(other, clock=FakeClock())
        assert await order_of(elsewhere) == expected
        for switched in (*Ordering, ordering):
            await elsewhere.set_queue(Queue(name="default", ordering=switched, gap=3))
            assert await order_of(elsewhere) == expected
        assert await claim_order(elsewhere) == expected
        await elsewhere.close()
    assert await claim_order(store) == expected


@pytest.mark.req("S1-5.4.d")
async def test_the_same_moves_give_the_same_order_whatever_the_gap(
    app: Outlast, store: SqliteStore
) -> None:
    orders = []
    for gap in (1, 2, 100, 5000):
        jobs = await lane(store, 12, gap=gap)
        expected = await shuffle(app, jobs, Random(13), 80)
        found = await claim_order(store)
        assert found == expected
        orders.append([jobs.index(job_id) for job_id in found])

    assert orders[1:] == orders[:-1]
