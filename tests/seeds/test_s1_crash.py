"""S1: killed at any statement of any transition, the file holds the state before or after it."""

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from outlast.core.audit.violation import ViolationCode
from outlast.core.decide import CLAIM
from outlast.core.state import State
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import LAPSED, MANY, make_holder, new_id, settle
from outlast.testing.conformance.histories.invariants import Dump, check_dump
from outlast.verify import verify
from outlast.worker.maintenance.history_inspector import HistoryInspector
from outlast.worker.maintenance.recovery import Recovery

from .child_process import Child
from .crashing import Wreck
from .database_file import Sql, opened
from .random_operations import operate_until_killed
from .states import DELIVERIES, ways

Wreckage = dict[str, list[Wreck]]

NO_RUN = """
SELECT id FROM outlast_job_state AS s
WHERE state = 'running' AND NOT EXISTS (SELECT 1 FROM outlast_open_runs WHERE job = s.seq)
   OR token <> (SELECT count(*) FROM outlast_runs WHERE job = s.seq)
     + (SELECT count(*) FROM outlast_open_runs WHERE job = s.seq)
"""
"""Jobs without the run they should have: the left join of S1-5.1, and what it could overlook."""

PLACED = """
SELECT s.id, EXISTS (SELECT 1 FROM outlast_waiting WHERE job = s.seq)
   OR EXISTS (SELECT 1 FROM outlast_open_runs WHERE job = s.seq)
   OR EXISTS (SELECT 1 FROM outlast_ends WHERE job = s.seq)
FROM outlast_job_state AS s
"""
"""Every job that is listed, and whether it waits, runs or has ended by the tables themselves."""


@pytest.mark.slow
@pytest.mark.req("S1-0.d")
def test_killed_at_any_statement_of_any_transition_it_is_all_or_nothing(wreckage: Wreckage) -> None:
    changing = {name for name, wrecks in wreckage.items() if wrecks[0].before != wrecks[0].after}
    deciding = {name for name, wrecks in wreckage.items() if wrecks[0].changes}
    assert changing >= deciding | {"add_plain", "claim_some", "promote_due", "prune"}
    for name, wrecks in wreckage.items():
        is_durable = [wreck.found == wreck.after for wreck in wrecks]

        assert all(wreck.found in (wreck.before, wreck.after) for wreck in wrecks), name
        assert wrecks[0].found == wrecks[0].before, name
        assert is_durable == sorted(is_durable), f"{name} was durable, then not"
        assert is_durable[-1], f"{name} answered before it was durable"


@pytest.mark.slow
@pytest.mark.req("S1-7.a")
def test_every_transition_has_its_fault_test(wreckage: Wreckage) -> None:
    changes = [change for wrecks in wreckage.values() for change in wrecks[0].changes]
    claimed = wreckage["claim_some"][0]

    tested = {(change.was, change.move) for change in changes}

    assert set(ways(*DELIVERIES)) - tested == set(), "give each of these a scenario"
    assert CLAIM == (State.QUEUED, State.RUNNING)
    assert claimed.after["outlast_open_runs"], "the one transition a store decides alone"


@pytest.mark.slow
@pytest.mark.req("S1-0.b")
def test_killed_at_any_write_every_accepted_job_is_listed_with_its_fate(wreckage: Wreckage) -> None:
    for name, wrecks in wreckage.items():
        for wreck in wrecks:
            accepted = {row[1] for row in wreck.after["outlast_jobs"]}  # less what a purge took
            if wreck is not wrecks[-1]:  # the act was not answered yet
                accepted &= {row[1] for row in wreck.before["outlast_jobs"]}

            listed = dict(Sql(wreck.path).rows(PLACED))

            assert accepted <= listed.keys(), (name, wreck.statement)
            placed = {job_id for job_id, is_placed in listed.items() if is_placed}
            assert accepted - placed == _adrift(wreck, name), wreck.statement


@pytest.mark.slow
@pytest.mark.req("S1-5.1.a")
async def test_after_any_crash_and_recovery_no_job_lacks_its_run(wreckage: Wreckage) -> None:
    seen = Counter[str]()
    for name, wrecks in wreckage.items():
        for wreck in (wrecks[0], wrecks[-1]):  # there is no third state, as S1-0.d shows
            seen.update(
                dict(Sql(wreck.path).rows("SELECT id, state FROM outlast_job_state")).values()
            )
            is_broken = name.startswith("resume_") and wreck is wrecks[0]
            assert bool(Sql(wreck.path).rows(NO_RUN)) is is_broken, name

            await _recover(wreck.path, timedelta(days=1))

            assert Sql(wreck.path).rows(NO_RUN) == [], name
    assert seen["running"], "nothing was running in any of them"


@pytest.mark.slow
@pytest.mark.req("S1-0.e")
async def test_random_lives_and_deaths_leave_no_corrupt_or_ambiguous_queue(
    quick_folder: Path,
) -> None:
    path, sql = quick_folder / "lives.db", Sql(quick_folder / "lives.db")
    ends = Counter[str]()

    for hour in range(25):
        with Child(operate_until_killed, path, hour, hour) as child:
            assert child.end() == -9
        chained = await _recover(path, timedelta(hours=hour, minutes=59))

        assert sql.rows(NO_RUN) == []
        assert sql.rows("PRAGMA foreign_key_check") == []
        assert sql.rows("PRAGMA integrity_check") == [("ok",)]
        assert sql.rows(
            "SELECT r.job FROM outlast_runs AS r JOIN outlast_jobs AS j ON j.seq = r.job"
            " WHERE j.delivery = 'linked' GROUP BY r.job HAVING count(*) > 1"
        ) == []  # fmt: skip
        assert await _order(path) == await _order(path)
        ends.update(dict(sql.rows("SELECT id, state FROM outlast_job_state")).values())
        ends["chained"] += chained
    assert {"queued", "succeeded", "dead_letter", "failed", "chained"} <= ends.keys()


def _adrift(wreck: Wreck, name: str) -> set[str]:
    """What was in no place on purpose and is not repaired yet."""
    if not name.startswith("resume_") or wreck.found != wreck.before:
        return set()
    return {row[1] for row in wreck.before["outlast_jobs"]}


async def _recover(path: Path, passed: timedelta) -> int:
    """Open what a killed process left, recover, and lose every run whose lease is over by then.

    Everything the store tells afterwards is held against every invariant; how many jobs follow
    another one.
    """
    clock = FakeClock()
    clock.advance(passed)
    store = await opened(path, clock=clock)
    await HistoryInspector(store, new_id).inspect()
    await Recovery(store, make_holder("newcomer"), scope="instance", new_id=new_id).run_once()
    for job in await store.expired_leases(limit=MANY):
        assert await settle(store, job, LAPSED)
    jobs = {job.id: job for job in await store.find(Filter(), limit=MANY)}
    runs = {job_id: await store.runs(job_id) for job_id in jobs}
    events = {job_id: await store.events(job_id) for job_id in jobs}
    found = {violation.code for violation in (await verify(store)).violations}
    assert found <= {ViolationCode.BLOCKED_WITHOUT_GROUP}, (
        "one scenario blocks a job without a group"
    )
    await store.close()
    chained = {
        job_id
        for job_id, job in jobs.items()
        if job.retry_of and any(event.kind == "chained" for event in events[job.retry_of])
    }
    check_dump(Dump(jobs, runs, events), chained=chained)
    return len(chained)


async def _order(path: Path) -> list[str]:
    store = await opened(path)
    order = [job.id for job in await store.peek("default", limit=MANY)]
    await store.close()
    return order
