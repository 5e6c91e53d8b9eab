"""Real workers, stopped and killed: what the seeds promise of a worker's process."""

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from signal import SIGINT, SIGTERM

import pytest

from chaos.ledger import Ledger
from chaos.worker_tree import WorkerTree, until, worker_trees
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import take

pytestmark = pytest.mark.slow

TAKEN = 3
SINGLE = ("--topology", "single")
Grow = Callable[..., WorkerTree]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def grow(tmp_path: Path) -> Iterator[Grow]:
    with worker_trees(tmp_path) as grow:
        yield grow


@pytest.mark.req("S0-1.e", "S1-6.2.z")
def test_beside_a_single_worker_another_one_leaves_and_names_the_reason(
    grow: Grow, ledger: Ledger
) -> None:
    first = grow(*SINGLE).ready()

    second = grow(*SINGLE)

    assert second.wait() == TAKEN
    assert second.lines("ERROR", "topology single serves the scope 'default' already")
    assert not second.lines("worker started")
    assert first.code is None


@pytest.mark.req("S0-3.a")
def test_once_a_single_worker_was_killed_a_new_one_may_start(grow: Grow, ledger: Ledger) -> None:
    first = grow(*SINGLE).ready()
    refused = grow(*SINGLE).wait()

    first.kill()

    second = grow(*SINGLE).ready()
    [job] = ledger.enqueue(("brief", {"n": 1, "seconds": 0}))
    until(lambda: ledger.state(job) == "succeeded", what="a job of the new worker")
    assert (refused, second.code) == (TAKEN, None)


@pytest.mark.req("S0-3.a")
@pytest.mark.parametrize("flags", [(), ("--topology", "pool")], ids=["no flag", "pool"])
def test_a_single_app_refuses_a_second_worker_whatever_flags_it_has(
    grow: Grow, ledger: Ledger, flags: tuple[str, ...]
) -> None:
    single = {"topology": "single", "scope": "brief"}
    first = grow(**single).ready()

    second = grow(*flags, **single)

    assert second.wait() == TAKEN
    assert second.lines("ERROR", "topology single serves the scope 'brief' already")
    assert first.code is None


@pytest.mark.req("S0-7.1.c")
@pytest.mark.parametrize(
    ("policy", "reason"), [("fail", "startup_recovery"), ("leave", None), ("threshold", None)]
)
def test_a_starting_worker_treats_the_runs_of_unknown_owners_by_its_apps_policy(
    grow: Grow, ledger: Ledger, policy: str, reason: str | None
) -> None:
    [job] = ledger.enqueue(("once", {"n": 1, "seconds": 0}))
    asyncio.run(_claim_as_a_stranger(ledger.path))

    tree = grow(topology="single", unknown_owner=policy).ready()

    assert [run.reason for run in ledger.runs(job)] == ([] if reason is None else [reason])
    assert bool(tree.lines("left to its unknown owner")) is (policy == "leave")


async def _claim_as_a_stranger(path: Path) -> None:
    """Claim the job for a worker of which only the name is known, for longer than any test."""
    store = SqliteStore(path)
    await store.open()
    await take(store, types={"once"}, holder="a-stranger", lease=timedelta(hours=1))
    await store.close()


@pytest.mark.req("S0-7.a")
def test_right_after_a_crash_in_mid_job_its_row_still_says_running(
    grow: Grow, ledger: Ledger
) -> None:
    tree = grow().ready()
    [job] = ledger.enqueue(("waits_once", {"gate": "never"}))
    until(lambda: ledger.notes.of(job), what="its run")

    tree.kill()

    assert ledger.state(job) == "running"
    assert ledger.rows("SELECT finished_at FROM outlast_job_state WHERE id = ?", job) == [(None,)]


@pytest.mark.req("S1-4.1.b", "S1-4.1.c")
def test_running_job_completes_within_the_grace_and_then_the_worker_exits(
    grow: Grow, ledger: Ledger
) -> None:
    tree = grow().ready()
    [job] = ledger.enqueue(("waits_chained", {"gate": "go"}))
    until(lambda: ledger.notes.of(job), what="its run")

    tree.signal(SIGTERM)
    until(tree.has_heard, what="the signal's arrival")
    ledger.notes.open_gate("go")

    assert tree.wait() == 0
    assert (ledger.ends(job), ledger.results(job)) == ([("succeeded", None)], ["1"])
    assert ledger.rows("SELECT count(*) FROM outlast_open_runs") == [(0,)]
    assert ledger.is_sound


@pytest.mark.req("S1-4.1.f")
def test_after_a_clean_stop_the_queue_goes_on_where_it_stopped(grow: Grow, ledger: Ledger) -> None:
    first = grow("-c", "1", prefetch=0).ready()
    head, *rest = ledger.enqueue(
        ("waits_chained", {"gate": "go"}), *[("chained", {"n": n, "seconds": 0}) for n in range(5)]
    )
    until(lambda: ledger.notes.of(head), what="the first run")
    first.signal(SIGTERM)
    until(first.has_heard, what="the signal's arrival")
    ledger.notes.open_gate("go")
    code = first.wait()
    waiting = [job for job in rest if ledger.state(job) == "queued"]

    grow("-c", "1", prefetch=0).ready()
    until(lambda: not ledger.unfinished, what="the end")

    assert code == 0
    assert waiting
    assert [note.job for note in ledger.notes.all()] == [head, *rest]


@pytest.mark.req("S1-4.1.g")
def test_job_that_outlasts_the_grace_is_closed_like_a_crash(grow: Grow, ledger: Ledger) -> None:
    tree = grow(grace="1s").ready()
    [job] = ledger.enqueue(("chained", {"n": 0, "seconds": 600}))
    until(lambda: ledger.notes.of(job), what="its run")

    tree.signal(SIGTERM)

    assert tree.wait() == 0
    assert ledger.ends(job) == [("lost", "shutdown")]
    links = ledger.rows("SELECT state, failures FROM outlast_job_state WHERE retry_of = ?", job)
    assert links == [("queued", 1)]


@pytest.mark.req("S3-4.i")
@pytest.mark.parametrize("how", ["interrupt", "kill"])
def test_job_of_a_dead_worker_is_reclaimed_and_processed_by_another(
    grow: Grow, ledger: Ledger, how: str
) -> None:
    first = grow("--instance-id", "first", grace="500ms").ready()
    [job] = ledger.enqueue(("waits", {"gate": "never"}))
    until(lambda: ledger.notes.of(job), what="its run")
    grow("--instance-id", "second").ready()

    if how == "kill":
        first.kill()
    else:
        first.signal_group(SIGINT)

    until(lambda: ledger.state(job) == "succeeded", what="the other's success")
    was = ("lost", "owner_dead") if how == "kill" else ("released", "shutdown")
    assert ledger.ends(job) == [was, ("succeeded", None)]
    assert [run.instance for run in ledger.runs(job)] == ["first", "second"]


@pytest.mark.req("S0-7.1.f")
def test_recovery_writes_a_line_for_each_row_and_the_app_hears_of_it(
    grow: Grow, ledger: Ledger, tmp_path: Path
) -> None:
    first = grow("--instance-id", "it").ready()
    [left] = ledger.enqueue(("waits_once", {"gate": "never"}))
    until(lambda: ledger.notes.of(left), what="its run")
    first.kill()

    second = grow(
        "--instance-id", "it", "--log-format", "json", app="chaos.event_log_app:app"
    ).ready()
    file = tmp_path / "events.jsonl"
    until(lambda: file.exists() and '"recovered"' in file.read_text(), what="the event")

    [line] = [json.loads(each) for each in second.lines('"event": "recovered"')]
    [reported] = [each for each in map(json.loads, file.read_text().splitlines()) if "now" in each]
    assert (line["job"], line["reason"], line["process"]) == (left, "startup_recovery", second.pid)
    assert {name: line[name] for name in reported if name != "heard_by"} == {
        name: value for name, value in reported.items() if name != "heard_by"
    }
    assert reported["heard_by"] in second.children(), "no code of the app's runs in the supervisor"


@pytest.mark.req("S0-7.1.a", "S2-1.b")
def test_recovery_is_over_before_the_first_claim_and_each_line_of_a_run_bears_its_job(
    grow: Grow, ledger: Ledger
) -> None:
    first = grow("--instance-id", "it").ready()
    [left] = ledger.enqueue(("waits", {"gate": "never"}))
    until(lambda: ledger.notes.of(left), what="its run")
    first.kill()
    [new] = ledger.enqueue(("brief", {"n": 1, "seconds": 0}))

    second = grow("--instance-id", "it").ready()
    until(lambda: second.lines("job_end", f"job={new}"), what="the next one's end")

    lines = second.log.splitlines()
    recovered = next(n for n, line in enumerate(lines) if "recovery finished" in line)
    started = next(n for n, line in enumerate(lines) if "job_start" in line)
    assert recovered < started
    assert "actions=1" in lines[recovered]
    reported = second.lines("job_start", f"job={new}"), second.lines("job_end", f"job={new}")
    assert [len(each) for each in reported] == [1, 1]
    assert all(" job=" in line for line in lines if " job_" in line)
