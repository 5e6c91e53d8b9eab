"""Fixtures for tests of jobs; beside the package, since importing any part of that imports it all.

pytest loads this in every run wherever Holdfast is installed, so nothing is imported until a test
asks for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.store.base import Store
    from holdfast.testing.clock import FakeClock
    from holdfast.testing.harness import Harness

STORES = ("sqlite", "model")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("holdfast", "durable background jobs")
    group.addoption(
        "--holdfast-store", choices=STORES, help="where `holdfast` keeps the jobs of a test"
    )
    parser.addini("holdfast_store", f"one of {', '.join(STORES)}", default=STORES[0])
    parser.addini("holdfast_app", "the app that `holdfast` tests, as module:attribute", default="")


@pytest.fixture
def holdfast_clock() -> "FakeClock":
    """The clock of the test: it stands still until it is told to move."""
    from holdfast.testing.clock import FakeClock  # noqa: PLC0415 - only who asks pays

    return FakeClock()


@pytest.fixture
def holdfast_store(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    holdfast_clock: "FakeClock",
) -> Iterator["Store"]:
    """A store for this test alone: a SQLite file, or a model of a store in memory."""
    from holdfast.testing.stores import store_for_test  # noqa: PLC0415 - same

    kind = request.config.getoption("holdfast_store") or request.config.getini("holdfast_store")
    if kind not in STORES:
        raise pytest.UsageError(f"holdfast_store is {kind!r:.80}; use one of {', '.join(STORES)}")
    with store_for_test(kind, tmp_path_factory.mktemp("holdfast"), holdfast_clock) as store:
        yield store


@pytest.fixture
def holdfast_app(request: pytest.FixtureRequest) -> "Holdfast":
    """The app under test, from the setting `holdfast_app`; define this fixture to say otherwise."""
    from holdfast.cli.load import load_app  # noqa: PLC0415 - same

    address = request.config.getini("holdfast_app")
    if not address:
        raise pytest.UsageError(
            "which app does `holdfast` test? Set `holdfast_app = myapp:app` in pytest's settings, "
            "or define a fixture `holdfast_app` that returns it"
        )
    return load_app(address)


@pytest.fixture
def holdfast(
    holdfast_app: "Holdfast",
    holdfast_store: "Store",
    holdfast_clock: "FakeClock",
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator["Harness"]:
    """The app on this test's store and clock; afterwards it is as it was."""
    from holdfast.testing.harness import Harness  # noqa: PLC0415 - same
    from holdfast.testing.stores import ids_for_test  # noqa: PLC0415 - same

    logs = tmp_path_factory.getbasetemp() / "holdfast-logs"
    ids = ids_for_test(holdfast_clock)
    with Harness(holdfast_app, holdfast_store, holdfast_clock, ids=ids, logs=logs) as harness:
        yield harness
