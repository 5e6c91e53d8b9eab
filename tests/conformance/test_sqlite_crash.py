"""Killed at every statement of every verb, a SQLite file holds the state before or after it."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.core.decide import decide, succeed
from outlast.core.event import Lost, Unblocked
from outlast.core.run import LeaseHolder
from outlast.core.state import FINAL, Loss, State
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.statements import statements
from outlast.store.sqlite.store import SqliteStore
from outlast.verify import verify
from outlast.worker.maintenance.history_inspector import HistoryInspector
from outlast.worker.maintenance.recovery import Recovery
from support.crash.runner import Crasher, Point, chosen, clocked, play
from support.crash.scenarios import SCENARIOS
from support.crash.scenarios_transfer import MOVING
from support.crash.sqlite_target import BENCH, dump
from support.crash.world import HOLDER, LEASE, TYPES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("sqlite-crash"),  # who killed where is remembered from test to test
]

SOUND = set(SCENARIOS) - {"unblock"}
"""Worlds that nobody has broken; in that one a job is blocked without a group."""
NEWCOMER = LeaseHolder(instance_id="newcomer", boot_id="boot-9")

# Run once per connection, before any verb, in memory: nothing to be half-way through.
ELSEWHERE = {"schema.has_meta", "schema.is_empty"} | {
    name for name in statements() if name.startswith("schema.temp_")
}


@pytest.fixture(scope="module")
def crasher() -> Iterator[Crasher]:
    with Crasher("support.crash.sqlite_target:BENCH") as helper:
        yield helper


@pytest.fixture(scope="module")
def killed() -> set[str]:
    """The statements before which something has died already."""
    return set()


@pytest.fixture(scope="module")
def seen() -> dict[str, set[str]]:
    """The statements of each scenario that was played already."""
    return {}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with nothing in it; a copy is there sooner than another one is made."""
    path = tmp_path_factory.mktemp("empty") / "jobs.db"
    asyncio.run(_make(path))
    return path


async def _make(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


@pytest.mark.parametrize("name", sorted(BENCH.scenarios))
def test_killed_at_every_statement_it_is_all_or_nothing(
    name: str,
    crasher: Crasher,
    killed: set[str],
    seen: dict[str, set[str]],
    empty: Path,
    tmp_path: Path,
) -> None:
    sound = BENCH.scenarios[name].sound

    def new(file: str) -> Path:
        path = tmp_path / file
        return shutil.copy(empty, path) if BENCH.scenarios[name].opened else path

    asyncio.run(play(BENCH, new("before.db"), name, lambda *_: None, act=False))
    before = dump(tmp_path / "before.db", sound=sound)
    points = crasher.points(new("after.db"), name)
    after = dump(tmp_path / "after.db")
    seen[name] = {point.name for point in points}
    assert points, "the act ran no statement"

    for point in chosen(points, killed, writes=before != after):
        path = new(f"{point.nth}.db")
        crasher.kill(path, name, point)

        assert dump(path, sound=sound) == (after if _is_durable(points, point) else before), point
    for path in ("before.db", "after.db"):  # there is no third state to go on from
        if name not in MOVING:  # such a store takes no work
            asyncio.run(_everything_ends(tmp_path / path, sound=name in SOUND))


def _is_durable(points: list[Point], point: Point) -> bool:
    """Whether the commit that counts was over when it died there."""
    commits = [p.nth for p in points if p.name == "unit_of_work.commit" and p.after]
    return bool(commits) and point.nth >= commits[0]


async def _everything_ends(path: Path, *, sound: bool) -> None:
    """Nothing acknowledged is lost and nothing is stuck: a fresh worker brings all to an end.

    What it leaves is proved; what is `sound` before it came, is too.
    """
    clock, ids = clocked()
    with_clock = SqliteStore(path, clock=clock, ids=ids)
    await with_clock.open()
    assert not sound or (await verify(with_clock)).violations == ()
    known = {job.id for job in await with_clock.find(Filter(), limit=1000)}
    await HistoryInspector(with_clock, ids.job).inspect()
    await Recovery(with_clock, NEWCOMER, scope="instance", new_id=ids.job).run_once()
    for _ in range(10):
        clock.advance("1d")
        for job in await with_clock.expired_leases(limit=100):
            await with_clock.apply([decide(job, Lost(Loss.LEASE_EXPIRED), new_id=ids.job)])
        for job in await with_clock.find(Filter(states=frozenset({State.BLOCKED})), limit=100):
            await with_clock.apply([decide(job, Unblocked(), new_id=ids.job)])
        claims = await with_clock.claim(
            HOLDER, queue="default", types=TYPES, limit=100, lease=LEASE
        )
        changes = [succeed(claim.job_id, claim.token, None) for claim in claims]
        assert all(await with_clock.apply(changes))
        found = await with_clock.find(Filter(), limit=1000)
        stuck = [job for job in found if job.state not in FINAL and job.start_deadline is None]
        if not stuck:
            break
    assert (await verify(with_clock)).violations == ()
    await with_clock.close()
    assert known <= {job.id for job in found}
    assert stuck == []


def test_every_statement_is_in_the_list(
    crasher: Crasher, seen: dict[str, set[str]], tmp_path: Path
) -> None:
    for name in sorted(set(BENCH.scenarios) - set(seen)):
        seen[name] = {point.name for point in crasher.points(tmp_path / f"{name}.db", name)}

    missing = set(statements()) - ELSEWHERE - set().union(*seen.values())

    assert missing == set(), "give each of these a scenario in which it runs"
