"""A killed worker that is started again on its machine works at once.

How soon is measured by `python -m bench takeover --only restart`.
"""

import secrets

import pytest

from outlast import Outlast
from outlast.testing.servers import dynamodb as local

from .ledger import bound
from .worker_app import register
from .worker_tree import LONG, until

pytestmark = pytest.mark.slow

BEAT = 600
"""Seconds. To watch a dead holder of a lock would take almost an hour."""


@pytest.fixture(params=["etcd", "dynamodb"])
def url(request):
    server = request.getfixturevalue(request.param)
    name = f"chaos-{secrets.token_hex(6)}"
    if request.param == "etcd":
        return f"{server.url(name)}?beat={BEAT}"
    return f"{local.url(server, name)}&beat={BEAT}"


async def test_worker_killed_and_started_again_on_its_machine_waits_for_no_heartbeat_and_no_lease(
    url, grow, notes
):
    async with register(Outlast(url), notes) as app:
        first = grow("--topology", "single", env={"CHAOS_URL": url}, **LONG).ready()
        [job] = await app.enqueue_many(bound(app, [("waits", {"gate": "never"})], {}))
        until(lambda: notes.of(job.id), what="its run")

        first.kill()
        grow("--topology", "single", env={"CHAOS_URL": url}, **LONG)

        assert (await job.wait("120s")).token == 2
