"""Thousands of jobs, dozens of kill -9s of whole workers: nothing lost, doubled or stuck."""

from collections import Counter

import pytest

from outlast.testing.conformance import sizes

from .kill_storm import CONCURRENCY, storm

pytestmark = pytest.mark.slow


@pytest.mark.timeout(400)
def test_in_a_storm_of_kills_no_job_is_lost_doubled_or_stuck(tmp_path):
    kills = sizes.SIZES.chaos_kills

    after = storm(tmp_path, jobs=sizes.SIZES.chaos_jobs, kills=kills)

    assert after.unfinished_at_last_kill > CONCURRENCY, "the last kill came too late to tell"
    assert after.ledger.is_sound
    assert after.ledger.violations == ()
    assert (after.lost, after.doubled, after.unsuccessful) == ([], [], [])
    assert after.effects == after.paid
    assert 0 < len(after.cut_short) <= kills * CONCURRENCY
    # A handler may have returned, and the write that makes its end durable not; no other repeats.
    assert after.repeats <= len(after.cut_short) + len(after.unwritten)
    assert len(after.unwritten) <= kills * CONCURRENCY
    assert max(Counter(run.job for run in after.unrun).values(), default=0) <= 1
    # What is not `lease` is claimed only when a place is free for it: never to lie in store.
    assert max(after.places_taken.values()) <= CONCURRENCY
    assert {run.reason for run in after.cut_short} == {"owner_dead"}, "none waited for its lease"
