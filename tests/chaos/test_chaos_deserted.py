"""A worker killed with all its processes is followed at once, however long its leases are."""

import statistics
import time

import psycopg
import pytest

from outlast import Outlast

from .ledger import bound
from .tree import until
from .worker_app import register

pytestmark = [pytest.mark.slow, pytest.mark.alone]

TRIALS = 3
SOON = 1.0
"""Seconds from the kill to the next start of the job: the goal, for the median."""

CALM = "SELECT pg_postmaster_start_time() < clock_timestamp() - interval '16 s'"
LONG = {"lease": "60s", "renew": "20s", "tick": "250ms", "poll": "50ms"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url.partition("?")[0], autocommit=True) as operator:
        until(lambda: operator.execute(CALM).fetchone()[0], what="a server that is calm")
    return url


@pytest.mark.timeout(180)
async def test_job_of_a_worker_killed_with_its_tree_starts_again_within_a_second(url, grow, notes):
    async with register(Outlast(url), notes) as app:
        trees = [grow(env={"CHAOS_URL": url}, **LONG).ready()]
        took = []
        for trial in range(TRIALS):
            gate = f"gate-{trial}"
            [job] = await app.enqueue_many(bound(app, [("waits", {"gate": gate})], {}))
            until(lambda job=job: notes.of(job.id), what="its start")
            trees.append(grow(env={"CHAOS_URL": url}, **LONG).ready())

            trees[-2].kill()
            at = time.monotonic()
            _, again = until(lambda job=job: _twice(notes.of(job.id)), what="its second start")

            took.append(again.at - at)
            [run, *_] = await app.store.runs(job.id)
            assert (run.status, run.reason) == ("lost", "owner_dead")

    assert statistics.median(took) < SOON, took


def _twice(starts):
    return starts if len(starts) > 1 else None
