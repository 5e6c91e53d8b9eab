"""What every test shares: our plugin, assertions that explain themselves, and who runs alone."""

import signal
from pathlib import Path

import pytest

pytest_plugins = ["pytester", "pytest_holdfast"]
pytest.register_assert_rewrite("holdfast.testing")

ROOT = Path(__file__).parent
ALONE = frozenset({"chaos", "processes", "worker"})
"""Folders whose tests take the time of what they do: nothing else runs beside them."""

FREE = frozenset({"api", "cli", "conformance", "core", "store"})
"""Folders whose tests share nothing; those of any other file stay together, with its fixtures."""


def pytest_configure() -> None:
    """Ctrl-C is heard, by us and by whom we start, also where whoever started us ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(ROOT).parts[0]
        if folder in ALONE:
            item.add_marker(pytest.mark.alone)
        elif folder not in FREE:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
