"""A worker that was presumed dead and resumes: each late write is refused and logged."""

import re

import pytest

from .worker_tree import LONG, until

pytestmark = pytest.mark.slow

KINDS = ("waits", "waits_threaded", "waits_chained", "waits_once")


def test_every_late_write_of_a_thawed_worker_is_refused_counted_and_changes_nothing(
    grow, ledger, notes
):
    zombie = grow("--instance-id", "zombie", "-c", "4", **LONG).ready()
    jobs = ledger.enqueue(*[(kind, {"gate": "thawed"}) for kind in KINDS])
    until(lambda: len(notes.under_way()) == len(KINDS), what="four runs")
    zombie.freeze(ledger.path)
    ledger.expire_leases()
    heir = grow("--instance-id", "heir").ready()
    until(lambda: not ledger.unfinished, what="the heir's work")
    before = ledger.states(), ledger.runs(), [ledger.results(job) for job in jobs]

    notes.open_gate("thawed")
    zombie.thaw()
    until(lambda: len(ledger.events("late_write_refused")) == len(KINDS), what="four refusals")

    assert sorted(ledger.events("late_write_refused")) == sorted(jobs)
    assert (ledger.states(), ledger.runs(), [ledger.results(job) for job in jobs]) == before
    assert [ledger.state(job) for job in jobs] == ["succeeded", "succeeded", "failed", "failed"]
    assert {run.reason for run in ledger.runs() if run.instance == "zombie"} == {"lease_expired"}
    reported = until(
        lambda: len(refusals(zombie)) == len(KINDS) and refusals(zombie), what="log lines"
    )
    assert all(any(job in line for line in reported) for job in jobs)
    assert refusals(heir) == []


def test_a_thawed_worker_goes_on_working(grow, ledger, notes):
    zombie = grow("--instance-id", "zombie", **LONG).ready()
    [job] = ledger.enqueue(("waits", {"gate": "thawed"}))
    until(lambda: notes.of(job), what="its run")
    zombie.freeze(ledger.path)
    ledger.expire_leases()
    heir = grow("--instance-id", "heir").ready()
    until(lambda: not ledger.unfinished, what="the heir's work")
    heir.kill()

    zombie.thaw()
    [next_one] = ledger.enqueue(("brief", {"n": 1, "seconds": 0}))

    until(lambda: ledger.state(next_one) == "succeeded", what="the next job's end")
    assert ledger.runs(next_one)[0].instance == "zombie"
    assert zombie.code is None


def refusals(tree):
    return [line for line in tree.log.splitlines() if re.search("late.write.refused", line)]
