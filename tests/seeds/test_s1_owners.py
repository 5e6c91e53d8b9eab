"""S1: each write has one owner, and what is cached can be rebuilt. Both are read from the code."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from holdfast.core import order
from holdfast.store.sqlite import migrate, statements
from holdfast.store.sqlite.statements import statements as all_statements
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.conformance.make import SUCCEEDED, ended, put, started

from .kit import Sql
from .sources import SOURCE, VERBS, WRITES, run_by_verb, shipped_modules, texts, written_by

OWNERS: Mapping[str, set[str]] = {
    # Creation and order: the queue manager of S1.
    "add.jobs": {"add"},
    "add.waiting": {"add"},
    "add.place": {"add", "apply"},  # a successor is created by the write that ends the job before
    "apply.successors": {"apply"},
    "apply.queue_successors": {"apply"},
    "prune.delete": {"prune"},
    # Status transitions: its dispatcher.
    "claim.promote": {"claim", "promote"},
    "claim.leave": {"claim"},
    "apply.put_back": {"apply"},
    "apply.move": {"apply"},
    "apply.drop_waiting": {"apply"},
    "apply.end": {"apply"},
    "apply.bury": {"apply"},
}
RUN_OWNERS: Mapping[str, set[str]] = {
    "claim.open": {"claim"},
    "apply.close": {"apply"},
    "apply.drop_open": {"apply"},
    "apply.mark_cancel": {"apply"},
    "lease.renew": {"renew"},
    "lease.attach_open": {"attach"},
    "lease.attach_closed": {"attach"},
}
RESTART = "schema.lapse_all"
"""After the machine restarted every lease is over; opening the file says so, and no more."""


def owners_of(tables: set[str]) -> dict[str, set[str]]:
    """Which verbs run each statement that writes one of the tables."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, written in written_by().items():
        if written & tables and name != RESTART:
            found[name] = {verb for verb, names in run_by_verb().items() if name in names}
    return found


def modules_that_write(tables: set[str]) -> set[str]:
    """The modules that name such a statement, or hold SQL of their own that writes one."""
    names = {name for name, written in written_by().items() if written & tables}
    return {
        module
        for module, tree in shipped_modules()
        for text in texts(tree)
        if (text in names and text != RESTART) or tables & set(WRITES.findall(text))
    }


@pytest.mark.req("S1-2.1.o")
def test_only_the_verbs_create_order_and_move_jobs() -> None:
    tables = {"holdfast_jobs", "holdfast_waiting", "holdfast_ends"}

    assert modules_that_write(tables) == {VERBS.relative_to(SOURCE).as_posix()}
    assert owners_of(tables) == OWNERS


@pytest.mark.req("S1-2.1.o")
def test_only_decide_chooses_where_a_job_goes() -> None:
    makers = defaultdict(set)
    for module, tree in shipped_modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                makers[node.func.id].add(module)

    assert makers["Move"] == {"core/decide.py"}
    assert makers["Change"] == {"core/decide.py"}


@pytest.mark.req("S1-2.2.l")
def test_one_module_writes_runs() -> None:
    tables = {"holdfast_open_runs", "holdfast_runs"}

    assert modules_that_write(tables) == {VERBS.relative_to(SOURCE).as_posix()}
    assert owners_of(tables) == RUN_OWNERS


@pytest.mark.req("S1-1.4.a")
async def test_each_cached_value_equals_what_the_file_rebuilds(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    cached = {name for _, tree in shipped_modules() for name in snapshots(tree)}
    for _ in range(3):
        await ended(store, SUCCEEDED)
        await started(store)
        await put(store, queue="lane")

        for name in cached:
            for _ in range(2):  # made, then remembered
                remembered = await store._reader.snapshot(name)
                rebuilt = await store._reader.rows(name)
                assert sorted(remembered) == sorted(rebuilt) == sorted(sql.rows(all_statements()[name]))

    assert cached == {"read.counts"}, "a new cached value: this test rebuilds it, but is it allowed?"
    assert store._reader._cache.keys() == cached


@pytest.mark.req("S1-1.4.a")
def test_nothing_else_is_cached_but_what_the_package_itself_says() -> None:
    decorated = {
        f"{module}:{node.name}"
        for module, tree in shipped_modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if any("cache" in ast.unparse(decorator) for decorator in node.decorator_list)
    }

    assert decorated == {
        "clock.py:_boot_id",
        "store/sqlite/migrate.py:migrations",
        "store/sqlite/statements.py:statements",
    }
    for function in (statements.statements, migrate.migrations):
        assert function() == function.__wrapped__()


def snapshots(tree: ast.Module) -> set[str]:
    """The names given to `snapshot(…)` in that code."""
    return {
        ast.literal_eval(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "snapshot"
    }


@pytest.mark.req("S1-1.4.c")
@pytest.mark.parametrize("name", ["claim.pick", "read.peek"])
def test_the_order_query_uses_stored_columns_only(name: str, sql: Sql, store: SqliteStore) -> None:
    columns = {row[1] for row in sql.rows("PRAGMA table_info(holdfast_waiting)")}
    wanted = ["priority DESC", "position", "available_at", "created_at", "job"]

    # Inside its brackets too, for that is where the window function orders.
    clauses = re.findall(r"ORDER BY\s+([^();]*?)(?:\s+LIMIT|\s*[;)])", all_statements()[name])
    orders = [[re.sub(r"^\w+\.", "", term.strip()) for term in c.split(",")] for c in clauses]

    places = [order for order in orders if order != ["place"]]  # the number of that very order
    assert places
    assert all(order == wanted for order in places)
    assert {term.split()[0] for term in wanted} <= columns
    assert "random" not in all_statements()[name].lower()


@pytest.mark.req("S1-1.4.c")
def test_the_order_in_code_uses_stored_fields_only() -> None:
    now = FakeClock().now()
    stored = SimpleNamespace(priority=3, position=100, available_at=now, created_at=now, seq=7)

    assert order.sort_key(stored) == (-3, 100, now, now, 7)  # and it has no other field to ask
