"""TLS, users and passwords of etcd, and what it refuses: one line each."""

import asyncio
import gc
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.core.state import State
from outlast.errors import StoreReadOnly, StoreUnavailable
from outlast.store.open import open_store
from outlast.testing.conformance.factories import SUCCEEDED, job_of, put, settle, take
from outlast.testing.servers.server_process import free_ports
from support.servers.etcd_alone import SecureEtcd, secure_etcd

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("etcd_secure")]

PREFIX = "ours"


@pytest.fixture(scope="module")
def etcd_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureEtcd]:
    folder = tmp_path_factory.mktemp("etcd")
    with secure_etcd(folder, prefix=PREFIX, password="s3cret") as server:  # noqa: S106 - a test's
        yield server


async def test_jobs_are_kept_behind_tls_and_a_password(etcd_lock: SecureEtcd) -> None:
    store = open_store(etcd_lock.url(PREFIX))
    await store.open()

    job_id = await put(store)
    await settle(store, await take(store), SUCCEEDED)

    assert (await job_of(store, job_id)).state is State.SUCCEEDED
    assert "s3cret" not in str(await store.describe())
    await store.close()


async def test_wrong_password_is_refused_and_not_shown(etcd_lock: SecureEtcd) -> None:
    store = open_store(etcd_lock.url(PREFIX, password="wr0ng"))  # noqa: S106 - a test's

    with pytest.raises(StoreReadOnly, match=r"refuses access: .*authentication failed") as caught:
        await store.open()

    assert "wr0ng" not in str(caught.value)
    await store.close()


async def test_without_a_user_the_line_says_where_one_goes(etcd_lock: SecureEtcd) -> None:
    store = open_store(f"etcd://{etcd_lock.host}/{PREFIX}?ca={etcd_lock.certificate}")

    with pytest.raises(
        StoreReadOnly,
        match=r"requires a user: etcd://user@host/prefix, .* OUTLAST_ETCD_PASSWORD",
    ):
        await store.open()
    await store.close()


async def test_prefix_that_was_not_granted_is_refused(etcd_lock: SecureEtcd) -> None:
    store = open_store(etcd_lock.url("theirs"))

    with pytest.raises(StoreReadOnly, match=r"permission denied.*grant that user the prefix"):
        await store.open()
    await store.close()


async def test_client_authenticates_again_after_rights_changed(etcd_lock: SecureEtcd) -> None:
    store = open_store(etcd_lock.url(PREFIX))
    await store.open()

    etcd_lock.change_password(etcd_lock.password)

    assert (await job_of(store, await put(store))).queue == "default"
    await store.close()


def _unclosed(server: SecureEtcd) -> list[str]:
    """Open connections of this process to the server."""
    port = int(server.host.rpartition(":")[2])
    found = [each for each in gc.get_objects() if isinstance(each, socket.socket)]
    return [str(each) for each in found if each.fileno() >= 0 and _is_to(each, port)]


def _is_to(own: socket.socket, port: int) -> bool:
    try:
        return own.family is not socket.AF_UNIX and bool(own.getpeername()[1] == port)
    except OSError:
        return False  # it listens, or is not connected


@pytest.mark.parametrize("seconds", [0.0, 0.005, 0.1])
def test_store_that_is_closed_at_once_has_no_connection_left(
    etcd_lock: SecureEtcd, seconds: float
) -> None:
    async def live() -> None:
        store = open_store(etcd_lock.url(PREFIX))
        await store.open()
        await asyncio.sleep(seconds)  # its watch is being connected, or is
        await store.close()

    for _ in range(5):
        asyncio.run(live())

        assert _unclosed(etcd_lock) == []


async def test_certificate_of_an_unknown_authority_is_not_trusted(etcd_lock: SecureEtcd) -> None:
    url = f"etcd://jobs:s3cret@{etcd_lock.host}/{PREFIX}?tls=true&busy=1"
    store = open_store(url)

    with pytest.raises(StoreUnavailable, match="certificate"):
        await store.open()
    await store.close()


async def test_cluster_that_is_not_there_is_unreachable_by_name() -> None:
    [port] = free_ports(1)
    store = open_store(f"etcd://127.0.0.1:{port}/jobs?busy=1")

    with pytest.raises(StoreUnavailable, match=rf"no etcd endpoint of 127.0.0.1:{port} answered"):
        await store.open()
    await store.close()


async def test_folder_of_certificates_is_no_file(tmp_path: Path, etcd_lock: SecureEtcd) -> None:
    url = f"etcd://{etcd_lock.host}/{PREFIX}?ca={tmp_path}"

    with pytest.raises(ValueError, match="there is no such file"):
        open_store(url)
