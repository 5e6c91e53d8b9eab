"""What a service manager such as systemd is told, through a real datagram socket."""

import asyncio
import os
import socket
import uuid

import pytest

from outlast.worker.supervisor.service_manager import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def inbox(request, tmp_path):
    """A bound socket, and its name as NOTIFY_SOCKET has it."""
    name = f"outlast-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0{name}" if request.param == "abstract" else str(tmp_path / "notify"))
        end.setblocking(False)
        yield end, f"@{name}" if request.param == "abstract" else str(tmp_path / "notify")


def test_a_message_arrives_at_the_socket_that_the_environment_names(inbox):
    end, name = inbox

    ServiceManager.take({"NOTIFY_SOCKET": name}).notify("READY=1")

    assert end.recv(100) == b"READY=1"


def test_the_variables_are_removed_from_the_environment():
    environment = {
        "NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1", "HOME": "/"
    }  # fmt: skip

    ServiceManager.take(environment)

    assert environment == {"HOME": "/"}


async def test_a_live_worker_is_announced_at_half_of_the_interval(inbox, monkeypatch):
    end, name = inbox
    is_live, pauses = iter([True, False, True]), []

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    manager = ServiceManager.take(
        {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    )

    with pytest.raises(asyncio.CancelledError):
        await manager.keep_alive(lambda: next(is_live))

    assert pauses == [15.0, 0.5, 15.0]
    assert [end.recv(100), end.recv(100)] == [b"WATCHDOG=1"] * 2
    with pytest.raises(BlockingIOError):
        end.recv(100)


@pytest.mark.parametrize(
    "wrong",
    [
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
        {},
    ],
)
async def test_without_a_watchdog_of_its_own_a_worker_sends_no_sign_of_life(inbox, wrong):
    end, name = inbox

    await ServiceManager.take({"NOTIFY_SOCKET": name, **wrong}).keep_alive(lambda: True)

    with pytest.raises(BlockingIOError):
        end.recv(100)


async def test_a_message_that_finds_no_room_is_sent_later_and_in_order(inbox):
    end, name = inbox
    manager = ServiceManager.take({"NOTIFY_SOCKET": name})
    while not manager._unsent:
        manager.notify("filler")

    manager.notify("READY=1")
    manager.notify("STOPPING=1")
    heard = []
    while not heard or heard[-1] != b"STOPPING=1":
        heard.append(await asyncio.get_running_loop().sock_recv(end, 100))

    assert heard[-3:] == [b"filler", b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("name", ["/nowhere/at/all", "vsock:2:1", "/" + "x" * 300])
def test_a_socket_that_takes_no_message_is_logged_and_harms_nothing(name, caplog):
    ServiceManager.take({"NOTIFY_SOCKET": name}).notify("READY=1")

    assert len(caplog.records) == 1


def test_without_a_service_manager_nothing_is_said(caplog):
    ServiceManager.take({}).notify("READY=1")

    assert not caplog.records
