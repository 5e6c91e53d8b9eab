"""Opening and closing a store."""

import pytest

from outlast.errors import StoreClosed
from outlast.store.contract import Capability, Store
from outlast.store.contract.jobs import Filter
from outlast.testing.conformance.factories import LEASE, make_job, new_id, take_many


async def test_capabilities_are_known_by_name(store: Store) -> None:
    assert store.capabilities <= frozenset(Capability)


async def test_closing_twice_is_fine(store: Store) -> None:
    await store.close()
    await store.close()


async def test_closed_store_says_so(store: Store) -> None:
    await store.close()

    with pytest.raises(StoreClosed):
        await store.add([make_job()])
    with pytest.raises(StoreClosed):
        await take_many(store)
    with pytest.raises(StoreClosed):
        await store.get([new_id()])
    with pytest.raises(StoreClosed):
        await store.find(Filter(), limit=1)
    with pytest.raises(StoreClosed):
        await store.prune(older_than=LEASE, limit=1)
