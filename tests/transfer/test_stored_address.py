"""The address of the other store, which a store keeps, is no order to connect to it."""

import logging
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.errors import StoreSealed
from outlast.store.contract.transfer import StatusChange, TransferStage

FORGED = ("postgresql://jobs@{host}/x", "etcd://jobs@{host}/x", "dynamodb://jobs?endpoint={url}")


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A server of a stranger, which would be told the passwords of the environment."""
    for name in ("PGPASSWORD", "OUTLAST_ETCD_PASSWORD", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.mark.parametrize("forged", FORGED)
async def test_a_stored_address_is_never_connected_to(
    forged: str, listener: socket.socket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = f"127.0.0.1:{listener.getsockname()[1]}"
    other = forged.format(host=host, url=f"http://{host}")
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    await _plant(url, other)

    with caplog.at_level(logging.WARNING), pytest.raises(StoreSealed, match="outlast db copy"):
        await _enqueue(url)

    with pytest.raises(BlockingIOError):
        listener.accept()
    assert "no server is asked that only this store names" in caplog.text


async def test_a_forged_file_name_cannot_take_over_a_foreign_database(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE theirs (n)")
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    await _plant(url, f"sqlite:///{foreign}?adopt=true")

    with pytest.raises(StoreSealed):
        await _enqueue(url)

    with closing(sqlite3.connect(foreign)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]


async def _plant(url: str, other: str) -> None:
    async with Outlast(url) as app:
        for stage in (TransferStage.FILLING, TransferStage.READY):
            change = StatusChange(stage=stage, other=other, transfer_id="me")
            assert await app.store.change_transfer_status(change)


async def _enqueue(url: str) -> None:
    async with Outlast(url) as app:

        @app.job
        async def add(n: int) -> int:
            return n

        await add.enqueue(1)
