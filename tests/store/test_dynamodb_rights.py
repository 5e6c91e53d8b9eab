"""The rights that the page on DynamoDB lists are those a worker needs: no fewer and no more."""

import json
import re
import secrets
from datetime import timedelta
from pathlib import Path

import pytest

from outlast import Outlast, Run
from outlast.core.job import DedupeKey
from outlast.store.open import open_store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    SUCCEEDED,
    make_job,
    new_id,
    put_group,
    settle,
    started,
    sweep,
)
from outlast.testing.conformance.transfer_rows import furnish
from outlast.testing.servers import dynamodb as local
from outlast.transfer import StoreCopy
from outlast.verify import verify
from support.servers.dynamodb_proxy import DynamoDBProxy, dynamodb_proxy

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


async def _made(proxy: DynamoDBProxy, table: str) -> None:
    store = open_store(local.url(proxy.endpoint, table))
    await store.open()
    await store.close()


async def _work(proxy: DynamoDBProxy, table: str) -> None:
    app = Outlast(local.url(proxy.endpoint, table), poll="50ms", tick="50ms")

    @app.job
    async def work(run: Run, n: int) -> int:
        run.progress(n, 2)
        return n

    async with app, app.worker():
        handles = await app.enqueue_many([work.bind(n) for n in range(3)])
        await (await work.options(key="k", bucket="b").enqueue(4)).wait("2m")
        for handle in handles:
            await handle.wait("2m")


async def _more(proxy: DynamoDBProxy, table: str) -> None:
    store = open_store(local.url(proxy.endpoint, table))
    await store.open()
    claim = await started(store, key=DedupeKey(key="other", bucket=""))
    await settle(store, claim, SUCCEEDED)
    await store.add([make_job(key=DedupeKey(key="other", bucket=""))])
    await put_group(store)
    await sweep(store)
    await verify(store)
    await store.health_warnings()
    await store.close()


async def test_worker_needs_what_the_page_lists_and_creating_the_table_more(
    dynamodb: str, table: str
) -> None:
    worker, maker, copier = _listed()
    with dynamodb_proxy(dynamodb) as proxy:
        await _made(proxy, table)
        made = set(proxy.asked)
        proxy.asked.clear()
        await _work(proxy, table)
        await _more(proxy, table)
        asked = set(proxy.asked)

    assert made - worker == {"CreateTable", "DescribeTimeToLive", "UpdateTimeToLive"}
    assert asked - {"TransactWriteItems"} <= worker | copier, "the second for `verify`"
    assert worker - asked <= INSIDE, "an unused request needs no right"
    assert maker == {"CreateTable", "DescribeTable", "DescribeTimeToLive", "UpdateTimeToLive"}
    assert not copier & (worker | maker)


async def test_copying_from_and_to_a_table_needs_what_the_page_lists(
    dynamodb: str, table: str, tmp_path: Path
) -> None:
    worker, _, copier = _listed()
    back = f"sqlite:///{tmp_path / 'back.db'}"
    with dynamodb_proxy(dynamodb) as proxy:
        await _made(proxy, table)
        url = local.url(proxy.endpoint, table)
        proxy.asked.clear()
        await _copied(f"sqlite:///{tmp_path / 'jobs.db'}", url)
        into = set(proxy.asked)
        proxy.asked.clear()
        await _copied(url, back)
        out_of = set(proxy.asked)

    assert into - {"TransactWriteItems"} - worker == copier
    assert out_of - {"TransactWriteItems"} - worker == copier


async def _copied(from_url: str, to_url: str) -> None:
    source, target = open_store(from_url), open_store(to_url)
    await source.open()
    await target.open()
    if from_url.startswith("sqlite"):
        await furnish(source, FakeClock())
    copy = StoreCopy(
        source, target, from_url=from_url, to_url=to_url, new_id=new_id, grace=timedelta(0)
    )
    assert await copy.run() is not None
    await source.close()
    await target.close()
