"""The probes over a real connection: what they answer, and what they refuse or cut off."""

import asyncio
import json

import pytest

from outlast.errors import InvalidArgument
from outlast.worker.supervisor.health import Unready
from outlast.worker.supervisor.probe_address import ProbeAddress, parse_address
from outlast.worker.supervisor.probe_server import MAX_CONNECTIONS, ProbeServer

ANYWHERE = ProbeAddress("127.0.0.1", 0)
PATIENCE = 300.0


class Health:
    """A live and ready worker of two queues."""

    def __init__(self):
        self.is_live = True
        self.unready = None
        self.counts = {"mail": 5, "default": 7}
        self.hangs = False

    async def backlog(self):
        if self.hangs:
            await asyncio.Event().wait()
        return self.counts


@pytest.fixture
def health():
    return Health()


def listening(health, *, is_public=False, request_timeout=PATIENCE, answer_timeout=PATIENCE):
    return ProbeServer(
        health,
        is_public=is_public,
        request_timeout=request_timeout,
        answer_timeout=answer_timeout,
    ).listening(ANYWHERE)


async def raw(port, request):
    """Send the bytes; return all that comes back until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def get(port, target, method="GET"):
    """Return the status and the JSON of the answer."""
    answer = await raw(port, f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_a_ready_worker_answers_each_probe(health):
    async with listening(health) as port:
        assert await get(port, "/healthz") == (200, {"live": True})
        assert await get(port, "/readyz") == (200, {"ready": True})
        assert await get(port, "/backlog") == (200, {"backlog": 12})
        assert await get(port, "/backlog?queue=mail") == (200, {"backlog": 5})


async def test_a_worker_that_is_not_ready_says_why(health):
    health.unready = Unready.DRAINING
    health.is_live = False

    async with listening(health) as port:
        assert await get(port, "/readyz") == (
            503,
            {"ready": False, "reason": "the worker is draining"},
        )
        assert await get(port, "/healthz") == (
            503,
            {"live": False, "reason": "a child process is silent"},
        )


async def test_a_public_address_gives_no_details_and_no_backlog(health):
    health.unready = Unready.STORE_AWAY
    health.is_live = False

    async with listening(health, is_public=True) as port:
        assert await get(port, "/readyz") == (503, {"ready": False})
        assert await get(port, "/healthz") == (503, {"live": False})
        assert (await get(port, "/backlog"))[0] == 404
        assert (await get(port, "/backlog?queue=mail"))[0] == 404


async def test_a_backlog_that_cannot_be_told_is_no_number(health):
    health.counts = None
    health.unready = Unready.STARTING

    async with listening(health) as port:
        assert await get(port, "/backlog") == (503, {"reason": "the worker is starting"})


async def test_a_store_that_hangs_does_not_hang_the_probe(health):
    health.hangs = True

    async with listening(health, answer_timeout=0.01) as port:
        assert await get(port, "/backlog") == (503, {"reason": "the store does not answer"})
        assert (await get(port, "/healthz"))[0] == 200


async def test_head_is_answered_without_a_body(health):
    async with listening(health) as port:
        answer = await raw(port, b"HEAD /readyz HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/", 404),
        ("/jobs", 404),
        ("/backlog?queue=unknown", 404),
        ("/backlog?queu=mail", 400),
        ("/backlog?queue=mail&queue=default", 400),
        ("/backlog?" + "queue=a&" * 9, 400),
        ("//[", 400),
    ],
)
async def test_what_is_no_probe_is_refused_and_not_repeated(health, target, status):
    async with listening(health) as port:
        found, body = await get(port, target)

    assert found == status
    assert "unknown" not in json.dumps(body)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"])
async def test_only_get_and_head_are_allowed(health, method):
    async with listening(health) as port:
        assert (await get(port, "/readyz", method))[0] == 405


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"\r\n\r\n",
        b"GET /readyz\r\n\r\n",
        b"GET /readyz HTTP/2.0\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"get /readyz HTTP/1.1\r\n\r\n",
    ],
)
async def test_garbage_is_refused(health, garbage):
    async with listening(health) as port:
        assert (await raw(port, garbage)).startswith(b"HTTP/1.1 400 ")
        assert (await get(port, "/readyz"))[0] == 200


async def test_huge_headers_are_refused_or_cut_off(health):
    async with listening(health) as port:
        answer = await raw(port, b"GET /readyz HTTP/1.1\r\nX: " + b"a" * 10_000_000)

        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        assert (await get(port, "/readyz"))[0] == 200


async def test_a_client_that_never_ends_its_request_is_cut_off(health):
    async with listening(health, request_timeout=0.01) as port:
        assert await raw(port, b"GET /readyz HTTP/1.1\r\n") == b""


async def test_connections_are_bounded(health):
    async with listening(health) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        assert await raw(port, b"GET /readyz HTTP/1.1\r\n\r\n") == b""

        for _, writer in idle:
            writer.close()
        while not await raw(port, b"GET /readyz HTTP/1.1\r\n\r\n"):
            pass  # until the server has seen that they are closed


async def test_the_server_ends_with_its_block_however_many_wait(health):
    async with listening(health) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await get(port, "/readyz")

    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    ("text", "shown", "is_loopback"),
    [
        ("127.0.0.1:8080", "127.0.0.1:8080", True),
        ("127.9.9.9:0", "127.9.9.9:0", True),
        ("localhost:1", "127.0.0.1:1", True),
        ("[::1]:65535", "[::1]:65535", True),
        ("0.0.0.0:80", "0.0.0.0:80", False),
        ("[::]:80", "[::]:80", False),
        ("10.0.0.1:80", "10.0.0.1:80", False),
    ],
)
def test_an_address_is_a_numeric_host_and_a_port(text, shown, is_loopback):
    address = parse_address(text)

    assert (str(address), address.is_loopback) == (shown, is_loopback)


@pytest.mark.parametrize(
    "text", ["", ":", "8080", ":8080", "127.0.0.1", "127.0.0.1:", "::1:80", "127.0.0.1:65536",
             "127.0.0.1:-1", "127.0.0.1:٣", "host.example:80", "1.1:80", "[127.0.0.1:80"],
)  # fmt: skip
def test_what_is_no_address_is_named(text):
    with pytest.raises(InvalidArgument, match="write a numeric host and a port"):
        parse_address(text)
