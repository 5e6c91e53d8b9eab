"""A new store of each kind, on servers that the bench starts."""

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from outlast.testing.servers import dynamodb
from outlast.testing.servers.etcd import etcd_cluster
from outlast.testing.servers.postgres import postgres_server


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as name:
        yield f"sqlite:///{name}/jobs.db"


@contextmanager
def _postgres() -> Iterator[str]:
    with postgres_server() as server:
        yield server.new_database()


@contextmanager
def _etcd() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="outlast-bench-") as name,
        etcd_cluster(Path(name)) as cluster,
    ):
        yield cluster.url("bench")


@contextmanager
def _dynamodb() -> Iterator[str]:
    os.environ.update(dynamodb.CREDENTIALS)
    with (
        tempfile.TemporaryDirectory(prefix="outlast-bench-") as name,
        dynamodb.dynamodb_local(Path(name)) as server,
    ):
        yield dynamodb.url(server.endpoint, secrets.token_hex(6))


STORES: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "SQLite": _sqlite,
    "PostgreSQL": _postgres,
    "etcd": _etcd,
    "DynamoDB": _dynamodb,
}
