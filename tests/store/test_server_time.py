"""The answers of real servers carry the time that corrects lease clocks."""

import secrets
from datetime import timedelta

import pytest

from outlast.store.keyvalue.clocks import FleetClock
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.open import open_store
from outlast.testing.conformance.factories import put
from outlast.testing.servers import dynamodb as local

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["etcd", "dynamodb"])
async def test_answers_to_ordinary_requests_tell_the_servers_time(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server, name = request.getfixturevalue(kind), f"time-{secrets.token_hex(4)}"
    store = open_store(server.url(name) if kind == "etcd" else local.url(server, name))
    assert isinstance(store, KeyValueStore)
    await store.open()
    at_first = store.engine.latest_time

    await put(store)

    then = store.engine.latest_time
    await store.close()
    assert at_first is not None
    assert then is not None
    assert at_first.received < then.sent <= then.received
    assert FleetClock().offset(then).apart == timedelta(0)
