"""The rights that the page on DynamoDB lists are those a worker needs: no fewer and no more."""

import json
import re
import secrets
from pathlib import Path

import pytest

from outlast import Outlast, Run
from outlast.core.job import DedupeKey
from outlast.store.open import open_store
from outlast.testing.conformance.factories import (
    SUCCEEDED,
    make_job,
    put_group,
    settle,
    started,
    sweep,
)
from outlast.testing.servers import dynamodb as local
from outlast.verify import verify
from support.servers.dynamodb_proxy import Gate, dynamodb_gate

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "dynamodb.md"
INSIDE = {"PutItem", "DeleteItem", "ConditionCheckItem"}
"""What a transaction is made of is what needs a right, and not TransactWriteItems."""


def _listed() -> list[set[str]]:
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    statements = [json.loads(block)["Statement"] for block in blocks]
    return [
        {action.removeprefix("dynamodb:") for each in statement for action in each["Action"]}
        for statement in statements
    ]


@pytest.fixture
def table(dynamodb: str) -> str:
    return f"rights-{secrets.token_hex(6)}"


async def _made(gate: Gate, table: str) -> None:
    store = open_store(local.url(gate.endpoint, table))
    await store.open()
    await store.close()


async def _work(gate: Gate, table: str) -> None:
    app = Outlast(local.url(gate.endpoint, table), poll="50ms", tick="50ms")

    @app.job
    async def work(run: Run, n: int) -> int:
        run.progress(n, 2)
        return n

    async with app, app.worker():
        handles = await app.enqueue_many([work.bind(n) for n in range(3)])
        await (await work.options(key="k", bucket="b").enqueue(4)).wait("2m")
        for handle in handles:
            await handle.wait("2m")


async def _more(gate: Gate, table: str) -> None:
    store = open_store(local.url(gate.endpoint, table))
    await store.open()
    claim = await started(store, key=DedupeKey(key="other", bucket=""))
    await settle(store, claim, SUCCEEDED)
    await store.add([make_job(key=DedupeKey(key="other", bucket=""))])
    await put_group(store)
    await sweep(store)
    await verify(store)
    await store.health_warnings()
    await store.close()


async def test_worker_needs_what_the_page_lists_and_whoever_makes_the_table_more(
    dynamodb: str, table: str
) -> None:
    worker, maker = _listed()
    with dynamodb_gate(dynamodb) as gate:
        await _made(gate, table)
        made = set(gate.asked)
        gate.asked.clear()
        await _work(gate, table)
        await _more(gate, table)
        asked = set(gate.asked)

    assert made - worker == {"CreateTable", "DescribeTimeToLive", "UpdateTimeToLive"}
    assert asked - {"TransactWriteItems"} <= worker
    assert worker - asked <= INSIDE, "what nobody asks for needs no right"
    assert maker == {"CreateTable", "DescribeTable", "DescribeTimeToLive", "UpdateTimeToLive"}
