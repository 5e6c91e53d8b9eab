"""What can never stand in the tables, and what never changes any more, refused by the database.

The columns come from the database: a new one is expected to be frozen until somebody decides
otherwise here (S1 INV-001, INV-002).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Failed
from outlast.core.job import DedupeKey, Slot
from outlast.core.reservation import NewReservation, ReservationId
from outlast.core.state import FINAL, WAITING, RunStatus, State
from outlast.store.postgres.store import PostgresStore
from outlast.testing.clock import START
from outlast.testing.conformance.factories import (
    HOUR,
    ended,
    make_job,
    new_id,
    put,
    put_group,
    put_schedule,
    settle,
    started,
)

if TYPE_CHECKING:
    from outlast.testing.servers.postgres import PostgresServer

JOB = "outlast: a job is frozen at its first claim"
RUN = "outlast: a closed run is frozen"
OPEN_RUN = "outlast: only the lease, cancel mark, progress and artifacts of an open run change"
PLACE = "outlast: only the position, due time and state of a waiting job change"
END = "outlast: an end is final"
SLOT = "outlast: a slot is (claimed|answered) once"
SCHEDULE = "outlast: an edit of a schedule raises its version, only a firing advances it"
GROUP = "outlast: a group is sealed once and closed once"
LINKED, ONCE = {"delivery": Delivery.LINKED}, {"delivery": Delivery.ONCE}

MAY_CHANGE = {
    "jobs": {"params"},
    "waiting": {"state", "priority", "position", "available_at", "claim_order"},
    "open_runs": {"lease_until", "cancel", "progress", "artifacts"},
    "runs": {"exit_code", "error", "artifacts"},
    "ends": set[str](),
    "groups": {"sealed_at", "closing", "reason", "swept"},
    "slots": set[str](),
    "schedules": {"version", "next_slot", "next_trigger_at", "last_triggered_at"},
}
FROZEN = {
    "jobs": JOB,
    "waiting": PLACE,
    "open_runs": OPEN_RUN,
    "runs": RUN,
    "ends": END,
    "groups": GROUP,
    "slots": SLOT,
    "schedules": SCHEDULE,
}
ANOTHER = {
    "uuid": "'00000000-0000-7000-ffff-ffffffffffff'",
    "bigint": "424242",
    "integer": "4242",
    "smallint": "42",
    "boolean": "NOT {}",
    "json": "'[\"another\"]'",
    "text": "'another'",
}
"""A value of that type that is not there."""


@dataclass(frozen=True, slots=True)
class World:
    """One job of each kind, by its id; `db` is a look at the tables, undone after each test."""

    db: Any
    waits: str
    runs: str
    once: str
    ended: str
    failed: str
    follows: str
    sealed: str
    stopped: str

    async def refused(self, statement: str, *values: Any, match: str) -> None:
        with pytest.raises(asyncpg.IntegrityConstraintViolationError, match=match):
            async with self.db.transaction():
                await self.db.execute(statement, *values)

    async def copied(self, table: str, where: str, **over: Any) -> None:
        """Insert a row like that one, with something else in it."""
        [row] = await self.db.fetch(f"SELECT * FROM outlast.{table} WHERE {where}")  # noqa: S608 - ours
        made = {name: value for name, value in row.items() if name != "claim_order"} | over
        places = ", ".join(f"${n}" for n in range(1, len(made) + 1))
        names = ", ".join(made)
        into = f"INSERT INTO outlast.{table} ({names}) VALUES ({places})"  # noqa: S608 - ours
        async with self.db.transaction():
            await self.db.execute(into, *made.values())


@pytest.fixture(scope="module")
def made(postgres: "PostgresServer") -> Iterator[tuple[str, dict[str, str]]]:
    url = postgres.new_database()
    yield url, asyncio.run(_make(url))
    postgres.drop_database(url.rpartition("/")[2])


async def _make(url: str) -> dict[str, str]:
    store = PostgresStore(url)
    await store.open()
    done = await ended(store, slot=Slot(series="daily", at=START), key=DedupeKey(key="k"))
    failing = await started(store, **LINKED)
    await settle(store, failing, Failed("it broke", HOUR))
    running = await started(store)
    once = await started(store, name="alone", **ONCE)
    sealed, _ = await put_group(store, make_job(queue="apart"), make_job(queue="apart"))
    stopped, _ = await put_group(store, make_job(queue="apart"))
    await store.stop_group(stopped, reason="enough")
    await put_schedule(store, START)
    new = NewReservation(id=ReservationId(new_id()), caller="me", request="it", span=HOUR)
    await store.reserve(new, make_job(queue="held"))
    waits = await put(store, delay=HOUR)
    [after] = [job for job in await store.chain(failing.job_id) if job.retry_of]
    await store.close()
    return {
        "waits": waits,
        "runs": running.job_id,
        "once": once.job_id,
        "ended": done,
        "failed": failing.job_id,
        "follows": after.id,
        "sealed": sealed,
        "stopped": stopped,
    }


@pytest.fixture
async def world(made: tuple[str, dict[str, str]]) -> AsyncIterator[World]:
    url, ids = made
    db = await asyncpg.connect(url)
    undone = db.transaction()
    await undone.start()
    yield World(db, **ids)
    await undone.rollback()
    await db.close()


@pytest.mark.parametrize("table", FROZEN)
async def test_all_columns_but_those_that_may_change_are_frozen(world: World, table: str) -> None:
    found = await world.db.fetch(
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'outlast' AND table_name = $1",
        table,
    )
    frozen = [(name, kind) for name, kind in found if name not in MAY_CHANGE[table]]

    assert len(frozen) + len(MAY_CHANGE[table]) == len(found), "a column that is not there"
    for name, kind in frozen:
        value = ANOTHER[kind].format(name)
        change = f"UPDATE outlast.{table} SET {name} = {value}"  # noqa: S608 - ours
        with pytest.raises(asyncpg.IntegrityConstraintViolationError, match=FROZEN[table]):
            async with world.db.transaction():
                await world.db.execute(change)


async def test_params_may_be_edited_before_the_first_claim_only(world: World) -> None:
    edit = "UPDATE outlast.jobs SET params = '{\"a\": 1}' WHERE id = $1"

    assert await world.db.execute(edit, world.waits) == "UPDATE 1"
    for job in (world.runs, world.ended, world.failed):
        await world.refused(edit, job, match=JOB)


async def test_cancel_mark_is_never_taken_back(world: World) -> None:
    mark = "UPDATE outlast.open_runs SET cancel = $2 WHERE job = $1"
    await world.db.execute(mark, world.runs, True)

    await world.refused(mark, world.runs, False, match=OPEN_RUN)


async def test_empty_column_of_a_closed_run_is_filled_once(world: World) -> None:
    fill = "UPDATE outlast.runs SET exit_code = $2, error = $3 WHERE job = $1"
    await world.db.execute(fill, world.ended, 1, "late")

    await world.refused(fill, world.ended, 2, "late", match=RUN)
    await world.refused(fill, world.ended, 1, "other", match=RUN)


async def test_artifacts_are_appended_and_never_taken_back(world: World) -> None:
    keep = "UPDATE outlast.runs SET artifacts = $2 WHERE job = $1"
    await world.db.execute(keep, world.ended, '["a"]')
    await world.db.execute(keep, world.ended, '["a","b"]')

    for less in ('["a"]', '["b","a"]', "[]", None):
        await world.refused(keep, world.ended, less, match=RUN)


async def test_failure_may_be_declared_dead_and_nothing_else(world: World) -> None:
    declare = "UPDATE outlast.ends SET state = $2 WHERE job = $1"
    for state in FINAL - {State.DEAD_LETTER}:
        await world.refused(declare, world.failed, state, match=END)
        await world.refused(declare, world.ended, state, match=END)

    assert await world.db.execute(declare, world.failed, "dead_letter") == "UPDATE 1"
    await world.refused(declare, world.failed, "failed", match=END)


async def test_group_is_sealed_once_closed_once_and_then_swept(world: World) -> None:
    unseal = "UPDATE outlast.groups SET sealed_at = NULL WHERE id = $1"
    close = "UPDATE outlast.groups SET closing = $2, reason = $3 WHERE id = $1"
    sweep = "UPDATE outlast.groups SET swept = $2 WHERE id = $1"

    await world.refused(unseal, world.sealed, match=GROUP)
    await world.refused(close, world.sealed, None, "why", match=GROUP)
    await world.refused(sweep, world.sealed, True, match=GROUP)
    await world.refused(close, world.stopped, "skip", "enough", match=GROUP)
    await world.refused(close, world.stopped, None, None, match=GROUP)
    await world.db.execute(sweep, world.stopped, True)
    await world.refused(sweep, world.stopped, False, match=GROUP)


async def test_claimed_slot_may_be_skipped_and_is_kept_for_ever(world: World) -> None:
    answer = "UPDATE outlast.slots SET outcome = $1 WHERE job = $2"

    assert await world.db.execute(answer, "skipped", world.ended) == "UPDATE 1"
    for outcome in ("ran", "late", "manual", "missed"):
        await world.refused(answer, outcome, world.ended, match=SLOT)
    await world.refused("DELETE FROM outlast.slots", match="slots are never deleted")


async def test_whoever_takes_a_claimed_slot_is_told_what_an_index_would_say(world: World) -> None:
    take = "UPDATE outlast.slots SET job = $1 WHERE job = $2"

    with pytest.raises(asyncpg.UniqueViolationError, match="claimed once"):
        async with world.db.transaction():
            await world.db.execute(take, world.waits, world.ended)


async def test_slot_without_a_job_is_taken_by_hand_and_by_nothing_else(world: World) -> None:
    await world.copied("slots", f"job = '{world.ended}'", slot_at=1, outcome="missed", job=None)
    take = "UPDATE outlast.slots SET outcome = $1, job = $2 WHERE slot_at = 1"

    for outcome in ("ran", "late", "skipped"):
        await world.refused(take, outcome, world.waits, match=SLOT)
    await world.refused(take, "manual", None, match="slot_claim")
    assert await world.db.execute(take, "manual", world.waits) == "UPDATE 1"


async def test_version_of_a_schedule_only_rises(world: World) -> None:
    write = "UPDATE outlast.schedules SET version = version + $1, enabled = false"

    await world.refused(write, -1, match=SCHEDULE)
    assert await world.db.execute(write, 1) == "UPDATE 1"


async def test_job_that_has_not_ended_cannot_be_deleted(world: World) -> None:
    delete = "DELETE FROM outlast.jobs WHERE id = $1"
    for job in (world.waits, world.runs, world.once, world.follows):
        await world.refused(delete, job, match="outlast: a job that has not ended")

    assert await world.db.execute(delete, world.ended) == "DELETE 1"


@pytest.mark.parametrize("table", ["runs", "ends"])
async def test_record_of_a_stored_job_cannot_be_deleted(world: World, table: str) -> None:
    delete = f"DELETE FROM outlast.{table} WHERE job = $1"  # noqa: S608 - ours

    await world.refused(delete, world.ended, match="deleted only with its job")


@pytest.mark.parametrize("table", ["open_runs", "waiting", "ends"])
async def test_job_stands_in_a_table_once(world: World, table: str) -> None:
    job = {"open_runs": world.runs, "waiting": world.waits, "ends": world.ended}[table]

    with pytest.raises(asyncpg.UniqueViolationError):
        await world.copied(table, f"job = '{job}'")


async def test_run_of_a_token_is_closed_once(world: World) -> None:
    with pytest.raises(asyncpg.UniqueViolationError):
        await world.copied("runs", f"job = '{world.ended}'", run_id=new_id())


async def test_job_has_one_successor(world: World) -> None:
    with pytest.raises(asyncpg.UniqueViolationError, match="jobs_retry_of"):
        await world.copied("jobs", f"id = '{world.follows}'", id=new_id(), seq=424242)


async def test_link_of_a_chain_knows_its_root(world: World) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="chain_links"):
        await world.copied("jobs", f"id = '{world.waits}'", id=new_id(), seq=1 << 40, root=new_id())


async def test_once_job_of_a_name_runs_once_at_a_time(world: World) -> None:
    with pytest.raises(asyncpg.UniqueViolationError, match="open_name"):
        await world.copied("open_runs", f"job = '{world.once}'", job=new_id())


@pytest.mark.parametrize("delivery", [Delivery.LINKED, Delivery.ONCE])
async def test_job_that_runs_once_has_one_token_and_never_waits_again(
    world: World, delivery: Delivery
) -> None:
    again = {"job": new_id(), "delivery": str(delivery), "name": "other"}
    with pytest.raises(asyncpg.CheckViolationError, match="one_run"):
        await world.copied("open_runs", f"job = '{world.runs}'", token=2, **again)
    with pytest.raises(asyncpg.CheckViolationError, match="runs_again"):
        await world.copied("waiting", f"job = '{world.waits}'", token=1, **again)


@pytest.mark.parametrize("token", [0, -1])
async def test_run_without_a_token_is_refused(world: World, token: int) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="token_rises"):
        await world.copied("open_runs", f"job = '{world.runs}'", job=new_id(), token=token)


async def test_states_are_those_of_their_table(world: World) -> None:
    for table, column, job, allowed, check in (
        ("waiting", "state", world.waits, WAITING, "waiting_state"),
        ("ends", "state", world.ended, FINAL, "end_state"),
        ("runs", "status", world.ended, set(RunStatus) - {RunStatus.RUNNING}, "run_status"),
    ):
        for state in {*State, *RunStatus, "unknown", "QUEUED", "", "queued "}:
            fresh = {"job": new_id(), column: str(state)}
            if state in allowed:
                await world.copied(table, f"job = '{job}'", **fresh)
            else:
                with pytest.raises(asyncpg.CheckViolationError, match=check):
                    await world.copied(table, f"job = '{job}'", **fresh)


async def test_queue_is_held_once(world: World) -> None:
    with pytest.raises(asyncpg.UniqueViolationError, match="reservations_active"):
        await world.copied("reservations", "queue = 'held'", id=new_id(), seq=424242)


async def test_reservation_that_is_active_has_not_ended(world: World) -> None:
    fresh = {"id": new_id(), "seq": 424242, "queue": "other"}
    with pytest.raises(asyncpg.CheckViolationError, match="reservation_end"):
        await world.copied("reservations", "queue = 'held'", ended_at=1, **fresh)
    with pytest.raises(asyncpg.CheckViolationError, match="reservation_end"):
        await world.copied("reservations", "queue = 'held'", status="released", **fresh)


async def test_key_and_slot_have_one_holder(world: World) -> None:
    for table in ("keys", "slots"):
        with pytest.raises(asyncpg.UniqueViolationError):
            await world.copied(table, f"job = '{world.ended}'", job=new_id())


@pytest.mark.parametrize(
    ("column", "value", "check"),
    [
        ("type", "a b", "type_name"),
        ("type", "", "type_name"),
        ("name", "x" * 129, "job_name"),
        ("queue", "ü", "queue_name"),
        ("delivery", "broadcast", "known_delivery"),
        ("params", f'"{"x" * 262144}"', "params_size"),
        ("max_attempts", 0, "attempts"),
    ],
)
async def test_job_that_nobody_could_run_is_refused(
    world: World, column: str, value: Any, check: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=check):
        await world.copied(
            "jobs", f"id = '{world.waits}'", id=new_id(), seq=1 << 40, **{column: value}
        )
