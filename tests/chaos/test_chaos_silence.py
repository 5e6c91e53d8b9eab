"""Children that show no life, outlast their limits or grow too big are replaced; jobs go on."""

import sqlite3
import time
from contextlib import closing

import pytest

from .worker_tree import freeze_one, until

pytestmark = pytest.mark.slow


def test_stopped_child_is_killed_and_its_run_lost_as_silent(grow, ledger, notes):
    tree = grow(max_silence="3s").ready()
    [job] = ledger.enqueue(("waits", {"gate": "never"}))
    [first] = until(lambda: notes.of(job), what="its run")

    freeze_one(first.pid, ledger.path)

    until(lambda: ledger.state(job) == "succeeded", what="its next run")
    assert_was_silent(ledger, job)
    assert "stacks could not be dumped" in ledger.runs(job)[0].error
    assert first.pid not in tree.members()


def test_child_whose_interpreter_is_blocked_is_killed_and_its_stacks_are_on_record(
    grow, ledger, notes
):
    tree = grow(max_silence="3s").ready()

    [job] = ledger.enqueue(("blocks_everything", {}))

    until(lambda: ledger.state(job) == "succeeded", what="its next run")
    assert_was_silent(ledger, job)
    assert "hold_the_interpreter_for_ever" in ledger.runs(job)[0].error
    assert tree.lines("child silent")


def test_thread_past_its_max_runtime_ends_its_child_and_costs_its_neighbours_nothing(
    grow, ledger, notes
):
    tree = grow("-c", "3").ready()
    beside = ledger.enqueue(*[(kind, {"gate": "never"}) for kind in ("waits", "waits_threaded")])
    until(lambda: len(notes.under_way()) == 2, what="the neighbours")

    [job] = ledger.enqueue(("endless", {}), max_attempts=1)

    until(lambda: not ledger.unfinished, what="the end")
    assert ledger.ends(job) == [("lost", "timeout")]
    assert ledger.state(job) == "dead_letter"
    assert (
        sorted(ledger.ends(*beside)) == [("released", "owner_dead")] * 2 + [("succeeded", None)] * 2
    )
    assert [ledger.failures(each) for each in beside] == [0, 0]
    assert tree.code is None


def test_handler_that_returned_in_time_is_not_late_because_the_store_is(grow, ledger, notes):
    tree = grow(lease="60s").ready()  # no renewal happens meanwhile
    [job] = ledger.enqueue(("timely", {}))
    [begun] = until(lambda: notes.of(job), what="its run")

    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        notes.open_gate("timely")
        until(lambda: notes.of(job, "end"), what="its handler's return")
        until(lambda: time.monotonic() > begun.at + 9, what="the time when it would be late")

    until(lambda: ledger.state(job) == "succeeded", what="the end")
    assert ledger.ends(job) == [("succeeded", None)]
    assert begun.pid in tree.members()


def test_recycling_after_so_many_jobs_loses_nothing(grow, ledger, notes):
    grow("-p", "2", "--max-jobs", "20").ready(2)

    until(lambda: work(ledger) and len(workers(notes)) > 3, what="jobs of the children's children")
    until(lambda: not ledger.unfinished, what="the end")

    assert nothing_is_lost(ledger)


def test_recycling_a_child_that_grew_too_big_loses_nothing(grow, ledger, notes):
    tree = grow("--max-memory", "200M").ready()
    [kept] = ledger.enqueue(("waits", {"gate": "recycled"}))
    until(lambda: notes.of(kept), what="a run to be kept")

    ledger.enqueue(("hoards", {"megabytes": 250}))
    until(lambda: work(ledger) and len(workers(notes)) > 1, what="jobs of another child")
    notes.open_gate("recycled")
    until(lambda: not ledger.unfinished, what="the end")

    assert tree.lines("child recycled", "bytes")
    assert nothing_is_lost(ledger)
    assert len(notes.of(kept)) == 1


def assert_was_silent(ledger, job):
    """On a busy machine a child that is not blocked may be silent too; its job goes on as well."""
    *lost, last = ledger.ends(job)
    assert set(lost) == {("lost", "silent")}
    assert last == ("succeeded", None)


def work(ledger):
    return ledger.enqueue(*[("brief", {"n": 0, "seconds": 0.01})] * 20)


def workers(notes):
    return {note.pid for note in notes.all()}


def nothing_is_lost(ledger):
    """A child that leaves hands back what it had not begun, which costs no attempt."""
    statuses = {run.status for run in ledger.runs()}
    spent = ledger.rows("SELECT sum(failures) FROM outlast_ends")
    return (
        statuses <= {"succeeded", "released"}
        and set(ledger.states().values()) == {"succeeded"}
        and spent == [(0,)]
    )
