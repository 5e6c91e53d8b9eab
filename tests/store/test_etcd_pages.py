"""Answers of etcd are bounded by bytes: pages of large records hold fewer of them."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import pytest

from outlast.store.keyvalue.engine import Key, KeyRange
from outlast.store.keyvalue.engines.etcd.client import Cluster
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
from outlast.store.keyvalue.engines.etcd.page_sizes import FIRST, MOST_RECORDS, PAGE_BYTES

PART = "large#queue"


class _Server:
    """Answers range requests and transactions of them; counts the bytes of each answer."""

    def __init__(self, records: int, size: int) -> None:
        value = b64encode(json.dumps({"text": "x" * size}).encode()).decode()
        self._kvs = {self._key(n): value for n in range(records)}
        self.answers: list[int] = []
        self.records: list[int] = []

    @staticmethod
    def _key(number: int) -> bytes:
        return f"p/{PART}\0{number:06}".encode()

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        ranges = [r["request_range"] for r in body["success"]] if path == "/v3/kv/txn" else [body]
        each = [{"kvs": self._found(asked)} for asked in ranges]
        kvs = [kv for answer in each for kv in answer["kvs"]]
        self.answers.append(sum(len(kv["value"]) for kv in kvs))
        self.records.append(len(kvs))
        if path == "/v3/kv/txn":
            return {"responses": [{"response_range": answer} for answer in each]}
        return each[0]

    def _found(self, asked: Mapping[str, Any]) -> list[dict[str, str]]:
        start = b64decode(asked["key"])
        end = b64decode(asked["range_end"]) if "range_end" in asked else start + b"\0"
        keys = [key for key in self._kvs if start <= key < end]
        keys.sort(reverse=asked.get("sort_order") == "DESCEND")
        limit = int(asked.get("limit", 1))
        return [
            {"key": b64encode(k).decode(), "value": self._kvs[k], "mod_revision": "1"}
            for k in keys[:limit]
        ]


def _engine(server: _Server, monkeypatch: pytest.MonkeyPatch) -> EtcdEngine:
    engine = EtcdEngine(Cluster(hosts=("nowhere:2379",)), prefix="p")
    monkeypatch.setattr(engine, "_client", server)
    return engine


@pytest.mark.parametrize("reverse", [False, True])
async def test_pages_of_large_records_are_small_and_complete(
    monkeypatch: pytest.MonkeyPatch, *, reverse: bool
) -> None:
    server = _Server(records=150, size=200_000)
    engine = _engine(server, monkeypatch)

    found = await engine.range(KeyRange(PART), limit=1_000, reverse=reverse)

    sorts = [entry.key.sort for entry in found]
    assert sorts == sorted((f"{n:06}" for n in range(150)), reverse=reverse)
    assert server.records[0] == FIRST
    assert max(server.answers[1:]) <= PAGE_BYTES


async def test_other_reads_know_how_large_the_records_are(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _Server(records=150, size=200_000)
    engine = _engine(server, monkeypatch)
    await engine.range(KeyRange(PART), limit=5)

    [ranged] = await engine.ranges([(KeyRange(PART), 60)])
    scanned = [entry async for entry in engine.scan(PART)]
    got = await engine.get([Key(PART, f"{n:06}") for n in range(60)])

    assert (len(ranged), len(scanned), len([each for each in got if each])) == (60, 150, 60)
    assert max(server.answers) <= PAGE_BYTES


async def test_pages_of_small_records_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _Server(records=2_500, size=20)
    engine = _engine(server, monkeypatch)

    found = await engine.range(KeyRange(PART), limit=10_000)

    assert len(found) == 2_500
    assert server.records == [FIRST, MOST_RECORDS, MOST_RECORDS, 400]
