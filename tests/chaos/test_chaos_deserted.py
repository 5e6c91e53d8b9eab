"""A worker killed with all its processes is followed, however long its leases are.

How soon is measured by `python -m bench takeover`.
"""

import pytest

from outlast import Outlast

from .ledger import bound
from .worker_app import register
from .worker_tree import LONG, until

pytestmark = pytest.mark.slow

TRIALS = 2
QUICK = {**LONG, "renew": "20s", "tick": "250ms", "poll": "50ms"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_url")


async def test_job_of_a_worker_killed_with_its_tree_starts_again_before_its_lease_is_over(
    url, grow, notes
):
    async with register(Outlast(url), notes) as app:
        trees = [grow(env={"CHAOS_URL": url}, **QUICK).ready()]
        for trial in range(TRIALS):
            gate = f"gate-{trial}"
            [job] = await app.enqueue_many(bound(app, [("waits", {"gate": gate})], {}))
            until(lambda job=job: notes.of(job.id), what="its start")
            trees.append(grow(env={"CHAOS_URL": url}, **QUICK).ready())

            trees[-2].kill()
            until(lambda job=job: len(notes.of(job.id)) == 2, what="its second start")

            [run, *_] = await app.store.runs(job.id)
            assert (run.status, run.reason) == ("lost", "owner_dead")
