"""A burst runs what is due to its end, whatever becomes of its children, and tells how it went."""

import pytest

from .worker_tree import until

pytestmark = pytest.mark.slow

FAILED = 1


def test_failure_is_told_though_its_child_died_before_the_burst_was_over(grow, ledger):
    failed, _ = ledger.enqueue(("fails", {}), ("forks_and_exits", {"seconds": 0}))

    tree = grow("--burst", "-c", "1", prefetch=0)

    assert tree.wait() == FAILED
    assert ledger.state(failed) == "dead_letter"
    assert tree.lines("child died")


def test_burst_waits_for_the_jobs_of_a_child_that_is_about_to_leave(grow, ledger, notes):
    [kept] = ledger.enqueue(("waits", {"gate": "go"}))
    tree = grow("--burst", "--max-jobs", "1", "-c", "2", grace="0s")
    until(lambda: notes.of(kept), what="a run to be kept")

    for _ in range(5):
        [job] = ledger.enqueue(("brief", {"n": 0, "seconds": 0}))
        until(lambda job=job: ledger.state(job) == "succeeded", what="the end of another one")
    notes.open_gate("go")

    assert tree.wait() == 0
    assert ledger.ends(kept) == [("succeeded", None)]
