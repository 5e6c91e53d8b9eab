"""Two canaries, a password and a secret in params, through a worker, a transfer and the commands.

The password may stand nowhere. The secret may stand in the params of its job and nowhere else.
"""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from json import loads
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from outlast import Backoff, Outlast
from outlast.cli.main import main
from outlast.store.contract.transfer import COLUMNS, FIRST, TableKind, key_of
from outlast.store.open import open_store
from seeds.receiver import Receiver, sentry_receiver
from support.servers.etcd_alone import USER, SecureEtcd, secure_etcd

APP = """
import os
from pathlib import Path
from pydantic import BaseModel
from outlast import Backoff, Command, Outlast
from outlast.sentry import Sentry

app = Outlast(name="canary")
app.on_failure(Sentry(timeout="60s"))
ONCE = Backoff(max_attempts=1)


class Payment(BaseModel):
    iban: int


@app.job(retry=ONCE)
def strict(note: str) -> None:
    Payment.model_validate({"iban": note})


@app.job(retry=ONCE)
def loud(own: str) -> None:
    raise ValueError(f'cannot read\\n  File "{own}", line 1, in {own[:20]}')


@app.job
def look() -> int:
    found = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path("/proc", each, "cmdline").read_bytes())
        except OSError:
            continue  # it has ended
    Path("cmdlines").write_bytes(b"\\n".join(found))
    return len(found)


@app.job(executor="command")
def shell() -> Command:
    return Command(["sh", "-c", "env; cat /proc/[0-9]*/cmdline; true"])


@app.job
def later(note: str) -> None: ...
"""


@dataclass
class World:
    """A folder with an app, its environment, and everything that was shown."""

    folder: Path
    env: dict[str, str]
    shown: list[str] = field(default_factory=list)

    def cli(self, *args: str) -> str:
        """Run a command in this process; its output also counts as shown."""
        ended = CliRunner().invoke(main, args, env={**self.env, "NO_COLOR": "1"})
        self.shown.append(ended.output)
        assert not isinstance(ended.exception, Exception), ended.exception
        return ended.output

    def work(self) -> str:
        """Run what is due in a worker process, and return its log."""
        program = [sys.executable, "-m", "outlast", "worker", "tasks:app", "--burst"]
        ended = subprocess.run(
            [*program, "--log-level", "debug"],
            cwd=self.folder,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ended.returncode == 1, ended.stderr  # two jobs fail
        self.shown += [ended.stdout, ended.stderr]
        return ended.stderr


@dataclass(frozen=True)
class Canaries:
    """Texts that occur once on this machine; the secret and the own word have two ends."""

    password: str
    secret: tuple[str, str] = field(default_factory=lambda: (uuid.uuid4().hex, uuid.uuid4().hex))
    own: tuple[str, str] = field(default_factory=lambda: (uuid.uuid4().hex, uuid.uuid4().hex))

    @property
    def hidden(self) -> tuple[str, ...]:
        """What may be shown nowhere."""
        return (self.password, *self.secret)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with sentry_receiver() as server:
        yield server


@dataclass(frozen=True)
class Place:
    """A new store: its URL, its password, and the environment that a process needs to open it."""

    url: str
    password: str
    env: dict[str, str] = field(default_factory=dict)


def _sqlite(request: pytest.FixtureRequest) -> Place:
    """No password is needed; one in each variable must still be kept."""
    password = f"pw{uuid.uuid4().hex}"
    variables = ("PGPASSWORD", "OUTLAST_ETCD_PASSWORD", "AWS_SECRET_ACCESS_KEY")
    file = request.getfixturevalue("tmp_path") / "jobs.db"
    return Place(f"sqlite:///{file}", password, dict.fromkeys(variables, password))


def _postgresql(request: pytest.FixtureRequest) -> Place:
    """The password is in the URL."""
    url = str(request.getfixturevalue("postgres_url"))
    return Place(url, str(urlsplit(url).password))


def _etcd(request: pytest.FixtureRequest) -> Place:
    """The password is in a file, which others may read."""
    server: SecureEtcd = request.getfixturevalue("locked_etcd")
    file = request.getfixturevalue("tmp_path_factory").mktemp("password") / "etcd"
    file.write_text(server.password)
    file.chmod(0o644)
    env = {"OUTLAST_ETCD_PASSWORD_FILE": str(file)}
    return Place(f"etcd://{USER}@{server.host}/jobs?ca={server.certificate}", server.password, env)


def _dynamodb(request: pytest.FixtureRequest) -> Place:
    """The password is the secret key, in the environment; clients of a region share theirs."""
    endpoint = request.getfixturevalue("dynamodb")
    password = f"pw{uuid.uuid4().hex}"
    url = f"dynamodb://canary?region=eu-north-1&endpoint={endpoint}"
    return Place(url, password, {"AWS_SECRET_ACCESS_KEY": password})


STORES = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "etcd": _etcd,
    "dynamodb": _dynamodb,
}


@pytest.fixture
def locked_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureEtcd]:
    """An etcd that requires a user and its password."""
    password = f"pw{uuid.uuid4().hex}"
    with secure_etcd(tmp_path_factory.mktemp("etcd"), prefix="jobs", password=password) as server:
        yield server


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = STORES[request.param](request)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


def test_canaries_are_found_in_the_params_alone(
    place: Place, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, canaries = place.url, Canaries(place.password)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.py").write_text(APP)
    given = {"OUTLAST_URL": address, "OLD_URL": address, "SENTRY_DSN": receiver.dsn}
    world = World(tmp_path, {**given, **place.env})

    waiting = asyncio.run(_enqueue(address, canaries))
    log = world.work()
    _look_around(world, waiting)
    copy = f"sqlite:///{tmp_path / 'copy.db'}"
    copied = world.cli("db", "copy", "--from-env", "OLD_URL", "--to", copy)
    assert "was moved to sqlite:///" in world.cli("db", "status")
    assert "strict" in world.cli("jobs", "--url", copy)

    assert "job_error" in log
    assert "replaces" in copied
    assert len(receiver.raw) == 2
    assert b"outlast.cli.worker_child" in (tmp_path / "cmdlines").read_bytes()
    texts = [*world.shown, *receiver.raw]
    assert not [text for text in texts for each in canaries.hidden if each in text]
    told = "\n".join([log, *receiver.raw])
    assert not [each for each in canaries.own if each in told]
    assert not _files_with(tmp_path, canaries.password)
    files = [f"chmod 600 {each}" for name, each in place.env.items() if name.endswith("_FILE")]
    assert [log.count(each) for each in files] == [1] * len(files)
    for store in (address, copy):
        places = asyncio.run(_places_of(store, canaries.hidden))
        assert places == {"jobs.params"}, places


async def _enqueue(url: str, canaries: Canaries) -> str:
    """Enqueue all jobs as a caller, whose types are named as the app's; return the one in wait."""
    note, own = map("-AND-A-VERY-LONG-PRIVATE-NOTE-".join, (canaries.secret, canaries.own))
    once = Backoff(max_attempts=1)
    async with Outlast(url, name="caller") as app:

        def strict(note: str) -> None: ...
        def loud(own: str) -> None: ...
        def look() -> None: ...
        def shell() -> None: ...
        def later(note: str) -> None: ...

        await app.job(retry=once)(strict).enqueue(note=note)
        await app.job(retry=once)(loud).enqueue(own=own)
        await app.job(look).enqueue()
        await app.job(shell).enqueue()
        return (await app.job(later).options(delay="1d").enqueue(note=note)).id


def _look_around(world: World, waiting: str) -> None:
    """Run what shows a store; `show` and `jobs --json` are left out, which show params."""
    world.cli("jobs")
    for json in ([], ["--json"]):
        for command in (["doctor"], ["db", "status"], ["workers"], ["verify"]):
            world.cli(*command, *json)
        assert "scheduled" in world.cli("explain", waiting, *json)
    for line in world.cli("jobs", "state:succeeded", "--json").splitlines():
        world.cli("logs", loads(line)["id"], "--raw")


def _files_with(folder: Path, text: str) -> list[Path]:
    files = (each for each in folder.rglob("*") if each.is_file())
    return [each for each in files if text.encode() in each.read_bytes()]


async def _places_of(url: str, texts: tuple[str, ...]) -> set[str]:
    """Return the columns of the store in which one of the texts stands."""
    store, found = open_store(url), set()
    await store.open()
    for kind in TableKind:
        after = FIRST[kind]
        while page := await store.dump(kind, after=after, limit=100):
            after = key_of(kind, page[-1])
            for row in page:
                for name, value in zip(COLUMNS[kind], row, strict=False):
                    if any(text in str(value) for text in texts):
                        found.add(f"{kind}.{name}")
    await store.close()
    return found
