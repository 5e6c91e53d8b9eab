"""S1: each write has one owner, and what is cached can be rebuilt. Both are read from the code."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import SimpleNamespace

import pytest

from outlast.core import ordering
from outlast.store.postgres import migrate as postgres_migrate
from outlast.store.postgres import placeholders as postgres_statements
from outlast.store.sqlite import migrate, statements
from outlast.store.sqlite.statements import statements as all_statements
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import SUCCEEDED, ended, put, started

from .database_file import Sql
from .sources import OPERATIONS, SOURCE, WRITES, run_by_verb, shipped_modules, texts, written_by

FIRING = {"fire", "fire_batch", "insert_keyed"}
"""S1's schedule trigger; the latter two are parts of `fire`, the last of `add` too."""
COPYING = {"load"}
"""Not S1's: a store that is filled takes the rows of another one, and no work."""
APPLYING = {"apply", "answer"}
"""The second applies the edit of an enqueue that replaces the request of a waiting job."""
PRUNING = {"prune", "prune_among"}
OWNERS: Mapping[str, set[str]] = {
    # Creation and order: S1's queue manager. A successor comes with the end of the job before it.
    "outlast_jobs": {"add", *APPLYING, "rearrange", "reserve", *PRUNING, *FIRING, *COPYING},
    # Status transitions too: its dispatcher. `rearrange` and `advance_groups` are parts of `apply`.
    "outlast_waiting": {
        "add",
        "claim",
        "promote_due",
        *APPLYING,
        "rearrange",
        "advance_groups",
        "renumber",
        "seal_group",
        "reserve",
        *FIRING,
        *COPYING,
    },
    "outlast_groups": {
        "add_group",
        "seal_group",
        "stop_group",
        "expire_groups",
        "mark_groups_closed",
        *APPLYING,
        "advance_groups",
        *PRUNING,
        *COPYING,
    },
    "outlast_ends": {*APPLYING, *COPYING},
}
RUN_OWNERS: Mapping[str, set[str]] = {
    "outlast_open_runs": {"claim", *APPLYING, "renew", "record_progress", "attach"},
    "outlast_runs": {*APPLYING, "attach", "remove_orphans", *COPYING},
}
HOLD_OWNERS: Mapping[str, set[str]] = {
    "outlast_queues": {"set_queue", "pause", "resume", *COPYING},
    # The end of a direct job ends its reservation, wherever that is written.
    "outlast_reservations": {
        "reserve", "extend_reservation", "claim", *APPLYING, "renew", *PRUNING,
        "release_stale_reservations",
        *COPYING,
    },
}  # fmt: skip
SCHEDULE_OWNERS: Mapping[str, set[str]] = {
    # A person's edits are one verb, what a trigger moves on the other.
    "outlast_schedules": {"set_schedule", "fire", "fire_batch", *COPYING},
    # A slot is claimed for a schedule or by hand; a job that starts too late makes it skipped.
    "outlast_slots": {"fire", "fire_batch", "add", "reserve", *APPLYING, *COPYING},
}
MODULES = {
    "add": "QueueManager",
    "claim": "Dispatcher",
    "apply": "Executor and RetryController",
    "fire": "ScheduleTrigger",
    "set_schedule": "API",
}
"""Whose duty each verb is in S1's words; `decide` is what Executor and RetryController share."""
RESTART = "schema.expire_leases"
"""After the machine restarted every lease is over; opening the file says so, and no more."""


def owners_of(table: str) -> set[str]:
    """The verbs that write it."""
    names = {name for name, written in written_by().items() if table in written}
    return {verb for verb, run in run_by_verb().items() if run & names}


def orphans_of(table: str) -> set[str]:
    """Statements that write it and that no verb runs."""
    owned = set[str]().union(*run_by_verb().values(), {RESTART})
    return {name for name, written in written_by().items() if table in written} - owned


def packages_that_write(tables: Iterable[str]) -> set[str]:
    """The folders whose modules name such a statement, or hold SQL of their own that writes one.

    S1's store is the file. PostgreSQL's statements go by the same names, and are run there alone.
    """
    wanted = set(tables)
    names = {name for name, written in written_by().items() if written & wanted} - {RESTART}
    return {
        module.rpartition("/")[0]
        for module, tree in shipped_modules()
        if not module.startswith("store/postgres/")
        for text in texts(tree)
        if text in names or wanted & set(WRITES.findall(text))
    }


@pytest.mark.req("S1-2.1.o")
def test_only_the_verbs_create_order_and_move_jobs() -> None:
    assert packages_that_write(OWNERS) == {OPERATIONS.relative_to(SOURCE).as_posix()}
    for table, owners in OWNERS.items():
        assert owners_of(table) == owners, table
        assert orphans_of(table) == set(), table


@pytest.mark.req("S1-2.1.o")
def test_only_decide_chooses_where_a_job_goes() -> None:
    makers = defaultdict(set)
    for module, tree in shipped_modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                makers[node.func.id].add(module)

    assert makers["Transition"] == {"core/change.py", "core/decide.py"}  # the first: SUCCESS alone
    # Here the first only adds the last lines of a log to a change that was decided.
    assert makers["Change"] == {"core/change.py", "core/decide.py"}


@pytest.mark.req("S1-2.2.l")
def test_one_package_writes_runs() -> None:
    assert packages_that_write(RUN_OWNERS) == {OPERATIONS.relative_to(SOURCE).as_posix()}
    for table, owners in RUN_OWNERS.items():
        assert owners_of(table) == owners, table
        assert orphans_of(table) == set(), table


def test_one_package_writes_queues_and_reservations() -> None:
    assert packages_that_write({"outlast_queues"}) == {OPERATIONS.relative_to(SOURCE).as_posix()}
    for table, owners in HOLD_OWNERS.items():
        assert owners_of(table) == owners, table
    assert orphans_of("outlast_reservations") == {"schema.expire_reservations"}
    assert orphans_of("outlast_queues") == set()


@pytest.mark.req("S1-R.e")
def test_schedules_are_written_by_a_person_or_by_the_trigger_and_only_it_fires() -> None:
    assert packages_that_write(SCHEDULE_OWNERS) == {OPERATIONS.relative_to(SOURCE).as_posix()}
    for table, owners in SCHEDULE_OWNERS.items():
        assert owners_of(table) == owners, table
        assert orphans_of(table) == set(), table
    for verb in MODULES:
        assert verb in run_by_verb()
    firing = {
        module
        for module, tree in shipped_modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "fire"
    }
    assert firing == {"scheduler/trigger.py"}


@pytest.mark.req("S1-1.4.a")
async def test_each_cached_value_equals_what_the_file_rebuilds(
    store: SqliteStore, sql: Sql
) -> None:
    cached = {name for _, tree in shipped_modules() for name in snapshots(tree)}
    for _ in range(3):
        await ended(store, SUCCEEDED)
        await started(store)
        await put(store, queue="lane")

        for name in cached:
            rebuilt = sorted(sql.rows(all_statements()[name]))
            for _ in range(5):  # made, then remembered, by each thread that reads
                assert sorted(await store._reader.cached_rows(name)) == rebuilt

    assert cached == {"jobs.counts"}, "a new one: this test rebuilds it, but may it be cached?"


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
        "store/postgres/migrate.py:migrations",
        "store/postgres/placeholders.py:statements",
        "store/sqlite/migrate.py:migrations",
        "store/sqlite/statements.py:statements",
    }
    for function in (
        statements.statements,
        migrate.migrations,
        postgres_statements.statements,
        postgres_migrate.migrations,
    ):
        assert function() == function.__wrapped__()


def snapshots(tree: ast.Module) -> set[str]:
    """The names given to `cached_rows(…)` in that code."""
    return {
        ast.literal_eval(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "cached_rows"
    }


@pytest.mark.req("S1-1.4.c")
@pytest.mark.parametrize("name", ["claim.select", "jobs.peek"])
def test_the_order_query_uses_stored_columns_only(name: str, sql: Sql, store: SqliteStore) -> None:
    columns = {row[1] for row in sql.rows("PRAGMA table_info(outlast_waiting)")}
    wanted = ["priority DESC", "position", "available_at", "created_at", "job"]

    # Inside its brackets too, for that is where the window function orders.
    clauses = re.findall(r"ORDER BY\s+([^();]*?)(?:\s+LIMIT|\s*[;)]|\s*$)", all_statements()[name])
    orders = [[re.sub(r"^\w+\.", "", term.strip()) for term in c.split(",")] for c in clauses]

    # `claim_order` is the number of that very order; the other is that in which the claim promotes.
    others = (["claim_order"], ["available_at", "job"])
    places = [order for order in orders if order not in others]
    assert places
    assert all(order == wanted for order in places)
    assert {term.split()[0] for term in wanted} <= columns
    assert "random" not in all_statements()[name].lower()


@pytest.mark.req("S1-1.4.c")
def test_the_order_in_code_uses_stored_fields_only() -> None:
    now = FakeClock().now()
    stored = SimpleNamespace(priority=3, position=100, available_at=now, created_at=now, seq=7)

    assert ordering.sort_key(stored) == (-3, 100, now, now, 7)  # and it has no other field to ask
