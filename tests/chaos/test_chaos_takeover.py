"""The jobs of a dead worker go on: a child's and a tree's before their lease expires.

How long that takes is measured by `python -m bench takeover`.
"""

import os
import signal

import pytest

from .worker_tree import LONG, until

pytestmark = pytest.mark.slow

ROUNDS = 3

EMBEDDED = """
import asyncio
from chaos.worker_app import app

async def work():
    async with app.worker():
        await asyncio.Event().wait()

asyncio.run(work())
"""
"""A worker without a supervisor, as in a web application: only its leases show its death."""


def test_the_job_of_a_dead_child_runs_again_before_its_lease_is_over(grow, ledger, notes):
    tree = grow("-p", "2", **LONG).ready(2)

    for number in range(ROUNDS):
        until(lambda n=number: len(tree.lines("child started")) >= 2 + n, what="two children")
        [job] = ledger.enqueue(("waits", {"gate": "never"}))
        [first] = until(lambda job=job: notes.of(job), what="the first run")
        os.kill(first.pid, signal.SIGKILL)
        second = until(lambda job=job: notes.of(job)[1:], what="the second run")[0]
        assert second.pid != first.pid

    until(lambda: not ledger.unfinished, what="the end")
    assert ledger.ends() == [("lost", "owner_dead"), ("succeeded", None)] * ROUNDS


def test_the_jobs_of_a_dead_tree_run_again_before_their_lease_is_over(grow, ledger, notes):
    first = grow("--instance-id", "first", **LONG).ready()
    jobs = ledger.enqueue(*[("waits", {"gate": "never"})] * 3)
    until(lambda: len(notes.all()) == 3, what="three runs")
    grow("--instance-id", "second", **LONG).ready()

    first.kill()

    until(lambda: not ledger.unfinished, what="the end")
    lost, done = ledger.runs()[:3], ledger.runs()[3:]
    assert ledger.ends(*jobs) == [("lost", "owner_dead")] * 3 + [("succeeded", None)] * 3
    assert {run.instance for run in lost} == {"first"}
    assert {run.instance for run in done} == {"second"}
    assert [ledger.failures(job) for job in jobs] == [1, 1, 1]


def test_the_jobs_of_a_dead_embedded_worker_run_again_when_their_lease_is_over(grow, ledger, notes):
    first = grow(program=EMBEDDED, **LONG)
    jobs = ledger.enqueue(*[("waits", {"gate": "never"})] * 3)
    until(lambda: len(notes.all()) == 3, what="three runs")
    second = grow("--instance-id", "second", **LONG).ready()

    first.kill()
    [other] = ledger.enqueue(("brief", {"n": 0, "seconds": 0}))
    until(lambda: ledger.state(other) == "succeeded", what="another job's end")
    before = ledger.ends(*jobs)
    ledger.expire_leases()

    until(lambda: not ledger.unfinished, what="the end")
    assert ledger.ends(*jobs) == [("lost", "lease_expired")] * 3 + [("succeeded", None)] * 3
    assert before == []
    assert second.code is None
