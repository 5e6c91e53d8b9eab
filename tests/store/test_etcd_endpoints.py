"""Which endpoint of an etcd cluster is asked, when one of them is down."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from outlast.store.keyvalue.engines.etcd.client import Cluster, EtcdClient

ASKERS = 3
"""As many as there are endpoints: a step by each of them, and all were where they had been."""

SOON = 120.0

Answer = Callable[[web.Request], Awaitable[web.Response]]


class _Down:
    """A member without a leader; it answers when all who ask are waiting, as a kill would."""

    def __init__(self) -> None:
        self.asked = 0
        self._all = asyncio.Barrier(ASKERS)

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        await self._all.wait()
        return web.json_response({"message": "etcdserver: no leader"}, status=503)


async def _up(_: web.Request) -> web.Response:
    return web.json_response({"count": "1"})


async def _serve(answer: Answer) -> TestServer:
    app = web.Application()
    app.router.add_post("/v3/kv/range", answer)
    server = TestServer(app)
    await server.start_server()
    return server


@pytest.fixture
def down() -> _Down:
    return _Down()


@pytest.fixture
async def wire(down: _Down) -> AsyncIterator[EtcdClient]:
    servers = [await _serve(answer) for answer in (down.answer, _up, _up)]
    opened = EtcdClient(Cluster(hosts=tuple(f"{server.host}:{server.port}" for server in servers)))
    yield opened
    await opened.close()
    for server in servers:
        await server.close()


async def test_all_who_asked_a_member_that_is_down_go_on_to_the_next(
    wire: EtcdClient, down: _Down
) -> None:
    async with asyncio.timeout(SOON):
        answers = await asyncio.gather(*(wire.ask("/v3/kv/range", {}) for _ in range(ASKERS)))

    assert answers == [{"count": "1"}] * ASKERS
    assert down.asked == ASKERS
