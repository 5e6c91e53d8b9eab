"""Which way SQLite takes: by the intended index, with and without statistics, never through all."""

import asyncio
from collections.abc import Iterator

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Failed
from outlast.core.group import GroupMode
from outlast.core.ordering import Ordering
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.statements import statements
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SUCCEEDED,
    decide,
    make_job,
    new_id,
    put_group,
    settle,
    take_many,
)

from .plans import Plan, plan
from .sqlite_helpers import raw, reading, writing

pytestmark = pytest.mark.xdist_group("sqlite-plans")
"""A world for each, made once."""

GROWS = {
    "outlast_jobs",
    "outlast_waiting",
    "outlast_open_runs",
    "outlast_runs",
    "outlast_ends",
    "outlast_events",
    "outlast_keys",
    "outlast_slots",
    "outlast_groups",
    "outlast_reservations",
    "outlast_labels",
}
HELD = [
    "reservations.end",
    "reservations.finish",
    "reservations.release_stale",
    "reservations.all_active",
    "reservations.expired",
    "reservations.renew",
    "schema.expire_reservations",
]
"""Go through the queues that are held, by an index of those alone: mostly there is none."""
WALKS_ON_PURPOSE = {
    **{name: {"outlast_reservations"} for name in HELD},
    "reservations.latest": {"outlast_reservations"},  # from the newest down, until it has its page
    "jobs.counts": {"outlast_waiting", "outlast_open_runs", "outlast_ends"},  # it counts them
    "jobs.find": {"outlast_jobs"},  # from the newest down, until it has its page
    "groups.closing": {"outlast_groups"},  # those that close and were not swept, by their index
    "groups.closable": {"outlast_groups"},  # the same
    "groups.mark_closed": {"outlast_groups"},  # the same
    "maintenance.expired_leases": {"outlast_open_runs"},  # few: what runs now
    "maintenance.due": {"outlast_open_runs", "outlast_reservations", "outlast_groups"},  # the same
    "maintenance.boots_with_open_runs": {"outlast_open_runs"},  # few: what runs now
    "claim.count_open": {"outlast_open_runs"},  # the same
    "positions.renumber": {"outlast_waiting"},  # it numbers all of a queue
    "workers.delete": {"outlast_open_runs"},  # few: what runs now
    "maintenance.orphans": {"outlast_runs"},  # once at every start
    "schema.expire_leases": {"outlast_open_runs"},  # once after a restart
    # For people who ask: what is live, never what is kept.
    "jobs.find_live": {"outlast_waiting", "outlast_open_runs"},
    "insight.backlog": {"outlast_waiting"},
    "insight.running": {"outlast_open_runs"},
    "insight.open_runs": {"outlast_open_runs"},
    "insight.open_runs_by_worker": {"outlast_open_runs"},
    # `verify`, when somebody asks for it: once for all pages together.
    "audit.orphans": {
        "outlast_runs",
        "outlast_waiting",
        "outlast_open_runs",
        "outlast_ends",
        "outlast_reservations",
        "outlast_labels",
    },
    "audit.keys": {"outlast_keys", "outlast_slots"},
    "audit.slots": {"outlast_jobs"},
    "audit.doubles": {"outlast_open_runs", "outlast_reservations"},
}
PLANNED = sorted(
    name
    for name, text in statements().items()
    if text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"))
    and name != "schema.drop_statistics"  # of a table that most files do not have
)
INTENDED = {
    **{name: ["INDEX outlast_reservations_active"] for name in HELD},
    "claim.gate": [
        "PRIMARY KEY (name=?)",
        "INDEX outlast_reservations_active (queue=?)",
    ],
    "apply.check_reservation_expired": ["INDEX outlast_reservations_job (job_id=?)"],
    "reservations.active": ["INDEX outlast_reservations_active (queue=?)"],
    "reservations.set_position": ["INDEX outlast_waiting_position (queue=? AND priority=?)"],
    "reservations.prune": ["INDEX outlast_reservations_job (job_id=?)"],
    "finish.limited": ["INDEX outlast_queues_limited"],
    "apply.limited": ["INDEX outlast_queues_limited"],
    "claim.select": [
        "INDEX outlast_waiting_ready (queue=? AND type=?)",
        "INDEX outlast_open_name (name=?)",
        "INDEX outlast_waiting_once (name=? AND queue=?)",
    ],
    "claim.promote": ["INDEX outlast_waiting_due (available_at<?)"],
    "maintenance.expired_leases": ["INTEGER PRIMARY KEY (rowid=?)"],
    "maintenance.missed_start_deadline": [
        "INDEX outlast_waiting_deadline (start_deadline>? AND start_deadline<?)"
    ],
    "jobs.peek": [
        "INDEX outlast_waiting_ready (queue=? AND type>?)",
        "INDEX outlast_waiting_ready (queue=? AND type=?)",
        "INDEX outlast_waiting_due (available_at<?)",
    ],
    "positions.lowest": ["INDEX outlast_waiting_position (queue=? AND priority=?)"],
    "positions.highest": ["INDEX outlast_waiting_position (queue=? AND priority=?)"],
    "positions.before": [
        "INDEX outlast_waiting_position (queue=? AND priority=? AND position>? AND "
    ],
    "positions.after": ["INDEX outlast_waiting_position (queue=? AND priority=? AND "],
    "positions.unpositioned": [
        "waiting_ready (queue=? AND type=? AND priority=? AND position=? AND available_at<?)",
        "position=? AND available_at=? AND created_at<?)",
        "position=? AND available_at=? AND created_at=? AND job<?)",
        "INDEX outlast_waiting_due (available_at<?)",
        "INDEX outlast_waiting_blocked (queue=? AND priority=? AND (available_at,created_at)<",
    ],
    "positions.edit": ["INDEX outlast_waiting_position (queue=? AND priority=?)"],
    "positions.write": ["INTEGER PRIMARY KEY (rowid=?)"],
    "maintenance.other_boots": ["INTEGER PRIMARY KEY (rowid>?)"],
    "maintenance.detached": ["INTEGER PRIMARY KEY (rowid>?)", "INTEGER PRIMARY KEY (rowid=?)"],
    "maintenance.missing_successors": [
        "INDEX outlast_ends_state (state=?)",
        "INDEX outlast_jobs_retry_of (retry_of=?)",
    ],
    "apply.grouped": [
        "g USING INTEGER PRIMARY KEY (rowid=?)",
        "INDEX outlast_jobs_retry_of (retry_of=?)",
    ],
    "finish.grouped": ["g USING INTEGER PRIMARY KEY (rowid=?)"],
    "groups.unblock_next": ["INDEX outlast_waiting_member_of (member_of=? AND job>?)"],
    "groups.unblock": ["INDEX outlast_waiting_member_of (member_of=?)"],
    "groups.seal": ["INDEX outlast_jobs_member_of (member_of=?)"],
    "groups.close": ["INTEGER PRIMARY KEY (rowid=?)"],
    "groups.finished": [
        "INDEX outlast_waiting_member_of (member_of=?)",
        "INDEX outlast_open_member_of (member_of=?)",
    ],
    "groups.closing": ["INDEX outlast_groups_closing"],
    "groups.mark_closed": ["INDEX outlast_groups_closing"],
    "groups.expired": ["INDEX outlast_groups_unsealed (created_at<?)"],
    "groups.remaining": [
        "INDEX outlast_waiting_member_of (member_of=? AND job>?)",
        "INDEX outlast_open_member_of (member_of=? AND job>?)",
    ],
    "groups.members": ["INDEX outlast_jobs_member_of (member_of=? AND seq<?)"],
    "groups.get": ["INDEX outlast_jobs_member_of (member_of=?)"],
    "groups.find": ["INDEX outlast_jobs_member_of (member_of=?)", "INTEGER PRIMARY KEY (rowid<?)"],
    "maintenance.delete_groups": ["INDEX outlast_jobs_member_of (member_of=?)"],
    "maintenance.delete_empty_groups": ["INDEX outlast_groups_abandoned (created_at<?)"],
    "runs.all": ["PRIMARY KEY (job=?)"],
    "runs.event_stream": ["INTEGER PRIMARY KEY (rowid>?)", "INTEGER PRIMARY KEY (rowid=?)"],
    "documents.get": ["INDEX sqlite_autoindex_outlast_documents_1 (kind=? AND key=?)"],
    "documents.write": ["INDEX sqlite_autoindex_outlast_documents_1 (kind=? AND key=?)"],
    "runs.events": ["INDEX outlast_events_job (job=?)"],
    "workers.delete": ["INDEX outlast_runs_worker (worker=?)"],
    "runs.record_progress": ["INTEGER PRIMARY KEY (rowid=?)"],
    "audit.jobs": [
        "INTEGER PRIMARY KEY (rowid>?)",
        "INTEGER PRIMARY KEY (rowid=?)",
        "PRIMARY KEY (job=?)",
        "INDEX outlast_events_job (job=?)",
        "INDEX outlast_jobs_retry_of (retry_of=?)",
        "INDEX outlast_reservations_job (job_id=?)",
        "INDEX outlast_labels_job (job=?)",
    ],
    "jobs.find_label": [
        "PRIMARY KEY (label=? AND job<?)",
        "PRIMARY KEY (label=? AND job=?)",
        "INTEGER PRIMARY KEY (rowid=?)",
    ],
    "jobs.label_counts": ["PRIMARY KEY (label=?)"],
    "jobs.chain": ["INDEX outlast_jobs_root (root=?)"],
    "maintenance.select_ended_chains": [
        "INDEX outlast_ends_state (state=? AND at<?)",
        "INDEX outlast_jobs_retry_of (retry_of=?)",
    ],
    "maintenance.delete_selected": [
        "INTEGER PRIMARY KEY (rowid=?)",
        "INDEX outlast_jobs_root (root=?)",
    ],
    "apply.check_open": ["INTEGER PRIMARY KEY (rowid=?)"],
    "apply.free_keys": ["INDEX outlast_keys_active (job_id=?"],
    "add.set_positions": ["INDEX outlast_waiting_position (queue=? AND priority=?)"],
    "add.key_holder": ["PRIMARY KEY (scope=? AND key=? AND bucket=?)"],
    "add.slot_holder": ["PRIMARY KEY (series=? AND slot_at=?)"],
}
"""What the plan must say, among other things."""


async def _little(store: SqliteStore) -> None:
    """One of each: what statistics look like when somebody gathered them on the first day."""
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    once = {"delivery": Delivery.ONCE, "start_within": HOUR, "active_key": "key"}
    await store.add([make_job(**once), make_job(delivery=Delivery.LINKED), make_job(delay=HOUR)])
    for claim in await take_many(store):
        await settle(store, claim, Failed("it broke"))
    await take_many(store)
    await store.add([make_job(**once), make_job()])
    await put_group(store, mode=GroupMode.SEQUENTIAL)
    closing, _ = await put_group(store, is_sealed=False)
    await store.stop_group(closing, reason=None)


async def _much(store: SqliteStore) -> None:
    """Thousands: most of them done, many waiting, some of them running."""
    await _little(store)
    await store.add([make_job(active_key=str(n), start_within=HOUR) for n in range(300)])
    await store.add([make_job(delay=HOUR) for _ in range(300)])
    await store.add([make_job() for _ in range(3000)])
    await put_group(store, *[make_job() for _ in range(500)])
    for _ in range(50):
        await put_group(store, mode=GroupMode.SEQUENTIAL)
    claims = await take_many(store, limit=1000)
    await store.apply([decide(claim, SUCCEEDED, new_id=new_id) for claim in claims])
    await take_many(store, limit=MANY // 10)


class Planner:
    """Asks the very connections that run the statements: the store's writer and a reader."""

    def __init__(self, store: SqliteStore) -> None:
        self._writer = writing(store)
        [self._reader] = reading(store)

    def plan(self, name: str) -> Plan:
        return plan(self._reader if name.startswith(("jobs.", "audit.")) else self._writer, name)


@pytest.fixture(
    scope="module", params=["no statistics", "statistics of much", "statistics of little"]
)
def planner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Planner]:
    """On a file of which somebody has gathered statistics, or nobody."""
    store = SqliteStore(tmp_path_factory.mktemp("plans") / "jobs.db")
    with asyncio.Runner() as runner:
        runner.run(store.open())
        runner.run((_little if request.param == "statistics of little" else _much)(store))
        runner.run(store.close())
        if request.param != "no statistics":
            with raw(store.path) as operator:
                operator.execute("ANALYZE")
        runner.run(store.open())
        runner.run(store.counts())
        yield Planner(store)
        runner.run(store.close())


def test_no_statement_walks_through_a_table_that_grows(planner: Planner) -> None:
    walked = {name: planner.plan(name).walked & GROWS for name in PLANNED}

    assert {
        name: each for name, each in walked.items() if not each <= WALKS_ON_PURPOSE.get(name, set())
    } == {}


def test_no_statement_builds_an_index_of_its_own(planner: Planner) -> None:
    uses = {name: planner.plan(name).uses for name in PLANNED}

    assert {n: each for n, each in uses.items() if any("AUTOMATIC" in way for way in each)} == {}


def test_every_statement_goes_by_the_intended_index(planner: Planner) -> None:
    uses = {name: "\n".join(planner.plan(name).uses) for name in INTENDED}

    assert {n: each for n, each in uses.items() if any(i not in each for i in INTENDED[n])} == {}


@pytest.mark.parametrize(
    "name", ["positions.lowest", "positions.highest", "positions.before", "positions.after"]
)
def test_neighbours_are_read_in_order_and_no_more_than_asked_for(
    planner: Planner, name: str
) -> None:
    assert not [detail for detail in planner.plan(name).uses if "B-TREE" in detail]


def test_walks_on_purpose_are_still_taken(planner: Planner) -> None:
    for name, tables in WALKS_ON_PURPOSE.items():
        assert tables <= planner.plan(name).walked, f"{name} needs no exception any more"
