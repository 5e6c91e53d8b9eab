"""DynamoDB Local and etcd for tests: nothing of them outlives its last user."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from outlast.testing.servers.dynamodb import shared_dynamodb
from outlast.testing.servers.etcd import shared_etcd
from outlast.testing.servers.process_tree import DATA, EXIT_TIMEOUT_S, serving

pytestmark = pytest.mark.slow

Shared = Callable[[Path], AbstractContextManager[object]]


SHARED: dict[str, Shared] = {"dynamodb": shared_dynamodb, "etcd": shared_etcd}


@pytest.mark.parametrize("name", SHARED)
def test_the_shared_server_goes_with_its_last_user_when_it_is_asked_to(
    name: str, tmp_path: Path
) -> None:
    with SHARED[name](tmp_path) as first:
        with SHARED[name](tmp_path) as second:
            assert second == first
        folders = _folders(tmp_path, name)
        assert all(serving(folder / DATA) for folder in folders)

    _until_gone(folders)
    assert not any(serving(folder / DATA) for folder in folders)


def _folders(meeting: Path, name: str) -> list[Path]:
    reported = json.loads(meeting.joinpath(f"{name}.json").read_text())
    return [Path(folder) for folder in reported["folders"]]


def _until_gone(folders: list[Path]) -> None:
    """Before the watcher loses its patience, and kills. Another process gives no event."""
    deadline = time.monotonic() + EXIT_TIMEOUT_S / 2
    while any(folder.exists() for folder in folders):
        assert time.monotonic() < deadline
        time.sleep(0.01)
