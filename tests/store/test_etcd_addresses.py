"""Options of an etcd URL that do not fit, passwords in clear, and servers without the gateway."""

import subprocess
from pathlib import Path

import pytest
from aiohttp import web

from outlast.core.address import is_loopback
from outlast.errors import ConfigurationError, OperatorError, StoreReadOnly
from outlast.store.keyvalue.engines.etcd.client import Cluster
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.open import open_store
from outlast.testing.servers.server_process import free_ports
from support.servers.etcd_alone import etcd_without_gateway


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
    ("hosts", "password", "told"),
    [
        (("db.internal:2379",), "hunter2", "the password and jobs are sent in clear"),
        (("127.0.0.1:2379", "10.0.0.7:2379"), "hunter2", "the password and jobs are"),
        (("db.internal:2379",), None, "HTTP: jobs are sent in clear"),
        (("127.0.0.1:2379", "[::1]:2379", "localhost:2379"), "hunter2", None),
    ],
)
def test_plain_http_to_another_machine_is_a_warning(
    hosts: tuple[str, ...], password: str | None, told: str | None
) -> None:
    engine = EtcdEngine(Cluster(hosts=hosts, user="me", password=password), prefix="p", timeout=0)

    warnings = KeyValueStore(engine).connection_warnings()

    assert "hunter2" not in str(warnings)
    assert not warnings if told is None else told in warnings[0] and "?ca=ca.pem" in warnings[0]


def test_tls_is_no_warning(files: Path) -> None:
    assert open_store(f"etcd://h/p?ca={files}/me.pem").connection_warnings() == []


@pytest.mark.parametrize(
    ("endpoint", "is_told"),
    [
        ("http://10.0.0.5:8000", True),
        ("http://db.internal", True),
        ("http://127.0.0.1:8000", False),
        ("http://localhost", False),
        ("https://db.internal", False),
        (None, False),
    ],
)
def test_plain_http_to_a_dynamodb_endpoint_is_a_warning(
    endpoint: str | None, is_told: bool
) -> None:
    given = "" if endpoint is None else f"&endpoint={endpoint}"

    warnings = open_store(f"dynamodb://jobs?region=eu-central-1{given}").connection_warnings()

    assert bool(warnings) is is_told
    assert all(f"over plain HTTP to {endpoint}: " in each for each in warnings)


def test_endpoint_of_the_environment_is_judged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://10.0.0.6:8000")

    [warning] = open_store("dynamodb://jobs?region=us-west-1").connection_warnings()

    assert "http://10.0.0.6:8000" in warning


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o640, True), (0o604, True)])
def test_password_file_that_others_may_read_is_a_warning(
    mode: int, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pass word"
    file.write_text("hunter2\n")
    file.chmod(mode)
    monkeypatch.setenv("OUTLAST_ETCD_PASSWORD_FILE", str(file))
    monkeypatch.delenv("OUTLAST_ETCD_PASSWORD", raising=False)

    warnings = open_store("etcd://me@127.0.0.1:2379/p").connection_warnings()

    assert bool(warnings) is is_told
    assert all(f"chmod 600 '{file}'" in each for each in warnings)
    assert open_store("etcd://127.0.0.1:2379/p").connection_warnings() == []  # it is not read


def test_this_machine_is_known_by_its_names() -> None:
    assert all(map(is_loopback, ("localhost", "localhost:1", "127.9.9.9:1", "[::1]:1")))
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


async def test_a_server_without_the_gateway_is_named_with_the_remedy(tmp_path: Path) -> None:
    with etcd_without_gateway(tmp_path) as host:
        store = open_store(f"etcd://{host}/p")
        with pytest.raises(OperatorError, match="--enable-grpc-gateway=true"):
            await store.open()
        await store.close()
