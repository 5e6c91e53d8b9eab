"""A full disk, a locked file, a clock that is set: the worker stays up and goes on by itself."""

import os
import resource
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import outlast

from .worker_tree import PATIENCE, SHORT, TESTS, until

pytestmark = pytest.mark.slow

DAY = 86_400
LEASE = 6
BRIEF = ("brief", {"n": 0, "seconds": 0.01})


def test_worker_outlasts_a_full_disk_and_goes_on_by_itself(grow, ledger, notes):
    """A limit on the size of files stands in for the disk: the store's may grow no more."""
    tree = grow().ready()
    # Files of ours that are not the store's must stay below the limit, wherever they grow to.
    ledger.rows("CREATE TABLE ballast AS SELECT zeroblob(4000000) AS what")
    jobs = ledger.enqueue(("waits", {"gate": "full"}))
    until(lambda: notes.of(jobs[0]), what="its run")
    members = tree.members()

    with no_room_for(members, ledger.path):
        notes.open_gate("full")
        until(lambda: tree.lines("not written") or tree.lines("cannot"), what="a complaint")
        jobs += ledger.enqueue(*[BRIEF] * 20)
        assert tree.code is None

    until(lambda: not ledger.unfinished, what="the end")
    assert tree.members() == members
    assert set(ledger.states().values()) == {"succeeded"}
    assert ledger.is_sound


def test_worker_outlasts_a_lock_that_is_held_for_several_leases(grow, ledger, notes, tmp_path):
    tree = grow(env={"CHAOS_URL": f"sqlite:///{ledger.path}?busy=0.3"}, **SHORT).ready()
    jobs = ledger.enqueue(("waits", {"gate": "locked"}), *[BRIEF] * 20)
    until(lambda: notes.of(jobs[0]), what="its run")
    members = tree.members()

    with locked(ledger.path):
        notes.open_gate("locked")
        until(lambda: tree.lines("cannot renew", "failures=10"), what="failed renewals")
        until(lambda: tree.lines("not written") or tree.lines("cannot take"), what="a complaint")

    until(lambda: not ledger.unfinished, what="the end")
    assert tree.members() == members
    assert set(ledger.states().values()) == {"succeeded"}


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_wall_clock_set_by_a_day_steals_no_lease(grow, ledger, notes, tmp_path, jump):
    shift = tmp_path / "shift"
    shift.write_text("0")
    env = shifted(shift)
    grow("--instance-id", "holder", env=env, lease=f"{LEASE}s").ready()
    [job] = ledger.enqueue(("waits", {"gate": "go"}))
    [first] = until(lambda: notes.of(job), what="its run")
    rival = grow("--instance-id", "rival", env=env).ready()

    set_to(shift, jump)
    pass_a_lease(ledger, job)
    notes.open_gate("go")
    until(lambda: not ledger.unfinished, what="the end")

    assert notes.of(job) == [first]
    assert ledger.ends(job) == [("succeeded", None)]
    [run] = ledger.runs(job)
    assert (run.finished - run.started > DAY / 2) == (jump > 0)
    assert not rival.lines("lease lapsed")


def set_to(shift, seconds):
    """At one moment, for every process."""
    new = shift.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(shift)


def shifted(shift):
    path = [
        str(TESTS / "chaos" / "shifted"),
        str(Path(outlast.__file__).parent.parent),
        os.environ.get("PYTHONPATH", ""),
    ]
    return {"CHAOS_SHIFT": str(shift), "PYTHONPATH": os.pathsep.join(filter(None, path))}


def pass_a_lease(ledger, job):
    """Until the lease of that run has been renewed for as long as a lease lasts."""
    query = (
        "SELECT o.lease_until / 1e6 FROM outlast_open_runs o "
        "JOIN outlast_jobs j ON j.seq = o.job WHERE j.id = ?"
    )
    [(held_until,)] = ledger.rows(query, job)
    wanted = held_until + LEASE
    until(lambda: ledger.rows(query, job)[0][0] >= wanted, what="renewals")


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.rollback()


@contextmanager
def no_room_for(pids, path):
    """Those processes cannot make any file larger than the store's log is now."""
    size = Path(f"{path}-wal").stat().st_size
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    try:
        for pid, (_, most) in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))
        yield
    finally:
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
