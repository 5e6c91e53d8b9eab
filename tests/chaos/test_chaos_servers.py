"""On etcd and DynamoDB too a dead worker's jobs are taken over within the lease plus a second."""

import secrets
import time

import pytest

from outlast import Outlast
from outlast.testing.servers import dynamodb as local

from .ledger import bound
from .tree import until
from .worker_app import register

pytestmark = pytest.mark.slow

LEASE = 8
"""Seconds. Who holds a lock is dead after five beats without a sign of life."""

BEAT = 1
SETTINGS = {"lease": f"{LEASE}s", "renew": "2s", "tick": "250ms", "poll": "250ms"}


@pytest.fixture(params=["etcd", "dynamodb"])
def url(request):
    server = request.getfixturevalue(request.param)
    name = f"chaos-{secrets.token_hex(6)}"
    if request.param == "etcd":
        return f"{server.url(name)}?beat={BEAT}"
    return f"{local.url(server, name)}&beat={BEAT}"


async def test_jobs_of_a_worker_killed_on_a_server_run_again_within_the_lease_and_a_second(
    url, grow, notes
):
    async with register(Outlast(url), notes) as app:
        first = grow(env={"CHAOS_URL": url}, **SETTINGS).ready()
        jobs = await app.enqueue_many(bound(app, [("waits", {"gate": "never"})] * 3, {}))
        until(lambda: len(notes.all()) == 3, what="three runs")
        grow(env={"CHAOS_URL": url}, **SETTINGS).ready()

        first.kill()
        killed = time.monotonic()
        until(lambda: all(len(notes.of(job.id)) == 2 for job in jobs), what="their second runs")

        assert max(notes.of(job.id)[1].at for job in jobs) - killed < LEASE + 1
        assert [(await job.wait("30s")).token for job in jobs] == [2, 2, 2]
