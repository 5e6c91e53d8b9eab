"""A worker behind a small transaction pooler leaves connections for its work."""

import psycopg
import pytest

from outlast import Outlast
from outlast.testing.servers.postgres import PostgresServer
from support.servers.transaction_pooler import transaction_pooler

from .ledger import bound
from .worker_app import register

pytestmark = pytest.mark.slow

PINNED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE state = 'idle in transaction' AND datname = current_database()
"""


async def test_a_worker_works_behind_a_pooler_of_three_connections(
    grow, notes, postgres: PostgresServer
):
    """It pins two: one per process, the supervisor included."""
    direct = postgres.new_database()
    name = direct.rpartition("/")[2]
    with transaction_pooler(postgres.port, size=3) as pooler:
        url = f"{postgres.url(name, port=pooler.port)}?pooler=true"
        async with register(Outlast(url), notes) as app:
            tree = grow(env={"CHAOS_URL": url}).ready()
            wanted = [("brief", {"n": n, "seconds": 0}) for n in range(20)]
            jobs = await app.enqueue_many(bound(app, wanted, {}))

            assert [await job.result("120s") for job in jobs] == list(range(20))
            with psycopg.connect(direct) as outside:
                [(pinned,)] = outside.execute(PINNED).fetchall()
            tree.kill()
    assert pinned == 2
    postgres.drop_database(name)
