"""The probes of a real worker, and what it tells its service manager."""

import json
import re
import socket
import subprocess
import sys
import uuid
from http.client import HTTPConnection
from pathlib import Path
from signal import SIGTERM
from threading import Thread

import pytest

from .worker_tree import PATIENCE, PROGRAM, until

pytestmark = pytest.mark.slow

UNUSABLE = 2


@pytest.fixture
def inbox():
    """What arrives at an abstract datagram socket, and its name as NOTIFY_SOCKET has it."""
    name = f"outlast-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0{name}")
        heard = []

        def listen():
            while (message := end.recv(100)) != b"end":
                heard.append(message)

        thread = Thread(target=listen)
        thread.start()
        yield heard, f"@{name}"
        end.sendto(b"end", f"\0{name}")
        thread.join(PATIENCE)


def asked(port, path):
    line = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    line.request("GET", path)
    answer = line.getresponse()
    return answer.status, json.loads(answer.read())


def health(*args):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "health", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_a_worker_answers_its_probes_and_tells_its_service_manager(grow, ledger, inbox):
    heard, name = inbox
    variables = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"}

    tree = grow("--health", "127.0.0.1:0", env=variables).ready()
    until(lambda: b"READY=1" in heard and b"WATCHDOG=1" in heard, what="messages")
    port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", tree.log)[0])

    assert asked(port, "/healthz") == (200, {"live": True})
    assert asked(port, "/readyz") == (200, {"ready": True})
    assert asked(port, "/backlog") == (200, {"backlog": 0})
    assert health(f"127.0.0.1:{port}").returncode == 0
    environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in tree.children()]
    assert environments
    assert not any(b"NOTIFY_SOCKET" in each or b"WATCHDOG_USEC" in each for each in environments)

    tree.signal(SIGTERM)
    assert tree.wait() == 0
    until(lambda: b"STOPPING=1" in heard, what="its last message")
    refused = health(f"127.0.0.1:{port}")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)


def test_a_port_in_use_ends_the_worker_before_it_claims(grow, ledger):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        tree = grow("--health", f"127.0.0.1:{port}")

        assert tree.wait() == UNUSABLE
    (line,) = tree.log.splitlines()
    assert f"cannot listen on 127.0.0.1:{port}" in line
    assert "give --health another port" in line
