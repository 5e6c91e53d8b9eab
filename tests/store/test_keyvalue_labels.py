"""Metadata on key-value stores: an attribute of the job, and a search that is bounded."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from outlast.core.audit.violation import ViolationCode
from outlast.core.ids import Ids
from outlast.core.metadata import labels_to_match
from outlast.errors import InvalidArgument
from outlast.store.contract.jobs import Filter
from outlast.store.keyvalue.operations import jobs as operations
from outlast.store.keyvalue.repositories.job_codec import JobRecord, to_value
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import job_of, make_job, put
from outlast.verify import verify
from support.engines.hands import MemoryHand
from support.engines.memory import MemoryEngine

URGENT = Filter(labels=labels_to_match(tags=["urgent"], meta=None))
TAGGED = '{"tags":["urgent"]}'
MOST = 40


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
async def store(engine: MemoryEngine, clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    store = KeyValueStore(engine, clock=clock, ids=ids)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_LABEL_SCAN", MOST)


async def test_a_job_without_metadata_has_no_such_attribute(store: KeyValueStore) -> None:
    plain, tagged = [await job_of(store, await put(store, metadata=m)) for m in (None, TAGGED)]

    without, with_ = (to_value(JobRecord(job=job, root_seq=job.seq)) for job in (plain, tagged))

    assert with_.keys() - without.keys() == {"metadata"}


async def test_a_search_that_reads_too_many_jobs_says_how_to_narrow_it(
    store: KeyValueStore, clock: FakeClock
) -> None:
    oldest = await put(store, metadata=TAGGED)
    await store.add([make_job() for _ in range(10 * MOST)])
    clock.advance(timedelta(hours=2))
    await store.add([make_job() for _ in range(MOST // 10)])

    with pytest.raises(InvalidArgument, match=r"none of \d+ jobs has tag:urgent; .* since:2h"):
        await store.find(URGENT, limit=10)

    since = Filter(labels=URGENT.labels, since=clock.now())
    assert await store.find(since, limit=10) == [], "it has read down to that time"
    assert [job.id for job in await store.find(Filter(), limit=1000)][-1] == oldest


async def test_a_search_goes_on_where_its_last_page_ended(store: KeyValueStore) -> None:
    tagged = []
    for _ in range(4):
        tagged.append(await put(store, metadata=TAGGED))
        await store.add([make_job() for _ in range(MOST // 2)])

    pages, before = [], None
    while page := await store.find(URGENT, limit=10, before=before):
        pages.append([job.id for job in page])
        before = page[-1].seq

    assert [job_id for page in pages for job_id in page] == tagged[::-1]
    assert len(pages) > 1, "one page would have read too many jobs"


async def test_metadata_edited_by_hand_sets_its_job_aside(
    store: KeyValueStore, engine: MemoryEngine
) -> None:
    job_id = await put(store, metadata=TAGGED)

    await MemoryHand(engine).edit_job(job_id, metadata='{"tags":"urgent"}')

    [found] = (await verify(store)).violations
    assert found.code is ViolationCode.QUARANTINED
