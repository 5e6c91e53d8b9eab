"""S1: the Job. What each of its fields is, when it is set, and that the database keeps it so."""
# ruff: noqa: S608 - the words that make up these statements are ours

import uuid
from pathlib import Path

import pytest

from outlast import InvalidJob, Outlast, TypeNotFound
from outlast.clock import to_micros
from outlast.core.delivery import Delivery
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    LOST,
    SECOND,
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    make_job,
    put,
    settle,
    started,
    take,
)

from .app_helpers import drain, jobs_of, live
from .crashing import wrecks
from .database_file import Sql

FROZEN = "outlast: a job is frozen at its first claim"
LINKED = {"delivery": Delivery.LINKED}
GROUP = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


@pytest.mark.req("S1-2.1.a")
async def test_job_id_is_a_uuid_the_key_and_never_changes(app: Outlast, sql: Sql) -> None:
    @app.job
    def story() -> None: ...

    handle = await story.enqueue()
    second = await story.enqueue()

    assert uuid.UUID(handle.id).version == 7
    assert sql.refuses(f"UPDATE outlast_jobs SET id = '{uuid.uuid4()}'") == FROZEN
    sql.refuses(
        "INSERT INTO outlast_jobs (id, type, name, queue, delivery, params, created_at)"
        f" VALUES ('{second.id}', 'story', 'story', 'default', 'lease', '{{}}', 1)"
    )


@pytest.mark.req("S1-2.1.d")
async def test_group_id_is_stored_and_never_changes(app: Outlast, sql: Sql) -> None:
    @app.job
    def story() -> None: ...

    grouped = await story.options(group_id=GROUP).enqueue()
    alone = await story.enqueue()

    assert (await grouped.read()).group_id == GROUP
    assert (await alone.read()).group_id is None
    for value in ("NULL", f"'{uuid.uuid4()}'"):
        statement = f"UPDATE outlast_jobs SET group_id = {value} WHERE group_id IS NOT NULL"
        assert sql.refuses(statement) == FROZEN


@pytest.mark.req("S1-2.1.d")
async def test_member_of_a_group_has_its_id_and_never_leaves_it(app: Outlast, sql: Sql) -> None:
    @app.job
    def story() -> None: ...

    group = await app.groups.start([story.bind(), story.bind()])

    assert {job.group_id for job in await group.jobs()} == {group.id}
    for change in ("group_id = NULL", "member_of = NULL", "member_of = member_of + 1"):
        assert sql.refuses(f"UPDATE outlast_jobs SET {change}") == FROZEN


@pytest.mark.req("S1-2.1.e")
async def test_both_types_are_accepted_and_never_change(app: Outlast, sql: Sql) -> None:
    @app.job
    def story() -> None: ...
    @app.job
    def research() -> None: ...

    handles = [await story.enqueue(), await research.enqueue()]

    assert [(await handle.read()).type for handle in handles] == ["story", "research"]
    assert sql.refuses("UPDATE outlast_jobs SET type = 'poem'") == FROZEN
    assert sql.refuses("UPDATE outlast_jobs SET type = 'story'") == FROZEN


@pytest.mark.req("S1-2.1.e", "S2-0.c")
async def test_a_type_this_app_does_not_know_is_refused_at_enqueue(
    app: Outlast, store: SqliteStore, tmp_path: Path
) -> None:
    stranger = live(tmp_path / "other.db")

    @app.job
    def story() -> None: ...
    @stranger.job
    def poem() -> None: ...

    with pytest.raises(TypeNotFound, match=r"poem.*story"):
        app.registry.get("poem")
    with pytest.raises((TypeNotFound, InvalidJob), match="poem"):
        await app.enqueue_many([story.bind(), poem.bind()])

    assert [job.type for job in await jobs_of(store)] in ([], ["story"])


@pytest.mark.req("S1-2.1.j")
async def test_retry_of_is_set_on_a_retry_and_never_changes(store: SqliteStore, sql: Sql) -> None:
    first = await ended(store, FAILED, **LINKED)
    [_, retry] = await jobs_of(store)

    assert ((await job_of(store, first)).retry_of, retry.retry_of) == (None, first)
    assert sql.refuses("UPDATE outlast_jobs SET retry_of = NULL, root = NULL") == FROZEN
    assert sql.refuses("UPDATE outlast_jobs SET retry_of = 2, root = 2 WHERE seq = 1") == FROZEN


@pytest.mark.req("S1-2.1.k", "S1-2.1.l")
async def test_created_at_and_queued_at_are_set_by_the_insert_and_never_change(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    job_id = await put(store, delay=SECOND)
    clock.advance("1h")
    claim = await take(store)
    await settle(store, claim, SUCCEEDED)

    job = await job_of(store, job_id)
    assert (job.created_at, job.queued_at) == (START, START)
    assert sql.refuses("UPDATE outlast_jobs SET created_at = created_at + 1") == FROZEN
    assert await job_of(store, job_id) == job


@pytest.mark.req("S1-2.1.e", "S1-2.1.k")
@pytest.mark.parametrize("change", ["created_at = 1", "type = 'poem'", "delivery = 'lease'"])
async def test_what_the_waiting_row_repeats_of_its_job_never_changes_either(
    change: str, store: SqliteStore, sql: Sql
) -> None:
    await put(store, **LINKED)

    sql.refuses(f"UPDATE outlast_waiting SET {change}")


@pytest.mark.req("S1-2.1.m")
async def test_started_at_is_written_once_by_the_dispatch(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    job_id = await put(store)
    waiting = await job_of(store, job_id)
    clock.advance("1m")

    claim = await take(store)
    while_running = sql.refuses("UPDATE outlast_open_runs SET started_at = started_at + 1")
    clock.advance("1m")
    await settle(store, claim, LOST)
    again = await take(store)

    assert waiting.started_at is None
    assert "of an open run only" in while_running
    assert (await job_of(store, job_id)).started_at == START + 60 * SECOND
    assert await settle(store, again, SUCCEEDED)
    assert (await job_of(store, job_id)).started_at == START + 60 * SECOND
    assert "frozen" in sql.refuses("UPDATE outlast_runs SET started_at = started_at + 1")


@pytest.mark.req("S1-2.1.n")
async def test_finished_at_is_written_once_by_the_close(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    claim = await started(store)
    while_running = await job_of(store, claim.id)
    clock.advance("1m")

    await settle(store, claim, SUCCEEDED)

    assert while_running.finished_at is None
    assert (await job_of(store, claim.id)).finished_at == START + 60 * SECOND
    assert "an end is final" in sql.refuses("UPDATE outlast_ends SET at = at + 1")
    assert "an end goes only with its job" in sql.refuses("DELETE FROM outlast_ends")
    sql.refuses("INSERT INTO outlast_ends SELECT * FROM outlast_ends")


@pytest.mark.req("S1-2.1.p")
async def test_a_new_job_is_inserted_as_queued(app: Outlast, clock: FakeClock, sql: Sql) -> None:
    @app.job
    def story() -> None: ...

    clock.advance("1h")
    handle = await story.enqueue()

    job = await handle.read()
    assert (job.state, job.queued_at) == (State.QUEUED, clock.now())
    assert (job.started_at, job.finished_at, job.token) == (None, None, 0)
    assert sql.rows("SELECT state, token FROM outlast_waiting") == [("queued", 0)]


@pytest.mark.req("S1-2.1.q")
def test_one_write_brings_running_and_started_at(tmp_path: Path) -> None:
    first_time = (
        "SELECT state = 'running', started_at FROM outlast_job_state AS s"
        " WHERE NOT EXISTS (SELECT 1 FROM outlast_runs WHERE job = s.seq)"
    )

    seen = [Sql(wreck.path).rows(first_time) for wreck in wrecks("claim_some", tmp_path)]

    running = [sum(is_running for is_running, _ in rows) for rows in seen]
    started_at = {at for rows in seen for is_running, at in rows if is_running}
    assert {at for rows in seen for is_running, at in rows if not is_running} == {None}
    assert started_at == {to_micros(START + SECOND)}
    assert (running[0], running[-1]) == (0, 3)
    assert set(running) == {0, 3}


@pytest.mark.req("S1-2.1.s")
async def test_a_cancelled_job_is_cancelled_and_never_dispatched(
    app: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    ran = []

    @app.job
    def story(number: int) -> None:
        ran.append(number)

    unwanted = await story.options(priority=9).enqueue(1)
    await story.enqueue(2)

    assert await unwanted.cancel("changed my mind") is State.CANCELLED
    await drain(app)
    clock.advance("1d")

    job = await unwanted.read()
    assert (job.state, job.reason) == (State.CANCELLED, "changed my mind")
    assert ran == [2]
    assert await app.runs(unwanted.id) == []
    assert await claim_order(store, types=["story"]) == []
    assert (await store.add([make_job(id=unwanted.id)]))[0].created is False
