"""A claim stops at a number of bytes, and the next one goes on."""

from pathlib import Path

import pytest

from outlast.core.limits import MAX_PAYLOAD
from outlast.store.contract.jobs import MAX_CLAIM_BYTES
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import make_job, put, take_many

LARGE = f'"{"ä" * 40}"'


@pytest.mark.parametrize(("most", "sizes"), [(1, [1, 1, 1, 1]), (200, [3, 1]), (10_000, [4])])
async def test_a_claim_stops_at_the_job_that_reaches_the_limit(
    store: SqliteStore, most: int, sizes: list[int]
) -> None:
    ids = [await put(store, params=LARGE) for _ in range(4)]
    store.max_claim_bytes = most

    claimed = [await take_many(store, limit=2, prefetch=9) for _ in sizes]

    assert [len(claims) for claims in claimed] == sizes
    assert [claim.id for claims in claimed for claim in claims] == ids
    assert await take_many(store, limit=9) == []


async def test_large_payloads_are_claimed_to_the_last_in_bounded_replies(path: Path) -> None:
    count = 2 * MAX_CLAIM_BYTES // MAX_PAYLOAD
    params = '"' + "x" * (MAX_PAYLOAD - 2) + '"'
    store = SqliteStore(path)
    await store.open()
    await store.add([make_job(params=params) for _ in range(count)])

    sizes = []
    while claims := await take_many(store, limit=10, prefetch=count):
        sizes.append(len(claims))
    await store.close()

    assert sizes == [count // 2, count // 2]
