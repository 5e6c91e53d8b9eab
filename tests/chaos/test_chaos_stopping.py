"""Stopping: deploys cost nothing, and signals mean what they say.

How long it takes is measured by `python -m bench takeover`.
"""

from signal import SIGINT, SIGTERM

import pytest

from outlast.testing.conformance import sizes

from .test_chaos_outages import locked
from .worker_tree import until

pytestmark = pytest.mark.slow

AT_ONCE = 30
STOPPING = "SELECT json_extract(info, '$[8]') FROM outlast_workers WHERE started_at > 0"


@pytest.mark.timeout(300)
def test_deploys_under_load_lose_nothing_and_spend_no_attempt(grow, ledger):
    deploys = sizes.SIZES.chaos_deploys
    old, jobs, codes = grow().ready(), [], []

    for _ in range(deploys):
        new = grow().ready()
        kinds = ["brief", "threaded", "chained"] * (AT_ONCE // 3)
        jobs += ledger.enqueue(*[(kind, {"n": 0, "seconds": 0.1}) for kind in kinds])
        old.signal(SIGTERM)
        codes.append(old.wait())
        old = new

    until(lambda: not ledger.unfinished, what="the end")
    assert codes == [0] * deploys
    assert ledger.is_sound
    assert set(ledger.states().values()) == {"succeeded"}
    assert len(ledger.states()) == len(jobs) == deploys * AT_ONCE
    assert {run.status for run in ledger.runs()} <= {"succeeded", "released"}
    assert ledger.rows("SELECT sum(failures) FROM outlast_ends") == [(0,)]


def test_what_outlasts_the_grace_is_handed_back_unspent_and_the_worker_leaves(grow, ledger, notes):
    tree = grow(grace="1s").ready()
    jobs = ledger.enqueue(*[(kind, {"gate": "never"}) for kind in ("waits", "waits_threaded")])
    until(lambda: all(notes.of(job) for job in jobs), what="two runs")

    tree.signal(SIGTERM)

    assert tree.wait() == 0
    assert ledger.ends(*jobs) == [("released", "shutdown")] * 2
    assert [ledger.state(job) for job in jobs] == ["queued"] * 2
    assert [ledger.failures(job) for job in jobs] == [0, 0]


@pytest.mark.parametrize("what", [SIGTERM, SIGINT])
def test_signal_to_the_whole_group_lets_what_runs_end(grow, ledger, notes, what):
    tree = grow().ready()
    [job] = ledger.enqueue(("waits", {"gate": "go"}))
    until(lambda: notes.of(job), what="its run")

    tree.signal_group(what)
    until(lambda: ledger.rows(STOPPING) == [(1,)], what="a worker that says it is stopping")
    notes.open_gate("go")

    assert tree.wait() == 0
    assert ledger.ends(job) == [("succeeded", None)]
    assert tree.members() == []


def test_second_signal_hands_everything_back_at_once(grow, ledger, notes):
    tree = grow("-c", "4", grace="10m").ready()
    kinds = ("waits", "waits_threaded", "waits_chained")
    jobs = ledger.enqueue(*[(kind, {"gate": "never"}) for kind in kinds])
    until(lambda: len(notes.under_way()) == len(kinds), what="their runs")

    tree.signal(SIGTERM)
    until(tree.has_heard, what="the first signal's arrival")  # two at one moment are one
    tree.signal(SIGTERM)

    assert tree.wait() == 1
    assert ledger.ends(*jobs[:2]) == [("released", "shutdown")] * 2
    assert ledger.ends(jobs[2]) == [("lost", "shutdown")]
    assert [ledger.failures(job) for job in jobs[:2]] == [0, 0]
    assert tree.members() == []


def test_worker_that_waits_for_the_store_before_its_start_stops_when_asked(grow, ledger):
    ledger.enqueue()
    with locked(ledger.path):
        tree = grow(env={"CHAOS_URL": f"sqlite:///{ledger.path}?busy=0.3"})
        until(lambda: tree.lines("cannot start"), what="a worker that waits")

        tree.signal(SIGTERM)

        assert tree.wait() == 0
        assert tree.members() == []


def test_worker_exits_in_time_though_the_store_stays_locked(grow, ledger, notes):
    tree = grow(grace="0s", env={"CHAOS_URL": f"sqlite:///{ledger.path}?busy=300"}).ready()
    [job] = ledger.enqueue(("waits_threaded", {"gate": "never"}))
    until(lambda: notes.of(job), what="its run")

    with locked(ledger.path):
        tree.signal(SIGTERM)

        assert tree.wait() == 1
        assert tree.lines("the store does not answer")
        tree.gone()
