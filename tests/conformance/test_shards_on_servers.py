"""Jobs spread over shards keep the contract on real servers too: what merges, counts and races."""

import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

import pytest

from outlast.core.ids import Ids
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.open import open_store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes
from outlast.testing.conformance.concurrency_documents import (  # noqa: F401 - a part of the suite
    test_who_pages_through_the_stream_while_others_write_misses_nothing,
)
from outlast.testing.conformance.event_stream import (  # noqa: F401 - same
    test_pages_of_any_size_tell_the_same,
)
from outlast.testing.conformance.ordering import (  # noqa: F401 - same
    test_claims_of_a_few_take_what_one_claim_would,
    test_position_queue_places_each_job_after_the_last,
)
from outlast.testing.conformance.retention import (  # noqa: F401 - same
    test_job_that_ended_well_goes_with_all_its_records,
)
from outlast.testing.conformance.transfer_rows import (  # noqa: F401 - same
    test_it_takes_all_of_another_store_exactly_so,
)
from outlast.testing.servers.dynamodb import url as dynamodb_url

if sizes.SIZES.every_case_on_servers:
    from outlast.testing.conformance.concurrency import *  # noqa: F403 - capability SHARED

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SHARDS = 3


@pytest.fixture(params=["dynamodb", "etcd"])
def url(request: pytest.FixtureRequest) -> str:
    name = f"shards-{secrets.token_hex(6)}"
    if request.param == "dynamodb":
        where = dynamodb_url(request.getfixturevalue("dynamodb"), name)
    else:
        where = f"{cast('EtcdCluster', request.getfixturevalue('etcd')).url(name)}?"
    return f"{where}&shards={SHARDS}&max_skew=0&beat=1"


@pytest.fixture
async def store(url: str, clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = open_store(url, clock=clock, ids=ids)
    assert isinstance(keyvalue, KeyValueStore)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()
