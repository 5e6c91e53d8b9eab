"""Numbers on a real etcd: by revision, so that producers never compete for a counter."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engines.etcd.client import EtcdClient
from outlast.store.keyvalue.engines.etcd.engine import BLOCK
from outlast.store.open import open_store
from outlast.testing.conformance.factories import job_of, put

if TYPE_CHECKING:
    from outlast.store.keyvalue.store import KeyValueStore
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def url(etcd: "EtcdCluster") -> str:
    return etcd.url(f"numbers-{secrets.token_hex(4)}")


@pytest.fixture
async def store(url: str) -> AsyncIterator["KeyValueStore"]:
    opened = open_store(url)
    await opened.open()
    yield opened
    await opened.close()


async def test_concurrent_callers_get_numbers_of_their_own_by_one_request_each(
    store: "KeyValueStore", monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = _counted(monkeypatch)
    asked = [1, 3, BLOCK] * 20

    lasts = await asyncio.gather(*(_advance(store, by) for by in asked))

    blocks = sorted((last - by, last) for last, by in zip(lasts, asked, strict=True))
    assert all(end <= start for (_, end), (start, _) in pairwise(blocks))
    assert len(requests) == len(asked)


async def test_more_numbers_than_a_block_are_in_a_row_and_followed_by_higher_ones(
    store: "KeyValueStore",
) -> None:
    asked = [1, BLOCK + 1, 1, 3 * BLOCK, BLOCK + 1, 1]

    lasts = [await _advance(store, by) for by in asked]

    firsts = [last - by + 1 for last, by in zip(lasts, asked, strict=True)]
    assert all(last < first for last, first in zip(lasts, firsts[1:], strict=False))
    assert await store.engine.last_number(key_layout.NUMBERS) >= lasts[-1]


async def test_numbers_rise_after_a_snapshot_of_a_lower_revision_was_restored(
    store: "KeyValueStore", url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [await put(store) for _ in range(3)]
    _lower_revisions(monkeypatch, by=1_000)
    reopened = open_store(url)
    await reopened.open()

    kept_open = [await put(store) for _ in range(3)]
    after = [await put(reopened) for _ in range(3)]

    numbers = [(await job_of(reopened, each)).seq for each in (*before, *kept_open, *after)]
    await reopened.close()
    assert numbers[:3] == sorted(numbers[:3])
    assert min(numbers[3:]) > numbers[2]
    assert len(set(numbers)) == len(numbers)


async def _advance(store: "KeyValueStore", by: int) -> int:
    return await store.engine.advance(key_layout.NUMBERS, by)


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked, ask = list[str](), EtcdClient.ask

    async def counted(self: EtcdClient, path: str, body: Mapping[str, Any]) -> Any:
        asked.append(path)
        return await ask(self, path, body)

    monkeypatch.setattr(EtcdClient, "ask", counted)
    return asked


def _lower_revisions(monkeypatch: pytest.MonkeyPatch, *, by: int) -> None:
    """Answer as an etcd that was restored from an older snapshot."""
    ask = EtcdClient.ask

    async def lowered(self: EtcdClient, path: str, body: Mapping[str, Any]) -> Any:
        answer = await ask(self, path, body)
        if "revision" in answer.get("header", {}):
            answer["header"]["revision"] = str(int(answer["header"]["revision"]) - by)
        return answer

    monkeypatch.setattr(EtcdClient, "ask", lowered)
