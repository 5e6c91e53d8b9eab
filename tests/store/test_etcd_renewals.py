"""How often an etcd client authenticates: once for all requests that an expired token concerns."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from outlast.errors import StoreReadOnly, StoreUnavailable
from outlast.store.keyvalue.engines.etcd.client import MAX_RENEWALS, Cluster, EtcdClient

REQUESTS = 20


class _Member:
    """A member whose tokens are numbers; only the last is valid."""

    def __init__(self) -> None:
        self.authenticated = 0
        self.refused: Counter[str] = Counter()
        self.is_valid = True
        self.knows_user = True
        self.late = asyncio.Event()
        self.held = asyncio.Event()

    async def authenticate(self, _: web.Request) -> web.Response:
        self.authenticated += 1
        if not self.knows_user:
            return web.json_response({"message": "authentication failed"}, status=400)
        await asyncio.sleep(0)
        return web.json_response({"token": str(self.authenticated)})

    async def answer(self, request: web.Request) -> web.Response:
        token, name = request.headers["Authorization"], (await request.json())["key"]
        if token == str(self.authenticated) and self.is_valid:
            return web.json_response({"count": "1"})
        self.refused[token] += 1
        if name == "late":
            self.held.set()
            await self.late.wait()
        about = {"message": "etcdserver: invalid auth token", "code": 16}
        return web.json_response(about, status=401)

    def expire(self) -> None:
        """Make the current token invalid."""
        self.authenticated += 1


@pytest.fixture
def member() -> _Member:
    return _Member()


@pytest.fixture
async def client(member: _Member) -> AsyncIterator[EtcdClient]:
    app = web.Application()
    app.router.add_post("/v3/kv/range", member.answer)
    app.router.add_post("/v3/auth/authenticate", member.authenticate)
    server = TestServer(app)
    await server.start_server()
    cluster = Cluster(hosts=(f"{server.host}:{server.port}",), user="jobs", password="s")  # noqa: S106 - a test's
    opened = EtcdClient(cluster, timeout=0.0)
    yield opened
    await opened.close()
    await server.close()


async def _ask(client: EtcdClient, name: str = "prompt") -> object:
    return await client.ask_once("/v3/kv/range", {"key": name})


async def test_requests_at_the_same_time_renew_an_expired_token_once(
    client: EtcdClient, member: _Member
) -> None:
    await _ask(client)
    member.expire()
    before = member.authenticated

    answers = await asyncio.gather(*(_ask(client) for _ in range(REQUESTS)))

    assert answers == [{"count": "1"}] * REQUESTS
    assert member.authenticated == before + 1


async def test_late_refusal_of_an_old_token_keeps_the_new_one(
    client: EtcdClient, member: _Member
) -> None:
    await _ask(client)
    member.expire()
    late = asyncio.create_task(_ask(client, "late"))
    await member.held.wait()
    await _ask(client)
    before = member.authenticated

    member.late.set()

    assert await late == {"count": "1"}
    assert member.authenticated == before


async def test_tokens_refused_again_and_again_are_not_renewed_without_end(
    client: EtcdClient, member: _Member
) -> None:
    member.is_valid = False

    with pytest.raises(StoreUnavailable, match="invalid auth token"):
        await client.ask("/v3/kv/range", {"key": "prompt"})

    assert member.authenticated % MAX_RENEWALS == 0


async def test_wrong_password_refuses_every_waiting_request(
    client: EtcdClient, member: _Member
) -> None:
    member.knows_user = False

    answers = await asyncio.gather(*(_ask(client) for _ in range(3)), return_exceptions=True)

    assert [type(each) for each in answers] == [StoreReadOnly] * 3
