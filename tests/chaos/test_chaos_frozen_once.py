"""A `once` run of a worker that is frozen past its lease is ended, and never runs beside another.

Nothing is asserted about the time it takes: `covered_time` is less than the lease.
"""

import pytest

from .worker_tree import freeze_one, until

pytestmark = pytest.mark.slow

FROZEN = {"lease": "2s", "renew": "200ms"}


def started(ledger, notes):
    """A `once` run that hears no request to stop, and the process in which it runs."""
    [job] = ledger.enqueue(("ticks_once", {"gate": "never"}))
    until(lambda: notes.of(job, "tick"), what="its run")
    return job, notes.of(job)[0].pid


def test_a_child_whose_supervisor_is_frozen_ends_its_once_run_itself(grow, ledger, notes):
    frozen = grow("--instance-id", "frozen", **FROZEN).ready()
    job, pid = started(ledger, notes)

    freeze_one(frozen.pid, ledger.path)
    until(lambda: pid not in frozen.members(), what="the end of the child")
    frozen.thaw()

    until(lambda: ledger.state(job) == "failed", what="the end of the run")
    assert ledger.ends(job) == [("lost", "lease_expired")]


def test_a_thawed_once_run_is_ended_and_the_run_of_the_next_slot_goes_on(grow, ledger, notes):
    frozen = grow("--instance-id", "frozen", **FROZEN).ready()
    _, pid = started(ledger, notes)
    frozen.freeze(ledger.path)
    heir = grow("--instance-id", "heir", **FROZEN).ready()
    second, _ = started(ledger, notes)

    frozen.thaw()
    until(lambda: pid not in frozen.members(), what="the end of the thawed child")

    ticks = len(notes.of(second, "tick"))
    until(lambda: len(notes.of(second, "tick")) > ticks, what="a tick of the next slot's run")
    assert heir.lines("child died") == []
    notes.open_gate("never")
    until(lambda: not ledger.unfinished, what="all ends")
    assert ledger.violations == ()
