"""One PostgreSQL server for all processes of a test session, started by the first one."""

import fcntl
import json
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from outlast.testing.servers import process_tree
from outlast.testing.servers.postgres import NEWEST, PostgresServer, new_folder
from outlast.testing.servers.postgres_binaries import programs

SCHEMAS: Final = 50
"""Number of schemas in one database before it is dropped."""


@contextmanager
def shared_postgres(meeting: Path, version: str = NEWEST) -> Iterator[PostgresServer]:
    """Yield the server of all processes with the same folder; the last one stops it.

    Others use it at the same time: make databases there, but do not stop or kill it.
    """
    users = meeting / f"postgres-{version}.lock"
    with _alone(meeting / f"postgres-{version}.starting"):
        held = process_tree.hold(users)  # waits until the watcher of an earlier server has finished
        server = _find_or_start(meeting / f"postgres-{version}.json", users, version)
    try:
        yield server
    finally:
        os.close(held)


@contextmanager
def fresh_schemas(server: PostgresServer) -> Iterator[Iterator[str]]:
    """Yield URLs without end, each of a new schema that does not exist yet.

    A schema costs nothing and a database 40 ms. Every few schemas the database is another one,
    for what was left in the last one slows its catalogue down.
    """
    addresses = _places(server)
    try:
        yield addresses
    finally:
        addresses.close()


def _places(server: PostgresServer) -> Generator[str, None, None]:
    while True:
        url = server.new_database()
        try:
            for number in range(SCHEMAS):
                yield f"{url}?schema=test_{number}"
        finally:
            server.drop_database(url.rpartition("/")[2])


def _find_or_start(note: Path, users: Path, version: str) -> PostgresServer:
    found = json.loads(note.read_text()) if note.exists() else None
    if found and Path(found["folder"]).exists():
        return _known(found)
    folder = new_folder()
    process_tree.watch(users, folder)
    server = PostgresServer.create(folder, version)
    told = {"folder": str(folder), "port": server.port, "password": server.password}
    note.touch(0o600)
    note.write_text(json.dumps({**told, "version": version}))
    return server


def _known(found: dict[str, Any]) -> PostgresServer:
    folder = Path(found["folder"])
    return PostgresServer(
        folder=folder,
        version=found["version"],
        port=found["port"],
        password=found["password"],
        programs=programs(found["version"], folder),
    )


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
