"""Workers that start before their server does wait for it, and say so."""

from signal import SIGTERM

import pytest

from outlast import Outlast
from outlast.testing.servers.postgres import PostgresServer
from support.servers.fault_proxy import fault_proxy

from .ledger import bound
from .worker_app import register
from .worker_tree import until

pytestmark = pytest.mark.slow

AWAY = (
    "postgresql://none@127.0.0.1:1/none",
    "dynamodb://none?region=eu-west-1&endpoint=http://127.0.0.1:1",
)
"""Addresses where no server listens."""

KEYS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}


async def test_a_worker_started_before_its_server_works_when_the_server_comes(
    grow, notes, postgres: PostgresServer
):
    direct = postgres.new_database()
    name = direct.rpartition("/")[2]
    async with register(Outlast(direct), notes) as app:
        [job] = await app.enqueue_many(bound(app, [("brief", {"n": 1, "seconds": 0})], {}))
        with fault_proxy(postgres.port) as network:
            network.refuse()
            tree = grow(env={"CHAOS_URL": postgres.url(name, port=network.port)})
            until(lambda: tree.lines("cannot start", "does not answer"), what="the worker's wait")
            assert tree.code is None
            network.accept()

            assert await job.result("120s") == 1
            assert tree.lines("can start again")
            tree.signal(SIGTERM)
            assert tree.wait() == 0
    postgres.drop_database(name)


def test_a_worker_that_waits_for_its_server_stops_when_asked(grow):
    trees = [grow(env={"CHAOS_URL": url, **KEYS}) for url in AWAY]
    for tree in trees:
        until(lambda tree=tree: tree.lines("cannot start"), what="the worker's wait")
        tree.signal(SIGTERM)

    assert [tree.wait() for tree in trees] == [0, 0]
    assert [tree.members() for tree in trees] == [[], []]


def test_a_server_that_refuses_the_worker_is_not_waited_for(grow, postgres: PostgresServer):
    right = postgres.url("postgres")
    wrong = {
        "login": right.replace(postgres.password, "wrong"),
        "missing": postgres.url("missing_database"),
    }

    trees = {what: grow(env={"CHAOS_URL": url}) for what, url in wrong.items()}

    assert [tree.wait() for tree in trees.values()] == [2, 2]
    assert trees["login"].lines("refused the login", "check user and password")
    assert trees["missing"].lines("missing_database", "createdb")
