"""A worker has as many children as it was told, whatever they do, and none is left behind."""

from signal import SIGTERM

import pytest

from .worker_tree import until

pytestmark = pytest.mark.slow


def test_child_whose_fork_outlives_it_is_replaced_and_the_worker_still_stops(grow, ledger):
    tree = grow().ready()

    [job] = ledger.enqueue(("forks_and_exits", {"seconds": 100}))

    until(lambda: ledger.state(job) == "succeeded", what="its run in another child")
    assert ledger.ends(job) == [("lost", "owner_dead"), ("succeeded", None)]
    tree.signal(SIGTERM)
    assert tree.wait() == 0


def test_recycled_child_leaves_though_a_thread_of_the_app_does_not_end(grow, ledger, notes):
    tree = grow("--max-jobs", "1", env={"CHAOS_THREAD": "1"}).ready()

    [job] = ledger.enqueue(("brief", {"n": 0, "seconds": 0}))

    [note] = until(lambda: notes.of(job), what="its run")
    until(lambda: note.pid not in tree.members(), what="the recycled child's end")
    assert tree.code is None


def test_worker_stops_as_soon_as_its_jobs_have_ended_though_a_thread_of_the_app_has_not(grow):
    tree = grow(grace="10m", env={"CHAOS_THREAD": "1"}).ready()

    tree.signal(SIGTERM)

    assert tree.wait() == 0


def test_process_that_a_handler_forks_can_be_terminated(grow, ledger):
    grow().ready()

    [job] = ledger.enqueue(("ends_its_fork", {}))

    until(lambda: ledger.state(job) == "succeeded", what="the end")
    assert ledger.results(job) == [str(-SIGTERM)]
