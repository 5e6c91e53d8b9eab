"""On etcd and DynamoDB too a dead worker's jobs are taken over.

How soon is measured by `python -m bench takeover`.
"""

import secrets

import pytest

from outlast import Outlast
from outlast.testing.servers import dynamodb as local

from .ledger import bound
from .worker_app import register
from .worker_tree import until

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


async def test_jobs_of_a_worker_killed_on_a_server_run_again(url, grow, notes):
    async with register(Outlast(url), notes) as app:
        first = grow(env={"CHAOS_URL": url}, **SETTINGS).ready()
        jobs = await app.enqueue_many(bound(app, [("waits", {"gate": "never"})] * 3, {}))
        until(lambda: len(notes.all()) == 3, what="three runs")
        grow(env={"CHAOS_URL": url}, **SETTINGS).ready()

        first.kill()
        until(lambda: all(len(notes.of(job.id)) == 2 for job in jobs), what="their second runs")

        assert [(await job.wait("120s")).token for job in jobs] == [2, 2, 2]
