"""Which way PostgreSQL takes: by the intended index, with statistics or without, never through all.

A plan is kept while the tables grow: hence also plans that were made over a drained store.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from outlast.store.postgres.connection import connect
from outlast.store.postgres.migrate import migrate
from outlast.store.postgres.placeholders import statements
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import parse_url

from .pg_plans import Plan, Planner
from .pg_worlds import crowd, leave_alone

if TYPE_CHECKING:
    from outlast.testing.servers.postgres import PostgresServer

pytestmark = pytest.mark.xdist_group("postgres-plans")
"""A world for each, made once."""

GROWS = {
    "jobs",
    "waiting",
    "open_runs",
    "runs",
    "ends",
    "events",
    "keys",
    "slots",
    "schedules",
    "groups",
    "reservations",
    "workers",
    "labels",
}
LIVE = ("waiting", "open_runs")
HELD = [
    "apply.identities",
    "reservations.end",
    "reservations.stale_queues",
    "reservations.all_active",
    "reservations.expired",
]
"""Go through the queues that are held, by an index of those alone: mostly there is none."""

ALWAYS: dict[str, set[str]] = {
    **{name: {"reservations"} for name in HELD},
    "reservations.latest": {"reservations"},  # from the newest down, until it has its page
    "jobs.counts": {"waiting", "open_runs", "ends"},  # it counts them
    "jobs.find_live": {"waiting", "open_runs"},  # for people who ask: what is live
    "maintenance.running_under_other_boots": {"open_runs"},  # few: what runs now
    "maintenance.expired_leases": {"open_runs"},  # the same
    # What runs now, and by whom; groups that close and queues that are held, by their indexes.
    "maintenance.due": {"open_runs", "workers", "groups", "reservations"},
    "claim.gate": {"open_runs"},  # the same
    "claim.opened_by_prefix": {"open_runs"},  # the same, and only after an answer was lost
    "maintenance.find_orphans": {"runs"},  # once at every start
    "workers.former": {"workers", "open_runs"},  # former workers that a kept run references
    "workers.delete": {"open_runs"},  # few: what runs now
    "workers.clear_registrations": {"workers", "open_runs"},  # those that are registered
    "workers.list": {"workers"},  # those that are enlisted, by their index
    "groups.closing": {"groups"},  # those that close and were not swept, by their index
    "groups.any_to_mark": {"groups"},  # the same
    "groups.mark_closed": {"groups"},  # the same
    "positions.renumber": {"waiting"},  # it numbers all of a queue
}
SOMETIMES: dict[str, set[str]] = {
    "maintenance.detached": {"jobs", "waiting", "open_runs", "ends"},  # at every start
    "groups.seal": {"groups"},  # those that are not sealed, by their index
    "groups.expire": {"groups"},  # the same
    "claim.backlog": {"open_runs"},  # the `once` jobs that run, by their index
    "claim.small": {"open_runs"},  # the same
    "apply.lock_expired_reservations": {"reservations"},  # the queues that are held, by their index
    "runs.renew": {"reservations"},  # the same
    "positions.renumber_placed": {"waiting"},  # it numbers all of a queue
    "transfer.counters": {"events"},  # its last row
    # The last row of each; of plans there are few, and it is asked at the end of a move alone.
    "transfer.raise_counters": {"events", "groups", "jobs", "reservations", "schedules"},
}
MAY_WALK = ALWAYS | SOMETIMES
SKIPPED = (
    "unit_of_work.",
    "schema.",
    "jobs.allow_full_scans",
    "audit.",
    "insight.",
    "savepoint.",
    "locks.",
    "sessions.",
    "health.",
    "queues.wait_for_claims",
)
"""No table of ours is looked at; or for people who ask for everything."""

PLANNED = sorted(
    name
    for name, statement in statements().items()
    if not name.startswith(SKIPPED) and not statement.text.startswith("LOCK")
)
INTENDED = {
    "jobs.get": ["jobs_pkey (id = i.id)", "runs_pkey (job = ", "workers_pkey (id = "],
    "jobs.peek": [
        "waiting_ready ((queue = $1) AND (type > ",
        "waiting_ready ((queue = $1) AND (type = ",
        "waiting_due (available_at <= ",
    ],
    "jobs.find": ["jobs_seq (seq < "],
    "jobs.find_live": ["ends_not_succeeded ((state = t.state) AND (seq < "],
    "jobs.find_id": ["jobs_pkey ((id >= $1) AND (id <= $2))"],
    "jobs.find_key": ["keys_pkey ((scope = ANY ", "jobs_root (root = "],
    "jobs.find_label": ["labels_pkey ((label = $1) AND (seq < ", "jobs_pkey (id = n.job)"],
    "jobs.label_counts": ["labels_pkey (label = l.label)"],
    "jobs.chain": ["jobs_root (root = "],
    "runs.of_job": ["runs_pkey (job = $1)", "open_runs_pkey (job = $1)"],
    "runs.events": ["events_job (job = $1)"],
    "runs.events_of_no_job": ["events_job (job IS NULL)"],
    "runs.stream": ["events_pkey ((id > $1) AND (id < "],
    "maintenance.missing_successors": [
        "ends_not_succeeded ((state = 'failed'::text) AND (seq > ",
        "jobs_retry_of (retry_of",
    ],
    # The fence must not be seen: with it the planner reckons with one row, and joins accordingly.
    "finish.plain": ["open_runs_pkey (job = "],
    "claim.backlog": [
        "waiting_ready ((queue = $1) AND (type = l.type) AND (claim_order > ",
        "waiting_due (available_at <= ",
        "jobs_pkey (id = o.job)",
    ],
    "claim.small": [
        "waiting_ready ((queue = $1) AND (type = t.type))",
        "waiting_due (available_at <= ",
        "jobs_pkey (id = o.job)",
    ],
    "runs.renew": ["open_runs_pkey (job = "],
    "apply.close": ["open_runs_pkey (job = "],
    "apply.lock_open": ["open_runs_pkey (job = ANY ($2))"],
    "apply.lock_waiting": ["waiting_pkey (job = ANY ($1))"],
    "positions.bounds": ["waiting_position ((queue = $1) AND (priority = $2))"],
    "positions.before": ['waiting_position ((queue = $1) AND (priority = $2) AND ("position" >= '],
    "positions.after": ['waiting_position ((queue = $1) AND (priority = $2) AND ("position" <= '],
    "positions.last": ["waiting_position ((queue = $1) AND (priority = $2))"],
    "positions.set": ["waiting_pkey (job = ANY ($2))"],
    "positions.unplaced": [
        "waiting_ready ((queue = $1) AND (type = t.type) AND (claim_order >= ",
        "waiting_due (available_at <= ",
        "waiting_blocked ((queue = $1) AND (priority = $3) AND (available_at <= ",
    ],
    "reservations.active": ["reservations_active (queue = $1)"],
    "reservations.move_to_front": ["waiting_position ((queue = "],
    "schedules.get": ["schedules_name_key (name = $1)", "schedules_pkey (id = $2)"],
    "schedules.page": ["schedules_name_key (name > $1)"],
    "schedules.due": [
        "schedules_due (next_trigger_at <= t.until)",
        "schedules_due (next_trigger_at > t.until)",
    ],
    "schedules.lock": ["schedules_pkey (id = ANY ("],
    "schedules.advance": ["schedules_pkey (id = "],
    "schedules.slots": ["slots_pkey ((series = $1) AND (slot_at < $2))"],
    "schedules.slots_at": ["slots_pkey ((series = $1) AND (slot_at = ANY ($2)))"],
    "schedules.running_names": ["open_name (name = ANY ($1))"],
    "schedules.mark_slots_skipped": ["slots_job (job = ANY ("],
    "groups.unblock": ["waiting_member_group ((member_group_id = $1) AND (seq > $2))"],
    "groups.seal": ["jobs_member_group (member_group_id = "],
    "groups.finished": [
        "waiting_member_group (member_group_id = g.id)",
        "open_runs_member_group (member_group_id = g.id)",
    ],
    "groups.closing": ["groups_closing"],
    "groups.any_expired": ["groups_unsealed (created_at < "],
    "groups.remaining_members": [
        "waiting_member_group ((member_group_id = $1) AND (seq > $2))",
        "open_runs_member_group ((member_group_id = $1)",
    ],
    "groups.members": ["jobs_member_group ((member_group_id = $1) AND (seq < "],
    "groups.get": [
        "jobs_member_group (member_group_id = ",
        "jobs_retry_of (retry_of = ",
        "groups_seq_key (seq = ",
    ],
    "groups.find": ["jobs_member_group (member_group_id = ", "groups_seq_key (seq < "],
}
"""What the plan must say, among other things."""


class Plans:
    """The plans of one world, asked for once each."""

    def __init__(self, runner: asyncio.Runner, planner: Planner) -> None:
        self._runner = runner
        self._planner = planner
        self._known: dict[str, Plan] = {}

    def of(self, name: str) -> Plan:
        if name not in self._known:
            self._known[name] = self._runner.run(self._planner.plan(name))
        return self._known[name]


@pytest.fixture(scope="module", params=["never analysed", "analysed", "drained"])
def plans(request: pytest.FixtureRequest, postgres: "PostgresServer") -> Iterator[Plans]:
    """A store of thousands, of which somebody has gathered statistics, or nobody, or too late."""
    url = postgres.new_database()
    with asyncio.Runner() as runner:
        connection = runner.run(_made(url, request.param))
        yield Plans(runner, Planner(connection, parse_url(url).schema))
        runner.run(connection.close())
    postgres.drop_database(url.rpartition("/")[2])


async def _made(url: str, world: str) -> object:
    where = parse_url(url)
    connection = await connect(where)
    await migrate(AsyncpgRunner(connection, where.schema), where)
    await leave_alone(connection, where.schema)
    await crowd(connection, where.schema, done=5000, waiting=3000, running=300)
    if world != "never analysed":
        await connection.execute("ANALYZE")
    if world == "drained":
        for table in LIVE:
            await connection.execute(f'TRUNCATE "{where.schema}".{table}')
            await connection.execute(f'VACUUM ANALYZE "{where.schema}".{table}')
    return connection


def test_no_statement_walks_through_a_table_that_grows(plans: Plans) -> None:
    walked = {name: plans.of(name).walked & GROWS for name in PLANNED}

    assert {
        name: plans.of(name).uses
        for name, each in walked.items()
        if not each <= MAY_WALK.get(name, set())
    } == {}


def test_every_statement_goes_by_the_intended_index(plans: Plans) -> None:
    uses = {name: "\n".join(plans.of(name).uses) for name in INTENDED}

    assert {n: each for n, each in uses.items() if any(i not in each for i in INTENDED[n])} == {}


@pytest.mark.parametrize(
    "name", ["positions.bounds", "positions.before", "positions.after", "runs.stream"]
)
def test_neighbours_are_read_in_order_and_no_more_than_asked_for(plans: Plans, name: str) -> None:
    assert not plans.of(name).sorts


def test_walks_on_purpose_are_still_taken(plans: Plans) -> None:
    for name, tables in ALWAYS.items():
        assert tables & plans.of(name).walked, f"{name} needs no exception any more"
