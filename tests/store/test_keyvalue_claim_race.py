"""Fifty claimers and one job, on the real servers: each time exactly one has it."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import put, take_many
from outlast.testing.servers import dynamodb as local

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLAIMERS = 50
STORES = 5
"""Each with connections of its own; ten claimers share one."""


@pytest.fixture
async def etcd_stores(etcd: "EtcdCluster") -> AsyncIterator[list[Store]]:
    async with _opened(etcd.url(f"race-{secrets.token_hex(4)}")) as stores:
        yield stores


@pytest.fixture
async def dynamodb_stores(dynamodb: str) -> AsyncIterator[list[Store]]:
    prefix = f"&prefix=race-{secrets.token_hex(4)}:"
    async with _opened(local.url(dynamodb, "tests") + prefix) as stores:
        yield stores


class _opened:  # noqa: N801 - it reads as a function
    def __init__(self, url: str) -> None:
        self._stores = [open_store(url) for _ in range(STORES)]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> list[Store]:
        for store in self._stores:
            await store.open()
            self._stack.push_async_callback(store.close)
        return self._stores

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


async def _race(stores: list[Store]) -> list[int]:
    """How many had the job, round by round."""
    winners = []
    for number in range(sizes.SIZES.race_rounds):
        queue = f"round-{number}"
        await put(stores[0], queue=queue)
        claims = [
            take_many(stores[n % STORES], holder=f"worker-{n}", queue=queue)
            for n in range(CLAIMERS)
        ]
        winners.append(sum(map(len, await asyncio.gather(*claims))))
    return winners


async def test_of_fifty_that_claim_one_job_on_etcd_one_gets_it(etcd_stores: list[Store]) -> None:
    assert await _race(etcd_stores) == [1] * sizes.SIZES.race_rounds


async def test_of_fifty_that_claim_one_job_on_dynamodb_one_gets_it(
    dynamodb_stores: list[Store],
) -> None:
    assert await _race(dynamodb_stores) == [1] * sizes.SIZES.race_rounds
