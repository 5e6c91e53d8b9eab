"""A worker has as many children as it was told, whatever they do, and none is left behind."""

from signal import SIGTERM

import pytest

from .tree import until

pytestmark = pytest.mark.slow


def test_child_whose_fork_outlives_it_is_replaced_and_the_worker_still_stops(grow, ledger):
    tree = grow().ready()

    [job] = ledger.enqueue(("forks_and_exits", {"seconds": 100}))

    until(lambda: ledger.state(job) == "succeeded", what="its run in another child")
    assert ledger.ends(job) == [("lost", "owner_dead"), ("succeeded", None)]
    tree.signal(SIGTERM)
    assert tree.wait() == 0
