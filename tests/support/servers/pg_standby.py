"""A hot standby of a test server, to be promoted when the test ends the primary."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from outlast.testing.servers import postgres, postgres_binaries, process_tree
from outlast.testing.servers.postgres import USER, PostgresServer

PATIENCE: Final = 120.0
"""Seconds after which a standby that has not caught up counts as stuck."""


@contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A standby that streams from `primary`, which is stopped for the copy of its data folder."""
    with postgres._folder() as folder, postgres._watched(folder):
        standby = replace(primary, folder=folder, port=postgres._free_port())
        primary.stop()
        subprocess.run(["cp", "-a", str(primary.data), str(standby.data)], check=True)  # noqa: S607 - found on every path
        primary.start()
        _follow(standby, primary)
        try:
            standby.start()
            yield standby
        finally:
            process_tree.end_all(standby.data)


def promote(standby: PostgresServer, primary: PostgresServer) -> None:
    """Kill the primary once the standby has all it wrote; the standby then accepts writes."""
    written = primary.execute("SELECT pg_current_wal_insert_lsn()")
    caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{written}'"
    end = time.monotonic() + PATIENCE
    while standby.execute(caught_up) != "t":
        assert time.monotonic() < end, f"the standby has not replayed {written}: {standby.log}"
        time.sleep(0.05)
    primary.kill()
    standby.execute("SELECT pg_promote(true, 60)")


def _follow(standby: PostgresServer, primary: PostgresServer) -> None:
    source = f"host=127.0.0.1 port={primary.port} user={USER} password={primary.password}"
    with standby.data.joinpath("postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(f"primary_conninfo = '{source}'\n")
        file.write(f"unix_socket_directories = '{standby.folder}'\n")
    standby.data.joinpath("standby.signal").touch()
    standby.folder.joinpath("log").touch(0o644)
    postgres_binaries.give(standby.folder / "log")
