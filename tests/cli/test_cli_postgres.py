"""The command line on PostgreSQL: what is wrong is said in one line, with what mends it."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from click.testing import CliRunner, Result

from outlast.cli.main import main
from outlast.store.postgres import migrate
from outlast.store.postgres.health import vacuum_blocker_warning
from outlast.testing.servers.postgres import PostgresServer

SECRET = "guess-me-not"  # noqa: S105 - no server knows it


def run(*args: str, url: str | None = None) -> Result:
    env = {"OUTLAST_APP": None, "OUTLAST_URL": url, "NO_COLOR": "1"}
    return CliRunner().invoke(main, args, env=env)


def refusal(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("outlast: ")
    assert SECRET not in result.output
    return line


def as_role(url: str, user: str, password: str = SECRET) -> str:
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{where}"))


def sql(url: str, *statements: str) -> None:
    async def write() -> None:
        connection = await asyncpg.connect(url.partition("?")[0])
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(write())


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.new_database()
    yield url
    postgres.drop_database(url.rpartition("/")[2])


@pytest.fixture
def guest(postgres: PostgresServer, database: str) -> Iterator[str]:
    """The same database, as a role that may do nothing there."""
    name = database.rpartition("/")[2]
    role = f"guest_of_{name}"  # a role is of the whole server, which others use too
    postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{SECRET}'")
    postgres.execute(f"REVOKE ALL ON DATABASE {name} FROM public")
    postgres.execute(f"GRANT CONNECT ON DATABASE {name} TO {role}")
    yield as_role(database, role)
    postgres.execute(f"REVOKE ALL ON DATABASE {name} FROM {role}")
    postgres.execute(f"DROP OWNED BY {role}; DROP ROLE {role}", name)


def test_a_database_without_our_tables_is_said_and_not_filled(database: str) -> None:
    for command in (["jobs"], ["doctor"], ["db", "status"], ["verify"]):
        line = refusal(run(*command, url=database), 5)

        assert "there is no store at" in line
        assert "outlast db migrate" in line


def test_migrate_makes_the_tables_and_doctor_looks_at_them(database: str) -> None:
    made = run("db", "migrate", url=database)
    again = run("db", "migrate", url=database)
    doctor = run("doctor", url=database)

    assert (made.exit_code, again.exit_code, doctor.exit_code) == (0, 0, 0), doctor.output
    assert "PostgreSQL" in made.stdout
    assert "fsync is off" in doctor.stdout, "as the servers of our tests are set"


def test_the_printed_sql_makes_the_same_tables(database: str) -> None:
    url = f"{database}?schema=printed"
    printed = run("db", "sql", "--url", url)
    assert printed.exit_code == 0, printed.output

    sql(url, printed.stdout)

    status = run("db", "status", url=url)
    assert status.exit_code == 0, status.output
    assert "schema printed" in status.stdout


def test_sql_without_an_address_is_for_a_file() -> None:
    assert "outlast_jobs" in run("db", "sql").stdout


@pytest.mark.parametrize(
    ("url", "code", "why"),
    [
        ("postgresql://postgres@127.0.0.1:1/jobs", 5, "does not answer"),
        ("postgresql://postgres@no-such-host.invalid/jobs", 5, "does not answer"),
        ("postgresql://postgres@127.0.0.1:port/jobs", 2, "names no database server"),
        ("postgresql://postgres@127.0.0.1:99999/jobs", 2, "names no database server"),
        ("postgresql://127.0.0.1/jobs?schema=No", 2, "schema"),
        ("postgresql://127.0.0.1/jobs?notify=maybe", 2, "write true or false"),
        ("postgresql://127.0.0.1/jobs?wait=long", 2, "seconds"),
        ("mysql://root:guess-me-not@127.0.0.1/jobs", 2, "is no store's address"),
    ],
)
def test_a_wrong_address_is_said(url: str, code: int, why: str) -> None:
    assert why in refusal(run("jobs", url=url), code)


def test_a_wrong_password_is_said_and_not_shown(database: str) -> None:
    line = refusal(run("jobs", url=as_role(database, "postgres")), 5)

    assert "password authentication failed" in line
    assert "check user and password" in line


def test_a_missing_database_is_said(postgres: PostgresServer) -> None:
    line = refusal(run("jobs", url=postgres.url("nowhere")), 5)

    assert '"nowhere" does not exist' in line
    assert "createdb" in line


def test_an_unknown_option_is_refused(database: str) -> None:
    line = refusal(run("jobs", url=f"{database}?colour=red"), 5)

    assert "colour" in line
    assert "schema, pooler, wait and notify" in line


def test_missing_rights_are_said(database: str, guest: str) -> None:
    to_create = refusal(run("db", "migrate", url=guest), 5)
    run("db", "migrate", url=database)
    to_read = refusal(run("jobs", url=guest), 5)

    assert "permission denied" in to_create
    assert "grant" in to_create
    assert "permission denied" in to_read


def test_a_role_that_may_use_the_tables_need_not_make_them(database: str, guest: str) -> None:
    run("db", "migrate", url=database)
    role = f"guest_of_{database.rpartition('/')[2]}"
    sql(
        database,
        f"GRANT USAGE ON SCHEMA outlast TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA outlast TO {role}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA outlast TO {role}",
    )

    paused = run("queue", "pause", "mail", "--create", url=guest)

    assert paused.exit_code == 0, paused.output


def test_a_schema_newer_than_the_code_is_said(database: str) -> None:
    run("db", "migrate", url=database)
    sql(database, "UPDATE outlast.meta SET version = 99")

    line = refusal(run("jobs", url=database), 5)

    assert "schema 99" in line
    assert "upgrade Outlast" in line


def test_a_schema_of_something_else_is_left_alone(database: str) -> None:
    sql(database, "CREATE SCHEMA outlast", "CREATE TABLE outlast.jobs (a integer)")

    line = refusal(run("db", "migrate", url=database), 5)

    assert "belongs to another program" in line
    assert "?schema=" in line


def test_an_old_server_is_said(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "MIN_SERVER_VERSION", 990000)

    line = refusal(run("db", "migrate", url=database), 5)

    assert "Outlast needs 99 or newer" in line


def test_a_missing_driver_is_said_with_the_command(database: str) -> None:
    program = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from outlast.cli.main import main\n"
        f"main(['jobs', '--url', {database!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 5, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("outlast: PostgreSQL needs a driver")
    assert line.endswith("pip install 'outlast[postgres]'")


def test_doctor_names_the_session_that_blocks_vacuum(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("db", "migrate", url=database)
    monkeypatch.setattr("outlast.store.postgres.health.LONG_TRANSACTION_S", 0)

    async def doctor_beside_an_old_reader() -> tuple[int, Result]:
        reader = await asyncpg.connect(database, server_settings={"application_name": "report"})
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM outlast.jobs")
        pid: int = await reader.fetchval("SELECT pg_backend_pid()")
        try:
            return pid, await asyncio.to_thread(run, "doctor", url=database)
        finally:
            await reader.close()

    pid, result = asyncio.run(doctor_beside_an_old_reader())

    assert f"session {pid} of postgres (report) is idle in transaction" in result.stdout
    assert f"pg_terminate_backend({pid})" in result.stdout


def test_doctor_names_an_unread_slot_and_a_prepared_transaction() -> None:
    slot = vacuum_blocker_warning(("slot", "backup", "", "", "", 0))
    prepared = vacuum_blocker_warning(("prepared", "tx-7", "app", "", "", 3600))

    assert "replication slot backup has no reader" in slot
    assert "pg_drop_replication_slot('backup')" in slot
    assert "prepared transaction 'tx-7' of app is open for 3,600 s" in prepared
