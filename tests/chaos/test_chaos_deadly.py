"""Jobs that take their process with them: they end, and their neighbours hardly notice."""

import pytest

from .tree import until

pytestmark = [pytest.mark.slow, pytest.mark.alone]

LIMIT = 3
GOOD = 10


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


@pytest.mark.parametrize("kind", ["exits", "crashes"])
def test_good_jobs_behind_a_deadly_one_are_not_charged_and_wait_less_than_a_second(
    grow, ledger, notes, kind
):
    """Delayed is what takes longer than it did a moment before, on the same machine.

    Lost once, a deadly job is tried again at once and may take a second child; so that good jobs
    need not wait for a process to start, there is a third.
    """
    tree = grow("-p", "3").ready(3)
    before = [seconds_for_some(ledger) for _ in range(5)]

    [deadly] = ledger.enqueue((kind, {}))
    during = []
    while ledger.state(deadly) != "dead_letter":
        during.append(seconds_for_some(ledger))

    good = [job for job in ledger.states() if job != deadly]
    assert len(during) > 1
    assert {run.status for run in ledger.runs(*good)} <= {"succeeded", "released"}
    assert [ledger.failures(job) for job in good] == [0] * len(good)
    assert max(during) - max(before) < 1
    assert tree.code is None


def seconds_for_some(ledger):
    """From when they were there until the last of them had ended, as the store tells it."""
    jobs = ledger.enqueue(*[("brief", {"n": 0, "seconds": 0.02})] * GOOD)
    until(lambda: set(map(ledger.state, jobs)) == {"succeeded"}, what="the end of good jobs")
    created = dict(ledger.rows("SELECT id, created_at / 1e6 FROM outlast_jobs"))
    return max(run.finished for run in ledger.runs(*jobs)) - min(created[job] for job in jobs)
