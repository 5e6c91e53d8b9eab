"""`outlast health` as the probe of a container, and the addresses that `worker --health` takes."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from click.testing import CliRunner

from outlast.cli.main import main

PATIENCE = 120


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Serve this answer once; the address, and what was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)

        def serve() -> None:
            line, _ = server.accept()
            with line:
                asked.append(line.recv(4096))
                line.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", asked
        finally:
            thread.join(PATIENCE)


def body(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\n\r\n{text}".encode()


def run(*args: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["health", *args])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("args", "path", "text"),
    [([], b"/readyz", '{"ready": true}'), (["--live"], b"/healthz", '{"live": true}')],
)
def test_a_healthy_worker_exits_with_0(args: list[str], path: bytes, text: str) -> None:
    with answering(body(text)) as (address, asked):
        code, stdout, _ = run(address, "--json", *args)

    assert (code, json.loads(stdout)) == (0, json.loads(text))
    assert asked[0].startswith(b"GET " + path + b" HTTP/1.1\r\n")


def test_what_is_wrong_is_one_line() -> None:
    text = '{"ready": false, "reason": "the worker is draining"}'
    with answering(body(text)) as (address, _):
        code, stdout, stderr = run(address, "--json")

    assert (code, json.loads(stdout)) == (1, json.loads(text))
    assert stderr == f"outlast: the worker at {address} is not ready: the worker is draining\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "[]",
        "{}",
        '{"ready": 1}',
        "[" * 50_000,
        '{"ready": false, "reason": "a\\n\\u001b[1m"}',
    ],
)
def test_what_is_no_worker_is_never_healthy(text: str) -> None:
    with answering(body(text)) as (address, _):
        code, _, stderr = run(address)

    assert (code, len(stderr.splitlines())) == (1, 1)
    assert "\x1b" not in stderr


def test_a_worker_that_is_not_there_is_named_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"

    code, _, stderr = run(address)

    assert code == 1
    assert stderr.startswith(f"outlast: no worker answers at {address}: ")


def test_a_worker_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.cli.health.TIMEOUT_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        assert run(address) == (1, "", f"outlast: the worker at {address} does not answer\n")


def test_what_is_no_address_is_a_usage_error() -> None:
    code, _, stderr = run("8080")

    assert code == 2
    assert "write a numeric host and a port" in stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--health", "0.0.0.0:80"], "other machines reach 0.0.0.0:80"),
        (["--health", "[::]:80"], "add --health-public"),
        (["--health", ":80"], "write a numeric host and a port"),
        (["--health-public"], "--health-public needs --health"),
    ],
)
def test_a_worker_refuses_an_address_that_it_must_not_serve(args: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["worker", "tasks:app", *args])

    assert done.exit_code == 2
    assert says in done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1:80", "[::1]:80", "localhost:80"])
def test_a_loopback_address_needs_no_permission(address: str, accepted: Callable[[], bool]) -> None:
    CliRunner().invoke(main, ["worker", "tasks:app", "--health", address])

    assert accepted()


def test_a_public_address_needs_its_option(accepted: Callable[[], bool]) -> None:
    CliRunner().invoke(main, ["worker", "tasks:app", "--health", "0.0.0.0:80", "--health-public"])

    assert accepted()


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether a worker would have started."""
    calls: list[object] = []

    async def start(*args: object, **options: object) -> int:
        calls.append(args)
        return 0

    monkeypatch.setattr("outlast.cli.worker._run_with_probes", start)
    monkeypatch.setattr("outlast.cli.worker.configure", lambda *_, **__: None)
    return lambda: bool(calls)
