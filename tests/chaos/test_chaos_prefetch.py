"""A worker killed with jobs that it has not started costs none of them its last attempt."""

import pytest

from .worker_tree import LONG, until

pytestmark = pytest.mark.slow

BACKLOG = 50
QUICK = {"n": 0, "seconds": 0}


def test_job_with_one_attempt_is_not_ended_by_the_death_of_a_worker_that_did_not_start_it(
    grow, ledger, notes
):
    first = grow("-c", "2", **LONG).ready()
    ledger.enqueue(*[("brief", QUICK)] * BACKLOG)
    until(lambda: not ledger.unfinished, what="measured jobs, by which it prefetches")
    ledger.enqueue(
        *[("waits", {"gate": "never"})] * 2,
        *[("brief", QUICK), ("single", QUICK)] * BACKLOG,
    )
    until(lambda: len(notes.under_way()) == 2, what="two jobs that occupy both slots")

    first.kill()
    grow("-c", "2", **LONG).ready()
    until(lambda: not ledger.unfinished, what="the end of all")

    assert set(ledger.states().values()) == {"succeeded"}
