"""A real etcd of one member, for as long as its test process lives: secured, or with no gateway."""

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from outlast.store.keyvalue.engines.etcd.client import Cluster
from outlast.testing.servers import process_tree, shared_server
from outlast.testing.servers.etcd import REQUEST_TIMEOUT_S, THRIFTY, program
from outlast.testing.servers.server_process import (
    ServerFailed,
    ServerProcess,
    free_ports,
    new_folder,
)

STARTS: Final = 5
START_S: Final = 20.0
"""How often a killed member is started again, and seconds in which each start must answer."""

ROOT: Final = "root"
USER: Final = "jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureEtcd:
    """One member; `user` may access what is under `prefix`, and nothing else."""

    host: str
    certificate: Path
    password: str
    prefix: str
    program: ServerProcess

    @property
    def cluster(self) -> Cluster:
        """What a client needs to connect as the user."""
        trust = ssl.create_default_context(cafile=str(self.certificate))
        return Cluster(hosts=(self.host,), user=USER, password=self.password, tls=trust)

    def restart(self) -> None:
        """Kill the member and start it again: it has forgotten every token."""
        for _ in range(STARTS):
            self.program.kill()
            self.program.start(env=THRIFTY)
            if self._answers_in_time():
                return
        raise ServerFailed(f"etcd does not start again: {self.program.log[-2000:]}")

    def _answers_in_time(self) -> bool:
        """Wait for an answer; False if there is none, as when its port was not free at once."""
        deadline = time.monotonic() + START_S
        while not self.answers():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def url(self, prefix: str, *, user: str = USER, password: str | None = None) -> str:
        name = f"{user}:{self.password if password is None else password}"
        return f"etcd://{name}@{self.host}/{prefix}?ca={self.certificate}"

    def ask(self, path: str, body: Mapping[str, Any], token: str | None = None) -> Any:
        """One request, over TLS; OSError if it is refused."""
        headers = {} if token is None else {"Authorization": token}
        trust = ssl.create_default_context(cafile=str(self.certificate))
        connection = HTTPSConnection(self.host, timeout=REQUEST_TIMEOUT_S, context=trust)
        with closing(connection):  # urlopen leaves it open if the server ends meanwhile
            connection.request("POST", f"/v3/{path}", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise OSError(f"{path}: status {answer.status}")
            return json.load(answer)

    def answers(self) -> bool:
        with suppress(OSError, HTTPException, ValueError):
            return int(self.ask("maintenance/status", {}).get("leader", 0)) > 0
        return False

    def change_password(self, password: str) -> None:
        """Change the password as root: the tokens of connected clients become invalid."""
        root = {"name": ROOT, "password": self.password}
        token = self.ask("auth/authenticate", root)["token"]
        self.ask("auth/user/changepw", {"name": USER, "password": password}, token)


@contextmanager
def secure_etcd(folder: Path, *, prefix: str, password: str) -> Iterator[SecureEtcd]:
    """Start an etcd on loopback with a self-signed certificate."""

    def start(users: Path) -> shared_server.ServerFacts:
        own = new_folder("etcd-secure")
        process_tree.watch(users, own)
        host, words = _words(own, "https", "--auto-tls")
        ServerProcess(folder=own, words=words).start(env=THRIFTY)
        return {"folder": str(own), "host": host, "words": words}

    with shared_server.own(folder, "etcd-secure", start) as reported:
        where = Path(reported["folder"])
        certificate = where / process_tree.DATA / "fixtures" / "client" / "cert.pem"
        server = SecureEtcd(
            host=reported["host"],
            certificate=certificate,
            password=password,
            prefix=prefix,
            program=ServerProcess(folder=where, words=reported["words"]),
        )
        server.program.wait(server.answers)
        _lock(server)
        yield server


@contextmanager
def etcd_without_gateway(folder: Path) -> Iterator[str]:
    """Start an etcd whose JSON gateway is off, and yield its host."""

    def start(users: Path) -> shared_server.ServerFacts:
        own = new_folder("etcd-bare")
        process_tree.watch(users, own)
        host, words = _words(own, "http", "--enable-grpc-gateway=false")
        ServerProcess(folder=own, words=words).start(env=THRIFTY)
        return {"folder": own, "host": host, "words": words}

    with shared_server.own(folder, "etcd-bare", start) as told:
        host = told["host"]
        ServerProcess(folder=told["folder"], words=told["words"]).wait(lambda: _is_healthy(host))
        yield host


def _is_healthy(host: str) -> bool:
    with suppress(OSError), urlopen(f"http://{host}/health", timeout=REQUEST_TIMEOUT_S) as answer:
        return bool(answer.status == HTTPStatus.OK)
    return False


def _words(folder: Path, scheme: str, *flags: str) -> tuple[str, tuple[str, ...]]:
    """Return the host, and the command that serves it."""
    client, peer = free_ports(2)
    url, between = f"{scheme}://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    options = {
        "--name": "alone",
        "--data-dir": str(folder / process_tree.DATA),
        "--listen-client-urls": url,
        "--advertise-client-urls": url,
        "--listen-peer-urls": between,
        "--initial-advertise-peer-urls": between,
        "--initial-cluster": f"alone={between}",
        "--log-level": "error",
    }
    words = (program(), *(word for option in options.items() for word in option))
    return f"127.0.0.1:{client}", (*words, *flags, "--unsafe-no-fsync")


def _lock(server: SecureEtcd) -> None:
    """Create the two users and require authentication."""
    start = f"{server.prefix}/".encode()
    granted = {"permType": "READWRITE", "key": _b64(start), "range_end": _b64(start[:-1] + b"0")}
    for name in (ROOT, USER):
        server.ask("auth/user/add", {"name": name, "password": server.password})
        server.ask("auth/role/add", {"name": name})
        server.ask("auth/user/grant", {"user": name, "role": name})
    server.ask("auth/role/grant", {"name": USER, "perm": granted})
    server.ask("auth/enable", {})


def _b64(text: bytes) -> str:
    return b64encode(text).decode()
