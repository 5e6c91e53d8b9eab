"""Jobs that take their process with them: they end, and their neighbours hardly notice."""

import pytest

from .tree import until

pytestmark = pytest.mark.slow

LIMIT = 3
GOOD = 10


@pytest.mark.parametrize("kind", ["exits", "crashes", "kills"])
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
    """The store tells how long they took, from being there to their success, death or no death.

    Lost once, a deadly job is tried again at once and may take a second child; so that good jobs
    need not wait for a process to start, there is a third.
    """
    tree = grow("-p", "3").ready(3)
    deadly = ledger.enqueue((kind, {}))[0]
    good = []

    while ledger.state(deadly) != "dead_letter":
        good += ledger.enqueue(*[("brief", {"n": 0, "seconds": 0.02})] * GOOD)

    until(lambda: not ledger.unfinished, what="the end")
    done = [run for run in ledger.runs(*good) if run.status == "succeeded"]
    created = dict(ledger.rows("SELECT id, created_at / 1e6 FROM holdfast_jobs"))
    assert len(good) > GOOD
    assert {run.status for run in ledger.runs(*good)} <= {"succeeded", "released"}
    assert [ledger.failures(job) for job in good] == [0] * len(good)
    assert max(run.finished - created[run.job] for run in done) < 1
    assert tree.code is None
