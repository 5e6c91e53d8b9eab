"""Whoever dies, its jobs go on soon: a child's at once, a tree's after its lease."""

import os
import signal
import statistics
import time

import pytest

from .tree import LEASE, SHORT, until

pytestmark = [pytest.mark.slow, pytest.mark.alone]

ROUNDS = 5

EMBEDDED = """
import asyncio
from chaos.worker_app import app

async def work():
    async with app.worker():
        await asyncio.Event().wait()

asyncio.run(work())
"""
"""A worker without a supervisor, as in a web application: nobody but its leases tells of it."""


def test_the_job_of_a_dead_child_runs_again_in_under_a_second(grow, ledger, notes):
    tree = grow("-p", "2").ready(2)
    took = []

    for number in range(ROUNDS):
        until(lambda n=number: len(tree.lines("child started")) >= 2 + n, what="two children")
        [job] = ledger.enqueue(("waits", {"gate": "never"}))
        [first] = until(lambda job=job: notes.of(job), what="the first run")
        killed = time.monotonic()
        os.kill(first.pid, signal.SIGKILL)
        second = until(lambda job=job: notes.of(job)[1:], what="the second run")[0]
        took.append(second.at - killed)
        assert second.pid != first.pid

    until(lambda: not ledger.unfinished, what="the end")
    assert {run.reason for run in ledger.runs() if run.status == "lost"} == {"owner_dead"}
    assert statistics.median(took) < 1, took
    assert max(took) < 2, took  # on a loaded machine


def test_the_jobs_of_a_dead_tree_run_again_before_their_lease_is_over(grow, ledger, notes):
    first = grow("--instance-id", "first", lease="20s").ready()
    jobs = ledger.enqueue(*[("waits", {"gate": "never"})] * 3)
    until(lambda: len(notes.all()) == 3, what="three runs")
    grow("--instance-id", "second", lease="20s").ready()

    killed = first.kill()

    until(lambda: not ledger.unfinished, what="the end")
    lost, done = ledger.runs()[:3], ledger.runs()[3:]
    assert ledger.ends(*jobs) == [("lost", "owner_dead")] * 3 + [("succeeded", None)] * 3
    assert {run.instance for run in lost} == {"first"}
    assert {run.instance for run in done} == {"second"}
    assert max(run.started for run in done) - killed <= 5
    assert [ledger.failures(job) for job in jobs] == [1, 1, 1]


def test_the_jobs_of_a_dead_embedded_worker_run_again_within_the_lease_plus_a_second(
    grow, ledger, notes
):
    first = grow(program=EMBEDDED, **SHORT)
    jobs = ledger.enqueue(*[("waits", {"gate": "never"})] * 3)
    until(lambda: len(notes.all()) == 3, what="three runs")
    grow("--instance-id", "second", **SHORT).ready()

    killed = first.kill()

    until(lambda: not ledger.unfinished, what="the end")
    assert ledger.ends(*jobs) == [("lost", "lease_expired")] * 3 + [("succeeded", None)] * 3
    assert max(run.started for run in ledger.runs()[3:]) - killed <= LEASE + 1
