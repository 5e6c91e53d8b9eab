"""Handlers that block everything for several leases: their jobs do not run a second time."""

import pytest

from outlast.testing.conformance import sizes

from .worker_tree import until

pytestmark = pytest.mark.slow

LEASES = {"lease": "3s", "renew": "100ms", "prefetch": 0}
"""Longer than a busy machine keeps the renewal of a living worker waiting."""

FOUR_LEASES = 12.0
CHILDREN = 8
KINDS = ("blocks_loop", "blocks_thread", "blocks_interpreter")


@pytest.mark.timeout(300)
def test_handlers_that_block_for_four_leases_have_no_second_copy(grow, ledger, notes):
    """Of each kind as many as asked; one child blocks for one job, threads share one."""
    trials = sizes.SIZES.chaos_trials
    grow("-q", "loop,interpreter", "-p", str(CHILDREN), "-c", "1", **LEASES).ready(CHILDREN)
    grow("-q", "threads", "-c", str(trials), **LEASES).ready()

    jobs = ledger.enqueue(*[(kind, {"seconds": FOUR_LEASES}) for kind in KINDS * trials])
    until(lambda: len(notes.all()) >= trials + CHILDREN, what="blocked children")
    rival = grow("-q", "loop,interpreter,threads", "-c", "1", **LEASES).ready()
    until(lambda: not ledger.unfinished, within=200, what="the end of every job")

    assert ledger.ends() == [("succeeded", None)] * len(jobs)
    assert sorted(note.job for note in notes.all()) == sorted(jobs)
    assert not rival.lines("lease lapsed")
