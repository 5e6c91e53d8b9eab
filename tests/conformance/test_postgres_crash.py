"""Killed at every statement of every verb, a PostgreSQL schema holds the state before or after."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from outlast.core.decide import decide, succeed
from outlast.core.event import EventKind, Lost, Unblocked
from outlast.core.run import LeaseHolder
from outlast.core.state import FINAL, Loss, State
from outlast.errors import OperatorError
from outlast.scheduler.trigger import Trigger
from outlast.store.contract.jobs import Filter
from outlast.store.postgres.placeholders import statements
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.url import PostgresUrl
from outlast.testing.conformance import sizes
from outlast.testing.servers.postgres import PostgresServer
from outlast.verify import verify
from outlast.worker.maintenance.history_inspector import HistoryInspector
from outlast.worker.maintenance.recovery import Recovery
from support.corruption.postgres import empty_on
from support.crash.postgres_target import BENCH, dump, make
from support.crash.runner import Crasher, Point, brings_nothing_new, chosen, clocked, play
from support.crash.scenarios import SCENARIOS
from support.crash.scenarios_transfer import MOVING
from support.crash.world import HOLDER, LEASE, TYPES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("postgres-crash"),  # who killed where is remembered from test to test
]

SOUND = set(SCENARIOS) - {"unblock"}
"""Worlds that nobody has broken; in that one a job is blocked without a group."""
IN_STEPS = {"report"}
"""Several reports of one run: each is an item, and the later one stands on the earlier."""

OF_THE_CALLER = {"add_within_own_transaction"}
"""Here the last statement is not ours: what was added is there when the caller commits."""

CUT = sorted({*SCENARIOS} - {"claim_some"})[:: 1 if sizes.SIZES.crash_on_either_side else 5]
"""A claim that is asked again names its runs anew: the tests of faults look at that."""

NOT_DURABLE = "it was answered, and not durable"

Dump = dict[str, list[Any]]
NEWCOMER = LeaseHolder(instance_id="newcomer", boot_id="boot-9")

ELSEWHERE = {
    name
    for name in statements()
    if name.startswith(("schema.", "locks.", "notify.", "health.", "sessions."))
}
"""Run once per connection, or they write nothing: the tests of these parts run them."""

ODD = {
    "unit_of_work.now",  # where no test hands in its clock
    "claim.opened_by_prefix",  # after an answer was lost: see the tests of faults
    "apply.recorded",  # the same
    "runs.is_attachable",  # reads, after a refusal
    "queues.wait_for_claims",  # writes nothing: waits for claims that know no limit yet
}
"""No scenario of one undisturbed verb gets there."""


@pytest.fixture(scope="module")
def crasher() -> Iterator[Crasher]:
    with Crasher("support.crash.postgres_target:BENCH") as helper:
        yield helper


class Place:
    """One schema for every case, which is emptied first: that takes 5 ms, to make one 150."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self.address = self._runner.run(make(url))
        self._connection = self._runner.run(asyncpg.connect(self.address.dsn))
        self.killed: set[str] = set()
        self.seen: dict[str, set[str]] = {}

    def empty(self) -> None:
        self._runner.run(empty_on(self._connection, self.address.schema, "effects"))

    def dump(self) -> Dump:
        return self._runner.run(dump(self._connection, self.address.schema))

    def cut(self) -> None:
        """Every connection of a store."""
        self._runner.run(
            self._connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'outlast'"
            )
        )

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()


@pytest.fixture(scope="module")
def place(postgres: PostgresServer) -> Iterator[Place]:
    url = postgres.new_database()
    made = Place(url)
    yield made
    made.close()
    postgres.drop_database(url.rpartition("/")[2])


@pytest.fixture
def path(place: Place, tmp_path: Path) -> Path:
    file = tmp_path / "address"
    file.write_text(place.address.dsn)
    return file


@pytest.mark.parametrize("name", sorted(BENCH.scenarios))
def test_killed_at_every_statement_it_is_all_or_nothing(
    name: str, crasher: Crasher, path: Path, place: Place
) -> None:
    place.empty()
    points = crasher.points(path, name)
    after = _promoted(name, place.dump())
    place.seen[name] = {point.name for point in points}
    assert points, "the act ran no statement"

    if brings_nothing_new(points, place.killed):
        place.empty()
        crasher.kill(path, name, points[-1])
        assert name in OF_THE_CALLER or _promoted(name, place.dump()) == after, NOT_DURABLE
    else:
        _kill_at_every_statement(name, crasher, path, place, points, after)


def _kill_at_every_statement(
    name: str, crasher: Crasher, path: Path, place: Place, points: list[Point], after: Dump
) -> None:
    place.empty()
    asyncio.run(play(BENCH, path, name, lambda *_: None, act=False))
    before = _promoted(name, place.dump())
    found = []
    for point in chosen(points, place.killed, writes=before != after):
        place.empty()
        crasher.kill(path, name, point)

        state = _promoted(name, place.dump())
        assert name in IN_STEPS or _is_allowed(state, before, after), point
        found.append(state == after)
    assert found == list(accumulate(found, max)), "what was durable was lost again"
    assert found[-1] or name in OF_THE_CALLER, NOT_DURABLE
    if name not in MOVING:  # such a store takes no work
        asyncio.run(_everything_ends(place.address, sound=name in SOUND))


def _promoted(name: str, state: Dump) -> Dump:
    """A claim first promotes, which is a write of its own, and harmless to repeat."""
    if not name.startswith("claim"):
        return state
    due = {"scheduled": "queued", "retry_wait": "queued"}
    waiting = [[due.get(str(value), value) for value in row] for row in state["waiting"]]
    return {**state, "waiting": waiting}


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


@pytest.mark.parametrize("name", CUT)
def test_connection_cut_at_any_statement_it_is_all_or_nothing(
    name: str, path: Path, place: Place
) -> None:
    """Once in every verb, at another statement in each: the store asks again, or says so."""
    place.empty()
    asyncio.run(play(BENCH, path, name, lambda *_: None, act=False))
    before = _certain(name, place.dump())
    place.empty()
    seen: list[str] = []
    asyncio.run(play(BENCH, path, name, lambda n, _: seen.append(n), act=True))
    after = _certain(name, place.dump())
    nth = sum(map(ord, name)) % len(seen)
    place.empty()

    answered = asyncio.run(_play_and_cut(path, name, nth, place))

    state = _certain(name, place.dump())
    assert state == after if answered else _is_allowed(state, before, after), seen[nth]


def _certain(name: str, state: Dump) -> Dump:
    """Without what a lost reply leaves open: late writes, and the ids of runs claimed again."""
    late = EventKind.LATE_WRITE_REFUSED
    events = [row for row in state["events"] if late not in row]
    open_runs = [[job, f"a run of {job}", *row] for job, _, *row in state["open_runs"]]
    return _promoted(name, {**state, "events": events, "open_runs": open_runs})


async def _play_and_cut(path: Path, name: str, nth: int, place: Place) -> bool:
    """Whether it was answered, though every connection was cut at the `nth` call of the probe."""
    calls = count()

    def probe(_: str, __: bool) -> None:
        if next(calls) == nth:
            with ThreadPoolExecutor(1) as thread:  # this one's loop is in the middle of something
                thread.submit(place.cut).result()

    try:
        await play(BENCH, path, name, probe, act=True)
    except OperatorError:
        return False
    return True


async def _everything_ends(where: PostgresUrl, *, sound: bool) -> None:
    """Nothing acknowledged is lost and nothing is stuck: a fresh worker brings all to an end.

    What it leaves is proved; what is `sound` before it came, is too.
    """
    clock, ids = clocked()
    store = PostgresStore(where.dsn, clock=clock, ids=ids)
    await store.open()
    assert not sound or (await verify(store)).violations == ()
    known = {job.id for job in await store.find(Filter(), limit=1000)}
    await HistoryInspector(store, ids.job).inspect()
    await Recovery(store, NEWCOMER, scope="instance", new_id=ids.job).run_once()
    for _ in range(10):
        clock.advance("1d")
        for job in await store.expired_leases(limit=100):
            await store.apply([decide(job, Lost(Loss.LEASE_EXPIRED), new_id=ids.job)])
        for job in await store.find(Filter(states=frozenset({State.BLOCKED})), limit=100):
            await store.apply([decide(job, Unblocked(), new_id=ids.job)])
        claims = await store.claim(HOLDER, queue="default", types=TYPES, limit=100, lease=LEASE)
        changes = [succeed(claim.job_id, claim.token, None) for claim in claims]
        assert all(await store.apply(changes))
        found = await store.find(Filter(), limit=1000)
        stuck = [job for job in found if job.state not in FINAL and job.start_deadline is None]
        if not stuck:
            break
    assert (await verify(store)).violations == ()
    await store.close()
    assert known <= {job.id for job in found}
    assert stuck == []


def test_killed_anywhere_in_a_trigger_on_a_server_its_slot_has_one_job(
    crasher: Crasher, path: Path, place: Place
) -> None:
    place.empty()
    points = crasher.points(path, "schedule_fire_together")

    for point in points:
        if point.after and not sizes.SIZES.crash_on_either_side:
            continue
        place.empty()
        crasher.kill(path, "schedule_fire_together", point)
        asyncio.run(_fires_once(place.address))


async def _fires_once(where: PostgresUrl) -> None:
    """Whoever triggers next, each slot has its row and its job, and they are the only ones."""
    clock, ids = clocked()
    store = PostgresStore(where.dsn, clock=clock, ids=ids)
    await store.open()
    await Trigger(store, ids.job).run_once()
    schedules = await store.schedules(limit=9)
    rows = [row for each in schedules for row in await store.slots(each.series, limit=9)]
    jobs = {job.id for job in await store.find(Filter(), limit=9)}
    proof = await verify(store)
    await store.close()
    assert (len(schedules), len(rows)) == (2, 2)
    assert {row.job_id for row in rows} == jobs
    assert {each.last_triggered_at for each in schedules} == {clock.now()}
    assert proof.violations == ()


def test_every_statement_is_in_the_list(crasher: Crasher, path: Path, place: Place) -> None:
    for name in sorted(set(BENCH.scenarios) - set(place.seen)):
        place.empty()
        place.seen[name] = {point.name for point in crasher.points(path, name)}

    missing = set(statements()) - ELSEWHERE - ODD - set().union(*place.seen.values())

    assert sorted(missing) == [], "give each of these a scenario in which it runs"
