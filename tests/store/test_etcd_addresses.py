"""Options of an etcd URL that do not fit, passwords in clear, and servers without the gateway."""

import logging
import subprocess
from pathlib import Path

import pytest
from aiohttp import web

from outlast.errors import ConfigurationError, OperatorError, StoreReadOnly
from outlast.store.keyvalue.engines.etcd.client import Cluster, is_loopback
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
from outlast.store.open import open_store
from outlast.testing.servers.server_process import free_ports


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a certificate, its key, the key encrypted, and a file that is neither."""
    for name, more in (("me", ["-nodes"]), ("locked", ["-passout", "pass:s3cret"])):
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=me", "-days", "9"]
        own = ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.pem")]
        subprocess.run([*words, *own, *more], check=True, capture_output=True)
    (tmp_path / "other").write_text("no certificate")
    return tmp_path


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("key={0}/me.key", "key is given without cert"),
        ("ca={0}/me.pem&key={0}/me.key", "key is given without cert"),
        ("tls=false&ca={0}/me.pem", "tls=false contradicts ca"),
        ("tls=false&cert={0}/me.pem&key={0}/me.key", "tls=false contradicts cert, key"),
        ("tls=yes", "tls is 'yes'; write true or false"),
        ("ca={0}/none.pem", "ca is '.*, and there is no such file"),
        ("ca={0}/other", "TLS files of the etcd URL cannot be used"),
        ("tls=true&cert={0}/me.pem", "TLS files of the etcd URL cannot be used"),
        ("tls=true&cert={0}/me.pem&key={0}/locked.key", "key is encrypted"),
    ],
)
def test_tls_options_that_do_not_fit_are_refused(files: Path, query: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        open_store(f"etcd://h/p?{query.format(files)}")


def test_tls_options_that_fit_are_accepted(files: Path) -> None:
    for query in ("tls=true", "ca={0}/me.pem", "cert={0}/me.pem&key={0}/me.key"):
        assert open_store(f"etcd://h/p?{query.format(files)}")


@pytest.mark.parametrize(
    ("hosts", "password", "is_told"),
    [
        (("db.internal:2379",), "hunter2", True),
        (("127.0.0.1:2379", "10.0.0.7:2379"), "hunter2", True),
        (("127.0.0.1:2379", "[::1]:2379", "localhost:2379"), "hunter2", False),
        (("db.internal:2379",), None, False),
    ],
)
async def test_a_password_in_clear_is_told_at_open_and_by_doctor(
    hosts: tuple[str, ...],
    password: str | None,
    is_told: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(hosts=hosts, user="me", password=password)
    engine = EtcdEngine(cluster, prefix="p", timeout=0)

    engine._client.ask = _healthy  # type: ignore[method-assign]
    warnings = await engine.health_warnings()
    engine._client.ask = _unreachable  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING), pytest.raises(OperatorError):
        await engine.open()

    assert bool(warnings) is is_told
    assert ("is sent in clear; use TLS" in caplog.text) is is_told
    assert "hunter2" not in caplog.text + str(warnings)


async def _healthy(*_: object) -> dict[str, str]:
    return {"dbSize": "0", "dbSizeInUse": "0", "dbSizeQuota": "0"}


async def _unreachable(*_: object) -> None:
    raise OperatorError("not asked")


def test_this_machine_is_known_by_its_names() -> None:
    assert all(map(is_loopback, ("localhost:1", "127.9.9.9:1", "[::1]:1")))
    assert not any(map(is_loopback, ("localhost.evil.example:1", "10.0.0.1:1", "[fe80::1]:1")))


async def test_a_password_where_authentication_is_off_is_refused_at_once() -> None:
    async def refuse(_: web.Request) -> web.Response:
        told = {"code": 9, "message": "etcdserver: authentication is not enabled"}
        return web.json_response(told, status=400)

    app = web.Application()
    app.router.add_post("/{path:.*}", refuse)
    [port] = free_ports(1)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    store = open_store(f"etcd://me:s3cret@127.0.0.1:{port}/p")
    try:
        with pytest.raises(StoreReadOnly, match=r"takes no password.* remove the user") as caught:
            await store.open()
    finally:
        await store.close()
        await runner.cleanup()
    assert "s3cret" not in str(caught.value)


async def test_a_server_without_the_gateway_is_named_with_the_remedy() -> None:
    [port] = free_ports(1)
    runner = web.AppRunner(web.Application())  # answers 404 as etcd does without its gateway
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    store = open_store(f"etcd://127.0.0.1:{port}/p")
    try:
        with pytest.raises(OperatorError, match="--enable-grpc-gateway=true"):
            await store.open()
    finally:
        await store.close()
        await runner.cleanup()
