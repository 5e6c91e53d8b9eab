"""A folder, its ledger, and workers on it; all of them are ended with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .ledger import Ledger
from .notes import Notes
from .worker_tree import WorkerTree, worker_trees


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def notes(ledger: Ledger) -> Notes:
    return ledger.notes


@pytest.fixture
def grow(tmp_path: Path) -> Iterator[Callable[..., WorkerTree]]:
    """Starts `outlast worker` with these options, and settings by name."""
    with worker_trees(tmp_path) as grow:
        yield grow
