"""Jobs that take their process with them: they end, and their neighbours hardly notice.

How much later those end is measured by `python -m bench takeover`.
"""

import pytest

from .worker_tree import until

pytestmark = pytest.mark.slow

LIMIT = 3
GOOD = 10
BRIEF = ("brief", {"n": 0, "seconds": 0.02})


@pytest.mark.parametrize("kind", ["exits", "crashes", "kills", "exits_for_a_command"])
def test_job_that_always_kills_its_process_is_a_dead_letter_after_exactly_its_limit(
    grow, ledger, notes, kind
):
    tree = grow("-p", "2").ready(2)

    [job] = ledger.enqueue((kind, {}))
    until(lambda: ledger.state(job) == "dead_letter", what="the dead letter")

    assert ledger.ends(job) == [("lost", "owner_dead")] * LIMIT
    assert len(notes.of(job)) == LIMIT
    assert "its process" in ledger.runs(job)[-1].error
    assert tree.code is None


def test_job_that_takes_all_memory_starts_no_more_often_than_its_limit(grow, ledger, notes):
    """Which allocation fails is not known, so neither is how a run ends: each one is charged."""
    grow("-p", "2").ready(2)

    [job] = ledger.enqueue(("eats", {}))
    until(lambda: ledger.state(job) == "dead_letter", what="the dead letter")

    assert 1 <= len(notes.of(job)) <= LIMIT
    assert {status for status, _ in ledger.ends(job)} <= {"lost", "failed"}
    assert ledger.failures(job) == LIMIT


@pytest.mark.parametrize("kind", ["exits", "crashes"])
def test_good_jobs_beside_a_deadly_one_end_and_are_not_charged(grow, ledger, kind):
    tree = grow("-p", "3").ready(3)

    deadly, *good = ledger.enqueue((kind, {}), *[BRIEF] * GOOD)
    while ledger.state(deadly) != "dead_letter":
        good += run_some(ledger)
    good += run_some(ledger)

    assert {run.status for run in ledger.runs(*good)} <= {"succeeded", "released"}
    assert [ledger.failures(job) for job in good] == [0] * len(good)
    assert set(map(ledger.state, good)) == {"succeeded"}
    assert tree.code is None


def run_some(ledger):
    """Good jobs that have ended."""
    jobs = ledger.enqueue(*[BRIEF] * GOOD)
    until(lambda: set(map(ledger.state, jobs)) == {"succeeded"}, what="the end of good jobs")
    return jobs
