"""The PostgreSQL server that tests start: it answers, survives a kill, and outlives nobody."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from outlast.testing.servers import postgres_binaries
from outlast.testing.servers.postgres import PostgresServer, postgres_server
from outlast.testing.servers.postgres_shared import SCHEMAS, fresh_schemas, shared_postgres
from outlast.testing.servers.process_tree import is_alive, serving
from outlast.testing.servers.server_process import ServerFailed


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(durable=True) as server:
        yield server


async def ask(url: str, sql: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


@pytest.mark.parametrize("version", postgres_binaries.VERSIONS)
async def test_each_version_starts_and_says_so(version: str) -> None:
    with postgres_server(version) as server:
        reported = await ask(server.url(), "SHOW server_version")

    assert str(reported).startswith(f"{version}.")


async def test_what_was_committed_survives_a_kill(server: PostgresServer) -> None:
    url = server.new_database()
    await ask(url, "CREATE TABLE kept AS SELECT 7 AS n")

    server.kill()
    with pytest.raises(OSError, match=r"refused|failed"):
        await asyncpg.connect(url)
    server.start()

    assert await ask(url, "SELECT n FROM kept") == 7
    assert "not properly shut down" in server.log


async def test_a_kill_ends_every_process_of_the_server(server: PostgresServer) -> None:
    connection = await asyncpg.connect(server.url())
    backend = await connection.fetchval("SELECT pg_backend_pid()")

    server.kill()

    assert not serving(server.data)
    assert not is_alive(backend)
    connection.terminate()
    server.start()


async def test_it_stops_in_order_and_starts_again(server: PostgresServer) -> None:
    server.stop()
    server.start()

    assert await ask(server.url(), "SELECT 1") == 1


async def test_a_new_database_is_empty_and_its_own(server: PostgresServer) -> None:
    first, second = server.new_database(), server.new_database()
    await ask(first, "CREATE TABLE mine (n int)")

    assert await ask(second, "SELECT to_regclass('mine')") is None


async def test_flushing_is_a_choice(server: PostgresServer, postgres: PostgresServer) -> None:
    reported = [await ask(each.url(), "SHOW fsync") for each in (server, postgres)]

    assert reported == ["on", "off"]


async def test_nobody_gets_in_without_the_password(server: PostgresServer) -> None:
    url = server.url().replace(server.password, "guess")

    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(url)
    assert server.password not in repr(server)


def test_an_unknown_version_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no PostgreSQL '9'.*18, 16"), postgres_server("9"):
        pass


def test_a_statement_that_fails_says_why(server: PostgresServer) -> None:
    with pytest.raises(ServerFailed, match='relation "nothing" does not exist'):
        server.execute("SELECT * FROM nothing")


def test_a_server_that_cannot_start_shows_its_log() -> None:
    wrong = {"shared_preload_libraries": "no_such_thing"}

    with pytest.raises(ServerFailed, match="no_such_thing"), postgres_server(settings=wrong):
        pass


KILLED = """
import sys, time
from outlast.testing.servers.postgres import postgres_server

with postgres_server() as server:
    print(server.folder, flush=True)
    time.sleep(600)
"""


def test_it_does_not_outlive_a_process_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().decode().strip())
        assert serving(folder / "data")

        process.kill()

    _until_gone(folder)
    assert not serving(folder / "data")


def _until_gone(folder: Path) -> None:
    """What another process does gives no event."""
    deadline = time.monotonic() + 120
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_whoever_meets_in_a_folder_shares_one_server(tmp_path: Path) -> None:
    with shared_postgres(tmp_path) as first, shared_postgres(tmp_path) as second:
        assert first == second
        assert len(serving(first.data)) == 1


def test_the_shared_server_goes_with_its_last_user(tmp_path: Path) -> None:
    with shared_postgres(tmp_path) as first:
        with shared_postgres(tmp_path):
            pass
        assert first.execute("SELECT 1") == "1"

    _until_gone(first.folder)
    assert not serving(first.data)


def test_whoever_comes_as_the_last_one_leaves_finds_one_that_answers(tmp_path: Path) -> None:
    for _ in range(3):
        with shared_postgres(tmp_path) as server:
            assert server.execute("SELECT 1") == "1"


def test_after_the_last_user_the_next_one_gets_a_new_server(tmp_path: Path) -> None:
    with shared_postgres(tmp_path) as first:
        pass
    _until_gone(first.folder)

    with shared_postgres(tmp_path) as second:
        assert second.folder != first.folder
        assert second.execute("SELECT 1") == "1"


async def test_each_test_has_a_schema_of_its_own(postgres_places: Iterator[str]) -> None:
    first, second = (next(postgres_places).split("?schema=") for _ in range(2))

    assert first[0] == second[0]
    assert first[1] != second[1]
    assert await ask(first[0], f"SELECT to_regnamespace('{first[1]}')") is None


def test_a_database_full_of_schemas_is_dropped(server: PostgresServer) -> None:
    with fresh_schemas(server) as addresses:
        first, *_, last = (next(addresses).split("?")[0] for _ in range(SCHEMAS + 1))

        assert first != last
        names = server.execute("SELECT datname FROM pg_database").splitlines()
        assert first.rpartition("/")[2] not in names
        assert last.rpartition("/")[2] in names


def test_programs_where_nobody_may_look_run_from_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment in root's home."""
    monkeypatch.setattr(
        postgres_binaries, "programs", lambda *where: postgres_binaries.copied(*where) / "bin"
    )

    with postgres_server() as server:
        assert server.programs.is_relative_to(server.folder)
        assert server.execute("SELECT 1") == "1"


def test_a_place_in_a_private_folder_is_not_open_to_all(tmp_path: Path) -> None:
    place = tmp_path / "private" / "pginstall"
    place.mkdir(parents=True)

    place.parent.chmod(0o700)

    assert not postgres_binaries._is_open_to_all(place)


def test_the_watcher_hears_no_ctrl_c() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().decode().strip())

        os.killpg(process.pid, signal.SIGINT)

    _until_gone(folder)
    assert not serving(folder / "data")
