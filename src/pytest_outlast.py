"""pytest plugin: fixtures for tests of jobs.

pytest loads this module in every run where Outlast is installed. It is outside the package and
imports it only when a test uses a fixture, so that other runs do not pay for the import.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.store.contract import Store
    from outlast.testing.clock import FakeClock
    from outlast.testing.harness import Harness

STORES = ("sqlite", "model")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options and settings of the plugin."""
    group = parser.getgroup("outlast", "durable background jobs")
    group.addoption(
        "--outlast-store", choices=STORES, help="where `outlast` keeps the jobs of a test"
    )
    parser.addini("outlast_store", f"one of {', '.join(STORES)}", default=STORES[0])
    parser.addini(
        "outlast_url", "the database for the jobs of a test, beside your tables", default=""
    )
    parser.addini("outlast_app", "the app that `outlast` tests, as module:attribute", default="")


@pytest.fixture
def outlast_clock() -> "FakeClock":
    """Return the fake clock of the test; it stands still until it is moved."""
    from outlast.testing.clock import FakeClock  # noqa: PLC0415 - only who asks pays

    return FakeClock()


@pytest.fixture
def outlast_url(request: pytest.FixtureRequest) -> str | None:
    """Return the URL of the database under test, for code that uses `tx=`; override it."""
    return request.config.getini("outlast_url") or None


@pytest.fixture
def outlast_store(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    outlast_clock: "FakeClock",
    outlast_url: str | None,
) -> Iterator["Store"]:
    """Return a store for this test: in `outlast_url`, a SQLite file, or the model store."""
    from outlast.testing.stores import store_for_test, store_in_database  # noqa: PLC0415 - same

    if outlast_url is not None:
        with store_in_database(outlast_url, outlast_clock) as store:
            yield store
        return
    kind = request.config.getoption("outlast_store") or request.config.getini("outlast_store")
    if kind not in STORES:
        raise pytest.UsageError(f"outlast_store is {kind!r:.80}; use one of {', '.join(STORES)}")
    with store_for_test(kind, tmp_path_factory.mktemp("outlast"), outlast_clock) as store:
        yield store


@pytest.fixture
def outlast_app(request: pytest.FixtureRequest) -> "Outlast":
    """Return the app of the setting `outlast_app`; override this fixture to use another."""
    from outlast.cli.app_loader import load_app  # noqa: PLC0415 - same

    address = request.config.getini("outlast_app")
    if not address:
        raise pytest.UsageError(
            "no app to test: set `outlast_app = myapp:app` in pytest's settings, "
            "or define a fixture `outlast_app` that returns it"
        )
    return load_app(address)


@pytest.fixture
def outlast(
    outlast_app: "Outlast",
    outlast_store: "Store",
    outlast_clock: "FakeClock",
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator["Harness"]:
    """Yield the harness: the app over the store and clock of this test, restored afterwards."""
    from outlast.testing.harness import Harness  # noqa: PLC0415 - same
    from outlast.testing.stores import ids_for_test  # noqa: PLC0415 - same

    logs = tmp_path_factory.getbasetemp() / "outlast-logs"
    ids = ids_for_test(outlast_clock)
    with Harness(outlast_app, outlast_store, outlast_clock, ids=ids, logs=logs) as harness:
        yield harness
