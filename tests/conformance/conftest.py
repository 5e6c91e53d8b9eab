"""What every store's conformance module shares."""

from random import Random

import pytest

from outlast.core.ids import Ids
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes

SERVERS = frozenset({"test_dynamodb", "test_etcd", "test_shards_on_servers"})


@pytest.fixture(autouse=True)
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where requests take long there are fewer of them, unless all is wanted."""
    if request.path.stem in SERVERS and not sizes.SIZES.every_case_on_servers:
        monkeypatch.setenv(sizes.VARIABLE, "servers")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return Ids(clock.now, Random(1).getrandbits)
