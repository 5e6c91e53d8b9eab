"""The children of a killed supervisor do not stay, and no job has two copies because of them."""

import os
from pathlib import Path

import pytest

import outlast

from .worker_tree import LONG, TESTS, until

pytestmark = pytest.mark.slow

ENDLESS = 600
"""Seconds that outlast every test."""

PROCESSES = 6
"""Supervisor, child, guardian, the shell of the command, its `sleep` and its daemon."""

BLOCKING = ("blocks_loop", "blocks_thread", "blocks_interpreter")


def test_children_that_block_die_with_their_supervisor_before_a_job_has_a_second_copy(
    grow, ledger, notes
):
    first = grow("-p", "3", "-c", "1", **LONG).ready(3)
    jobs = ledger.enqueue(*[(kind, {"seconds": ENDLESS}) for kind in BLOCKING])
    until(lambda: len(notes.all()) == 3, what="three runs")
    grow("-p", "3", "-c", "1", **LONG).ready(3)

    first.kill_supervisor()
    until(lambda: len(notes.all()) > 3, what="a second run")
    left = first.members()

    until(lambda: all(len(notes.of(job)) == 2 for job in jobs), what="the other second runs")
    assert left == []
    assert ledger.ends() == [("lost", "owner_dead")] * 3


def test_what_a_child_has_started_dies_with_its_supervisor(grow, ledger, notes):
    first = grow("-c", "2", **LONG).ready()
    ledger.enqueue(("sleeps_in_a_command", {}))
    until(lambda: len(first.members()) == PROCESSES, what="the command and its daemon")
    [job] = ledger.enqueue(("blocks_interpreter", {"seconds": ENDLESS}))
    until(lambda: notes.of(job), what="a blocked child")

    first.kill_supervisor()

    first.gone()


def test_supervisor_started_again_at_once_takes_nothing_before_the_orphans_are_gone(
    grow, ledger, notes
):
    first = grow("--instance-id", "again", "-c", "1", lease="6s").ready()
    [job] = ledger.enqueue(("blocks_loop", {"seconds": ENDLESS}))
    until(lambda: notes.under_way(), what="a run")

    first.kill_supervisor()
    grow("--instance-id", "again", "-c", "1", lease="6s").ready()

    assert first.members() == []
    assert ledger.ends(job) == [("lost", "startup_recovery")]


def test_without_a_death_signal_children_notice_the_death_and_their_jobs_go_on(grow, ledger, notes):
    tree = grow("-p", "2", "-c", "2", env=without_death_signal(), prefetch=0, **LONG).ready(2)
    wanted = [("waits", {"gate": "never"}), ("waits_threaded", {"gate": "never"})]
    jobs = ledger.enqueue(*wanted, ("blocks_loop", {"seconds": ENDLESS}))
    until(lambda: len(notes.under_way()) == 3, what="three runs")

    tree.kill_supervisor()
    tree.gone()
    grow("--instance-id", "heir", "-q", "default").ready()

    until(lambda: [ledger.state(job) for job in jobs[:2]] == ["succeeded"] * 2, what="the end")
    until(lambda: ledger.state(jobs[2]) == "queued", what="the blocked run's loss")
    assert tree.lines("the supervisor is gone")


def test_without_a_death_signal_a_child_about_to_leave_hands_its_runs_back(grow, ledger, notes):
    options = {"lease": "6s", "renew": "1s", "env": without_death_signal()}
    tree = grow("--max-jobs", "1", "-c", "2", **options).ready()
    [kept] = ledger.enqueue(("waits", {"gate": "never"}))
    until(lambda: notes.of(kept), what="a run to be kept")
    ledger.enqueue(("brief", {"n": 0, "seconds": 0}))
    until(lambda: len(tree.lines("child started")) > 1, what="the child in its place")

    tree.kill_supervisor()
    tree.gone()

    assert ledger.ends(kept) == [("released", "shutdown")]
    assert ledger.failures(kept) == 0


def without_death_signal():
    path = [
        str(TESTS / "chaos" / "without_death_signal"),
        str(Path(outlast.__file__).parent.parent),
        os.environ.get("PYTHONPATH", ""),
    ]
    return {"PYTHONPATH": os.pathsep.join(filter(None, path))}
