"""S1: the guarantees page names what is there, and the command line shows what the file holds."""

import re
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from outlast.cli.main import main
from outlast.core.delivery import Delivery
from outlast.core.state import State
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.migrate import migrations
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import FAILED, next_ids, put, settle, take

from .database_file import Sql

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
TESTS = "\n".join(
    file.read_text(encoding="utf-8")
    for file in [
        *(ROOT / "tests").rglob("test_*.py"),
        *(ROOT / "src/outlast/testing/conformance").rglob("*.py"),
    ]
)
SCHEMA = "\n".join(migrations().values())


def table(heading: str) -> list[list[str]]:
    """The rows of the table below that heading."""
    section = re.split(r"^## ", PAGE.split(f"## {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def named_tests(text: str) -> list[str]:
    return re.findall(r"`(test_\w+)`", text)


@pytest.mark.req("S1-7.g")
def test_each_invariant_names_a_mechanism_of_the_schema_and_a_test_that_exists() -> None:
    rows = table("Invariant, mechanism, test")

    assert len(rows) >= 10
    for invariant, mechanism, test in rows:
        assert mechanism.startswith(("constraint", "trigger", "transaction")), invariant
        for name in re.findall(r"`(\w+)`", mechanism):
            assert re.search(rf"\b{name}\b", SCHEMA), f"{invariant}: there is no {name}"
        assert named_tests(test), invariant


@pytest.mark.req("S1-7.h")
def test_each_recovery_scenario_has_its_section_and_its_test() -> None:
    rows = table("When something dies")

    assert len(rows) == 4  # as S1-4.1 to S1-4.4
    for scenario, documented, test in rows:
        links = re.findall(r"\]\((operate/\w+\.md)(?:#([\w-]+))?\)", documented)
        assert links, scenario
        for file, anchor in links:
            assert not anchor or anchor in anchors(ROOT / "docs" / file), f"{scenario}: {anchor}"
        assert named_tests(test), scenario


@pytest.mark.req("S1-7.g", "S1-7.h")
def test_every_test_the_page_names_exists() -> None:
    names = named_tests(PAGE)

    assert names
    assert [name for name in names if f"def {name}(" not in TESTS] == []


def anchors(file: Path) -> set[str]:
    """What a link can point at in that page."""
    heads = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w-]", "", head.lower().replace(" ", "-")) for head in heads}


@pytest.mark.req("S1-5.4.e")
async def test_queue_order_prints_what_the_query_returns(store: SqliteStore, sql: Sql) -> None:
    await store.set_queue(Queue(name="default", concurrency=1))
    ids = [await put(store, priority=priority) for priority in (0, 5, 0, -1, 5)]
    query = (
        "SELECT j.id FROM outlast_waiting AS w JOIN outlast_jobs AS j ON j.seq = w.job "
        "WHERE w.state = 'queued' ORDER BY w.priority DESC, w.position, w.created_at, w.job"
    )
    await store.close()

    shown = printed("queue", "order", "default", "--url", f"sqlite:///{store.path}")

    assert re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", shown) == [row[0] for row in sql.rows(query)]
    assert shown.index(ids[1]) < shown.index(ids[4]) < shown.index(ids[0])


@pytest.mark.req("S1-7.f")
async def test_show_prints_a_chain_from_root_to_tip(store: SqliteStore) -> None:
    root = await put(store, delivery=Delivery.LINKED)
    for _ in range(2):
        await settle(store, await take(store), FAILED)
    chain = [job.id for job in await store.chain(root)]
    assert [job.state for job in await store.chain(root)] == [
        State.FAILED,
        State.FAILED,
        State.QUEUED,
    ]
    assert await next_ids(store) == chain[-1:]
    await store.close()

    shown = printed("show", chain[1], "--url", f"sqlite:///{store.path}").split("retry chain")[1]

    assert re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", shown)[:3] == chain


def printed(*args: str) -> str:
    """What the command prints; in another thread, since it has a loop of its own."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(CliRunner().invoke(main, args)))
    thread.start()
    thread.join()
    (result,) = results
    assert result.exit_code == 0, result.output  # type: ignore[attr-defined]
    return result.stdout  # type: ignore[attr-defined, no-any-return]
