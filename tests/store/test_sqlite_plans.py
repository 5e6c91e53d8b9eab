"""Which way SQLite takes: by the intended index, with and without statistics, never through all."""

import asyncio
from collections.abc import Iterator

import pytest

from holdfast.core.delivery import Delivery
from holdfast.core.event import Failed
from holdfast.core.group import GroupMode
from holdfast.core.order import Ordering
from holdfast.store.base import Queue
from holdfast.store.sqlite.statements import statements
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.conformance.make import (
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

from .kit import raw, reading, writing
from .plans import Plan, plan

pytestmark = pytest.mark.xdist_group("sqlite-plans")
"""A world for each, made once."""

GROWS = {
    "holdfast_jobs",
    "holdfast_waiting",
    "holdfast_open_runs",
    "holdfast_runs",
    "holdfast_ends",
    "holdfast_events",
    "holdfast_keys",
    "holdfast_slots",
    "holdfast_groups",
    "holdfast_reservations",
}
HELD = [
    "reservation.end",
    "reservation.finish",
    "reservation.free",
    "reservation.held",
    "reservation.lapsed",
    "reservation.renew",
    "schema.lapse_reservations",
]
"""Go through the queues that are held, by an index of those alone: mostly there is none."""
WALKS_ON_PURPOSE = {
    **{name: {"holdfast_reservations"} for name in HELD},
    "reservation.latest": {"holdfast_reservations"},  # from the newest down, until it has its page
    "read.counts": {"holdfast_waiting", "holdfast_open_runs", "holdfast_ends"},  # it counts them
    "read.find": {"holdfast_jobs"},  # from the newest down, until it has its page
    "group.closing": {"holdfast_groups"},  # those that close and were not swept, by their index
    "group.sweepable": {"holdfast_groups"},  # the same
    "group.sweep": {"holdfast_groups"},  # the same
    "read.lapsed": {"holdfast_open_runs"},  # few: what runs now
    "read.chores": {"holdfast_open_runs", "holdfast_reservations", "holdfast_groups"},  # the same
    "read.trees": {"holdfast_open_runs"},  # few: what runs now
    "claim.count_open": {"holdfast_open_runs"},  # the same
    "place.normalise": {"holdfast_waiting"},  # it numbers all of a queue
    "worker.delete": {"holdfast_open_runs"},  # few: what runs now
    "read.orphans": {"holdfast_runs"},  # once at every start
    "schema.lapse_all": {"holdfast_open_runs"},  # once after a restart
    # For people who ask: what is live, never what is kept.
    "read.find_live": {"holdfast_waiting", "holdfast_open_runs"},
    "view.backlog": {"holdfast_waiting"},
    "view.running": {"holdfast_open_runs"},
    "view.open_runs": {"holdfast_open_runs"},
    "view.held": {"holdfast_open_runs"},
    # `verify`, when somebody asks for it: once for all pages together.
    "audit.orphans": {
        "holdfast_runs",
        "holdfast_waiting",
        "holdfast_open_runs",
        "holdfast_ends",
        "holdfast_reservations",
    },
    "audit.keys": {"holdfast_keys", "holdfast_slots"},
    "audit.slots": {"holdfast_jobs"},
    "audit.doubles": {"holdfast_open_runs", "holdfast_reservations"},
}
PLANNED = sorted(
    name
    for name, text in statements().items()
    if text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"))
    and name != "schema.drop_statistics"  # of a table that most files do not have
)
INTENDED = {
    **{name: ["INDEX holdfast_reservations_active"] for name in HELD},
    "claim.gate": [
        "PRIMARY KEY (name=?)",
        "INDEX holdfast_reservations_active (queue=?)",
    ],
    "apply.check_silent": ["INDEX holdfast_reservations_job (job_id=?)"],
    "reservation.active": ["INDEX holdfast_reservations_active (queue=?)"],
    "reservation.place": ["INDEX holdfast_waiting_place (queue=? AND priority=?)"],
    "reservation.prune": ["INDEX holdfast_reservations_job (job_id=?)"],
    "finish.limited": ["INDEX holdfast_queues_limited"],
    "apply.limited": ["INDEX holdfast_queues_limited"],
    "claim.pick": [
        "INDEX holdfast_waiting_ready (queue=? AND type=?)",
        "INDEX holdfast_open_name (name=?)",
        "INDEX holdfast_waiting_once (name=? AND queue=?)",
    ],
    "claim.promote": ["INDEX holdfast_waiting_due (available_at<?)"],
    "read.lapsed": ["INTEGER PRIMARY KEY (rowid=?)"],
    "read.overdue": ["INDEX holdfast_waiting_deadline (start_deadline>? AND start_deadline<?)"],
    "read.peek": [
        "INDEX holdfast_waiting_ready (queue=? AND type>?)",
        "INDEX holdfast_waiting_ready (queue=? AND type=?)",
        "INDEX holdfast_waiting_due (available_at<?)",
    ],
    "place.lowest": ["INDEX holdfast_waiting_place (queue=? AND priority=?)"],
    "place.highest": ["INDEX holdfast_waiting_place (queue=? AND priority=?)"],
    "place.before": ["INDEX holdfast_waiting_place (queue=? AND priority=? AND position>? AND "],
    "place.after": ["INDEX holdfast_waiting_place (queue=? AND priority=? AND "],
    "place.unplaced": [
        "waiting_ready (queue=? AND type=? AND priority=? AND position=? AND available_at<?)",
        "position=? AND available_at=? AND created_at<?)",
        "position=? AND available_at=? AND created_at=? AND job<?)",
        "INDEX holdfast_waiting_due (available_at<?)",
        "INDEX holdfast_waiting_blocked (queue=? AND priority=? AND (available_at,created_at)<",
    ],
    "place.edit": ["INDEX holdfast_waiting_place (queue=? AND priority=?)"],
    "place.write": ["INTEGER PRIMARY KEY (rowid=?)"],
    "read.held": ["INTEGER PRIMARY KEY (rowid>?)"],
    "read.adrift": ["INTEGER PRIMARY KEY (rowid>?)", "INTEGER PRIMARY KEY (rowid=?)"],
    "read.unfollowed": [
        "INDEX holdfast_ends_state (state=?)",
        "INDEX holdfast_jobs_retry_of (retry_of=?)",
    ],
    "apply.grouped": [
        "g USING INTEGER PRIMARY KEY (rowid=?)",
        "INDEX holdfast_jobs_retry_of (retry_of=?)",
    ],
    "finish.grouped": ["g USING INTEGER PRIMARY KEY (rowid=?)"],
    "group.next": ["INDEX holdfast_waiting_grp (grp=? AND job>?)"],
    "group.unblock": ["INDEX holdfast_waiting_grp (grp=?)"],
    "group.seal": ["INDEX holdfast_jobs_grp (grp=?)"],
    "group.close": ["INTEGER PRIMARY KEY (rowid=?)"],
    "group.over": ["INDEX holdfast_waiting_grp (grp=?)", "INDEX holdfast_open_grp (grp=?)"],
    "group.closing": ["INDEX holdfast_groups_closing"],
    "group.sweep": ["INDEX holdfast_groups_closing"],
    "group.expired": ["INDEX holdfast_groups_unsealed (created_at<?)"],
    "group.left_over": [
        "INDEX holdfast_waiting_grp (grp=? AND job>?)",
        "INDEX holdfast_open_grp (grp=? AND job>?)",
    ],
    "group.members": ["INDEX holdfast_jobs_grp (grp=? AND seq<?)"],
    "group.get": ["INDEX holdfast_jobs_grp (grp=?)"],
    "group.find": ["INDEX holdfast_jobs_grp (grp=?)", "INTEGER PRIMARY KEY (rowid<?)"],
    "prune.groups": ["INDEX holdfast_jobs_grp (grp=?)"],
    "prune.empty_groups": ["INDEX holdfast_groups_abandoned (created_at<?)"],
    "read.runs": ["PRIMARY KEY (job=?)"],
    "read.stream": ["INTEGER PRIMARY KEY (rowid>?)", "INTEGER PRIMARY KEY (rowid=?)"],
    "record.get": ["INDEX sqlite_autoindex_holdfast_records_1 (kind=? AND key=?)"],
    "record.write": ["INDEX sqlite_autoindex_holdfast_records_1 (kind=? AND key=?)"],
    "read.events": ["INDEX holdfast_events_job (job=?)"],
    "worker.delete": ["INDEX holdfast_runs_worker (worker=?)"],
    "lease.report": ["INTEGER PRIMARY KEY (rowid=?)"],
    "audit.dossiers": [
        "INTEGER PRIMARY KEY (rowid>?)",
        "INTEGER PRIMARY KEY (rowid=?)",
        "PRIMARY KEY (job=?)",
        "INDEX holdfast_events_job (job=?)",
        "INDEX holdfast_jobs_retry_of (retry_of=?)",
        "INDEX holdfast_reservations_job (job_id=?)",
    ],
    "read.chain": ["INDEX holdfast_jobs_root (root=?)"],
    "prune.pick": [
        "INDEX holdfast_ends_state (state=? AND at<?)",
        "INDEX holdfast_jobs_retry_of (retry_of=?)",
    ],
    "prune.delete": ["INTEGER PRIMARY KEY (rowid=?)", "INDEX holdfast_jobs_root (root=?)"],
    "apply.check_open": ["INTEGER PRIMARY KEY (rowid=?)"],
    "apply.free_keys": ["INDEX holdfast_keys_active (job_id=?"],
    "add.place": ["INDEX holdfast_waiting_place (queue=? AND priority=?)"],
    "add.key_holder": ["PRIMARY KEY (scope=? AND key=? AND bucket=?)"],
    "add.slot_holder": ["PRIMARY KEY (series=? AND slot_at=?)"],
}
"""What the plan must say, among other things."""


async def _little(store: SqliteStore) -> None:
    """One of each: what statistics look like when somebody gathered them on the first day."""
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    once = {"delivery": Delivery.ONCE, "start_within": HOUR, "active_key": "key"}
    await store.add([make_job(**once), make_job(delivery=Delivery.CHAIN), make_job(delay=HOUR)])
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
        return plan(self._reader if name.startswith(("read.", "audit.")) else self._writer, name)


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


@pytest.mark.parametrize("name", ["place.lowest", "place.highest", "place.before", "place.after"])
def test_neighbours_are_read_in_order_and_no_more_than_asked_for(
    planner: Planner, name: str
) -> None:
    assert not [detail for detail in planner.plan(name).uses if "B-TREE" in detail]


def test_walks_on_purpose_are_still_taken(planner: Planner) -> None:
    for name, tables in WALKS_ON_PURPOSE.items():
        assert tables <= planner.plan(name).walked, f"{name} needs no exception any more"
