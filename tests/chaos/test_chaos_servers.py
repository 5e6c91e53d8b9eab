"""On etcd and DynamoDB too a dead worker's jobs are taken over.

How soon is measured by `python -m bench takeover`.
"""

import secrets

import pytest

from outlast import Outlast, State
from outlast.testing.servers import dynamodb as local

from .ledger import bound
from .worker_app import register
from .worker_tree import freeze, until

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


async def test_worker_frozen_past_its_lease_works_again_when_it_is_thawed(url, grow, notes):
    url += "&max_skew=0"  # one machine
    settings = {**SETTINGS, "lease": "3s", "renew": "500ms"}
    async with register(Outlast(url), notes) as app:
        frozen = grow(env={"CHAOS_URL": url}, **settings).ready()
        [job] = await app.enqueue_many(bound(app, [("waits", {"gate": "taken over"})], {}))
        until(lambda: notes.of(job.id), what="its run")
        freeze(frozen.members())
        heir = grow(env={"CHAOS_URL": url}, **settings)
        until(lambda: len(notes.of(job.id)) == 2, what="its second run")
        notes.open_gate("taken over")
        assert (await job.wait("120s")).token == 2
        heir.kill()

        frozen.thaw()
        [after] = await app.enqueue_many(bound(app, [("brief", {"n": 1, "seconds": 0})], {}))

        assert (await after.wait("120s")).state is State.SUCCEEDED
        assert frozen.code is None
        assert [note.pid in frozen.members() for note in notes.of(after.id)] == [True]
