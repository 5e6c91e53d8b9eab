"""What every test shares: our plugin, assertions that explain themselves, and who shares what."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster
    from outlast.testing.servers.postgres import PostgresServer

pytest_plugins = ["pytester", "pytest_outlast"]
pytest.register_assert_rewrite("outlast.testing")

ROOT = Path(__file__).parent
FREE = frozenset(
    {"api", "chaos", "cli", "conformance", "core", "processes", "store", "telemetry", "worker"}
)
"""Folders whose tests share nothing; those of any other file stay together, with its fixtures."""

THINNED = frozenset(
    {"test_dynamodb.py", "test_etcd.py", "test_keyvalue_shards.py", "test_shards_on_servers.py"}
)
"""The suite on servers that take milliseconds for each request."""


settings.register_profile(
    "any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any_machine")  # a slow or busy machine fails no property


def pytest_configure() -> None:
    """Handle Ctrl-C here and in child processes, even if the parent process ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = _left_out(items)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.path.relative_to(ROOT).parts[0] not in FREE:
            item.add_marker(pytest.mark.xdist_group(item.path.name))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: nobody need look through it for garbage."""
    gc.freeze()


def _left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """On etcd and DynamoDB Local each test of the suite runs, but not with everything it is given.

    The same code has all of it on an engine in memory. `make proof` leaves nothing out.
    """
    from outlast.testing.conformance import sizes  # noqa: PLC0415 - its assertions are rewritten first

    if sizes.SIZES.every_case_on_servers:
        return set()
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path.name in THINNED:
            name = getattr(item, "originalname", item.name)
            cases.setdefault(f"{item.path.name}:{name}", []).append(item)
    kept = {case[crc32(name.encode()) % len(case)] for name, case in cases.items()}
    return {item for case in cases.values() for item in case} - kept


@pytest.fixture(scope="session")
def postgres(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator["PostgresServer"]:
    """A PostgreSQL server, the newest, for all of this session; it does not flush."""
    from outlast.testing.servers.postgres_shared import shared_postgres  # noqa: PLC0415 - only who asks

    base = tmp_path_factory.getbasetemp()
    with shared_postgres(base if worker_id == "master" else base.parent) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_places(postgres: "PostgresServer") -> Iterator[Iterator[str]]:
    """Addresses without end, for `postgres_url`."""
    from outlast.testing.servers.postgres_shared import fresh_schemas  # noqa: PLC0415 - only who asks

    with fresh_schemas(postgres) as addresses:
        yield addresses


@pytest.fixture
def postgres_url(postgres_places: Iterator[str]) -> str:
    """Where no test has been: a schema of its own, not yet made, on the session's PostgreSQL."""
    return next(postgres_places)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator["EtcdCluster"]:
    """An etcd cluster of three for all of this session; whoever kills members has one alone."""
    from outlast.testing.servers.etcd import shared_etcd  # noqa: PLC0415 - only who asks

    base = tmp_path_factory.getbasetemp()
    with shared_etcd(base if worker_id == "master" else base.parent) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def dynamodb(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """The endpoint of a DynamoDB Local for all of this session, and credentials for it."""
    from outlast.testing.servers.dynamodb import CREDENTIALS, shared_dynamodb  # noqa: PLC0415 - only who asks

    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with shared_dynamodb(base if worker_id == "master" else base.parent) as endpoint:
            yield endpoint
