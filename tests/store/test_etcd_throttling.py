"""An etcd cluster that throttles is busy after few tries; one that fails is waited for."""

from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from outlast.errors import StoreBusy, StoreUnavailable
from outlast.store.keyvalue.engine import Key, KeyRange, Write
from outlast.store.keyvalue.engines.etcd.client import Cluster
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
from outlast.store.keyvalue.pacing import RequestPace

TOO_MANY = {"code": 8, "message": "etcdserver: too many requests"}
WRITES = [Write(Key("a", "x"), {"n": 1})]
DONE = {"succeeded": True}


class Member:
    """Answers in turn what it is given; the last answer stays."""

    def __init__(self) -> None:
        self.answers: list[tuple[object, int]] = [(DONE, 200)]
        self.asked = 0

    def will(self, *answers: tuple[object, int]) -> None:
        self.answers = list(answers)

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        body, status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(body, str):
            return web.Response(text=body, status=status)
        return web.json_response(body, status=status)


@pytest.fixture
async def member() -> Member:
    return Member()


async def _no_pause(_: float) -> None:
    """The tries come one after the other."""


@pytest.fixture
async def engine(member: Member) -> AsyncIterator[EtcdEngine]:
    app = web.Application()
    app.router.add_post("/{path:.*}", member.answer)
    server = TestServer(app)
    await server.start_server()
    cluster = Cluster(hosts=(f"{server.host}:{server.port}",))
    own = EtcdEngine(cluster, prefix="p", timeout=0.0, pace=RequestPace(sleep=_no_pause))
    yield own
    await own.close()
    await server.close()


@pytest.mark.parametrize("status", [429, 503])
async def test_too_many_requests_is_busy_after_six_tries(
    engine: EtcdEngine, member: Member, status: int
) -> None:
    member.will((TOO_MANY, status))

    with pytest.raises(StoreBusy, match=r"etcd at .* throttles: .* sent 6 times"):
        await engine.transact({}, WRITES)
    with pytest.raises(StoreBusy):
        await engine.range(KeyRange("a"), limit=1)

    assert member.asked == 12


async def test_proxy_that_throttles_in_its_own_words_is_busy(
    engine: EtcdEngine, member: Member
) -> None:
    member.will(("slow down", 429))

    with pytest.raises(StoreBusy, match="throttles: status 429"):
        await engine.transact({}, WRITES)


async def test_throttled_request_that_is_taken_at_last_is_no_error(
    engine: EtcdEngine, member: Member
) -> None:
    member.will(*[(TOO_MANY, 429)] * 5, (DONE, 200))

    assert await engine.transact({}, WRITES)


FAILING: Sequence[tuple[object, int]] = [
    ({"code": 14, "message": "etcdserver: request timed out"}, 503),
    ({"code": 14, "message": "etcdserver: leader changed"}, 503),
    ({"code": 14, "message": "etcdserver: no leader"}, 503),
    ({"code": 4, "message": "context deadline exceeded"}, 504),
    ({"code": 2, "message": "unknown"}, 500),
    ("Bad Gateway", 502),
]


@pytest.mark.parametrize("failing", FAILING)
async def test_server_error_of_any_form_is_unavailable_when_the_time_is_over(
    engine: EtcdEngine, member: Member, failing: tuple[object, int]
) -> None:
    member.will(failing)

    with pytest.raises(StoreUnavailable, match="The last write may have happened"):
        await engine.transact({}, WRITES)
    with pytest.raises(StoreUnavailable):
        await engine.range(KeyRange("a"), limit=1)
