"""The public list is short, sorted, and true."""

import subprocess
import sys

import pytest

import outlast
from outlast.errors import OutlastError


def test_every_public_name_can_be_imported():
    assert [name for name in outlast.__all__ if not hasattr(outlast, name)] == []
    assert sorted(outlast.__all__) == list(outlast.__all__)


def test_nothing_else_is_public():
    for name in outlast.__all__:
        getattr(outlast, name)  # each is there once it was asked for
    modules = {name for name in vars(outlast) if f"outlast.{name}" in sys.modules}
    seen = {name for name in vars(outlast) if not name.startswith("_")} - modules

    assert seen == set(outlast.__all__) - {"__version__"}


def test_every_public_name_says_what_it_is():
    silent = [
        name
        for name in outlast.__all__
        if name != "__version__" and not getattr(outlast, name).__doc__
    ]

    assert silent == []


def test_every_public_error_is_of_our_tree():
    errors = [
        thing
        for thing in (getattr(outlast, name) for name in outlast.__all__)
        if isinstance(thing, type) and issubclass(thing, Exception)
    ]

    assert errors
    assert all(issubclass(error, OutlastError) for error in errors)


@pytest.mark.slow
def test_importing_starts_nothing_and_pulls_in_no_database_client():
    code = (
        "import sys, threading, outlast;"
        "print(threading.active_count(), sorted({'sqlite3', 'asyncpg', 'boto3', 'aetcd'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True
    )

    assert done.stdout.split() == ["1", "[]"]
