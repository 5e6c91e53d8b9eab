"""`add_within` on PostgreSQL: a job in the caller's own transaction, whichever driver it is of."""

import asyncio
import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, KeyWindow
from outlast.core.ordering import Ordering
from outlast.core.state import State
from outlast.errors import StoreBusy
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification
from outlast.store.contract.queues import Queue
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import job_of, make_job, put
from store.pg_callers import CALLERS, INVOICE, Caller
from store.pg_waiting import until_somebody_waits

NOBODY = JobId("00000000-0000-7000-8000-ffffffffffff")


async def _invoices(outside: asyncpg.Connection) -> int:
    number: int = await outside.fetchval("SELECT count(*) FROM invoices")
    return number


async def test_job_exists_when_the_caller_commits(
    store: PostgresStore, caller: Caller, outside: asyncpg.Connection
) -> None:
    job = make_job(active_key="inv:7")

    await caller.run(INVOICE)
    added = await store.add_within(caller.tx, [job])
    before = await store.get([job.id])
    await caller.commit()

    assert added == [Added(job.id, created=True)]
    assert before == [None]
    assert (await job_of(store, job.id)).state is State.QUEUED
    assert await _invoices(outside) == 1


async def test_job_that_is_the_caller_s_first_statement_is_committed_too(
    store: PostgresStore, caller: Caller
) -> None:
    job = make_job()

    await store.add_within(caller.tx, [job])
    await caller.commit()

    assert (await job_of(store, job.id)).state is State.QUEUED


async def test_job_never_existed_when_the_caller_rolls_back(
    store: PostgresStore, caller: Caller, outside: asyncpg.Connection
) -> None:
    job = make_job()

    await caller.run(INVOICE)
    await store.add_within(caller.tx, [job])
    await caller.rollback()

    assert await store.get([job.id]) == [None]
    assert await _invoices(outside) == 0


async def test_keys_hold_inside_the_caller_s_transaction_too(
    store: PostgresStore, caller: Caller
) -> None:
    holder = await put(store, key=DedupeKey(key="k"))
    again, other = make_job(key=DedupeKey(key="k")), make_job(key=DedupeKey(key="ü'\"%s :now"))

    added = await store.add_within(caller.tx, [again, other, other])
    await caller.commit()

    assert added == [
        Added(holder, created=False),
        Added(other.id, created=True),
        Added(other.id, created=False),
    ]
    assert await store.add([make_job(key=other.key)]) == [Added(other.id, created=False)]


BAD: dict[str, dict[str, Any]] = {
    "params": {"params": "no json"},
    "large params": {"params": '"' + "x" * 300_000 + '"'},
    "NUL": {"group_id": "a\0b"},
    "surrogate": {"params": '"\ud800"'},
    "name": {"name": "two words"},
    "priority": {"priority": 10**30},
    "retry_of": {"retry_of": NOBODY},
    "id": {"id": JobId("no-id")},
}


async def test_refused_jobs_take_neither_their_neighbours_nor_the_caller_s_rows(
    store: PostgresStore, caller: Caller, outside: asyncpg.Connection
) -> None:
    good = [make_job(key=DedupeKey(key=name)) for name in BAD]
    bad = [make_job(**over) for over in BAD.values()]

    await caller.run(INVOICE)
    added = await store.add_within(
        caller.tx, [job for pair in zip(good, bad, strict=True) for job in pair]
    )
    await caller.run(INVOICE)
    await caller.commit()

    assert [answer.created for answer in added] == [True, False] * len(BAD)
    assert all(answer.refused for answer in added[1::2])
    assert await _invoices(outside) == 2


async def _all_is_heard(store: PostgresStore, received: "asyncio.Queue[Notification]") -> None:
    """Wait until the store listens: somebody else's commit is heard."""
    reported: set[str] = set()
    async with asyncio.timeout(120):
        while "known" not in reported:
            await put(store, queue="known")
            with suppress(TimeoutError):
                reported |= (await asyncio.wait_for(received.get(), 0.1)).queues


async def test_workers_are_told_when_the_caller_commits_and_not_before(
    store: PostgresStore, caller: Caller
) -> None:
    received: asyncio.Queue[Notification] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    stop = store.subscribe(lambda hint: loop.call_soon_threadsafe(received.put_nowait, hint))
    await _all_is_heard(store, received)

    await store.add_within(caller.tx, [make_job(queue="lane")])
    await put(store, queue="meanwhile")
    reported: set[str] = set()
    async with asyncio.timeout(120):
        while "meanwhile" not in reported:
            reported |= (await received.get()).queues
        assert "lane" not in reported
        await caller.commit()
        while "lane" not in reported:
            reported |= (await received.get()).queues
    stop()


async def test_places_of_an_ordered_queue_are_kept_till_the_caller_commits(
    store: PostgresStore, caller: Caller
) -> None:
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION))
    first, second, third = (make_job(queue="lane") for _ in range(3))

    await store.add_within(caller.tx, [first, second])
    adding = asyncio.create_task(store.add([third]))
    await until_somebody_waits(store.address.dsn)
    waited = not adding.done()
    await caller.commit()
    await adding

    assert waited
    positions = [(await job_of(store, job.id)).position for job in (first, second, third)]
    assert positions == [100, 200, 300]


async def test_key_taken_meanwhile_is_waited_for_and_answered(
    store: PostgresStore, caller: Caller, outside: asyncpg.Connection
) -> None:
    mine = make_job(key=DedupeKey(key="k"))
    await caller.run(INVOICE)
    other = await asyncpg.connect(store.address.dsn)
    async with other.transaction():
        [first] = await store.add_within(other, [make_job(key=DedupeKey(key="k"))])
        adding = asyncio.create_task(store.add_within(caller.tx, [mine]))
        await until_somebody_waits(store.address.dsn)
        waited = not adding.done()

    assert waited
    assert await adding == [Added(first.id, created=False)]
    await caller.commit()
    await other.close()
    assert await _invoices(outside) == 1


@pytest.mark.parametrize("connect", ["asyncpg", "psycopg"])
async def test_holder_that_the_caller_s_snapshot_does_not_show_is_told_of(
    store: PostgresStore, own_url: str, outside: asyncpg.Connection, connect: str
) -> None:
    async with CALLERS[connect](own_url) as caller:
        await caller.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await caller.run("SELECT count(*) FROM invoices")
        await put(store, key=DedupeKey(key="k"))

        with pytest.raises(StoreBusy, match="begin a new transaction"):
            await store.add_within(caller.tx, [make_job(key=DedupeKey(key="k"))])

        await caller.run(INVOICE)
        await caller.commit()
    assert await _invoices(outside) == 1


async def test_savepoint_of_the_caller_is_respected(store: PostgresStore, caller: Caller) -> None:
    kept, dropped = make_job(), make_job()

    await store.add_within(caller.tx, [kept])
    await caller.run("SAVEPOINT outlast_item")
    await store.add_within(caller.tx, [dropped])
    await caller.run("ROLLBACK TO SAVEPOINT outlast_item")
    await caller.commit()

    assert [job and job.id for job in await store.get([kept.id, dropped.id])] == [kept.id, None]


async def test_what_an_asyncpg_connection_was_taught_makes_no_difference(
    store: PostgresStore, own_url: str
) -> None:
    own = await asyncpg.connect(own_url)
    for name in ("json", "uuid"):
        await own.set_type_codec(
            name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog", format="text"
        )
    job = make_job(params='{"a":1}', retry_of=None, key=DedupeKey(key="k"))

    async with own.transaction():
        [added] = await store.add_within(own, [job])
    await own.close()

    assert added.created
    assert (await job_of(store, job.id)).params == '{"a":1}'


async def test_what_a_psycopg_connection_was_taught_makes_no_difference(
    store: PostgresStore, own_url: str
) -> None:
    class Shouting(psycopg.types.string.TextLoader):  # type: ignore[name-defined]
        def load(self, data: Any) -> str:
            return str(super().load(data)).upper()

    own = psycopg.connect(own_url, row_factory=psycopg.rows.dict_row)  # type: ignore[attr-defined]
    own.adapters.register_loader("text", Shouting)
    own.cursor_factory = psycopg.RawCursor
    holder = await put(store, key=DedupeKey(key="k"))

    added = await store.add_within(own, [make_job(key=DedupeKey(key="k")), make_job()])
    own.commit()
    factory, loads = own.cursor_factory, own.execute("SELECT 'a'::text AS a").fetchone()
    own.close()

    assert [answer.id for answer in added][:1] == [holder]
    assert added[1].created
    assert (factory, loads) == (psycopg.RawCursor, {"a": "A"})


async def test_nothing_of_ours_stays_on_the_caller_s_connection(
    store: PostgresStore, own_url: str
) -> None:
    look = (
        "SELECT (SELECT count(*) FROM pg_prepared_statements), current_setting('search_path'), "
        "current_setting('enable_seqscan'), current_setting('statement_timeout')"
    )
    with psycopg.connect(own_url) as own:
        before = own.execute(look).fetchone()
        for _ in range(8):
            await store.add_within(own, [make_job()])
        own.commit()

        assert own.execute(look).fetchone() == before


async def test_enqueue_cancelled_while_it_waits_leaves_the_connection_to_its_owner(
    store: PostgresStore, own_url: str
) -> None:
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION))
    first = await asyncpg.connect(own_url)
    own = psycopg.connect(own_url, options="-c lock_timeout=2s")
    async with first.transaction():
        await store.add_within(first, [make_job(queue="lane")])
        adding = asyncio.create_task(store.add_within(own, [make_job(queue="lane")]))
        await until_somebody_waits(store.address.dsn)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding

        assert own.execute("SELECT 1").fetchone() == (1,)
    await first.close()
    own.close()


async def test_waiting_job_takes_the_request_when_the_caller_commits(
    store: PostgresStore, caller: Caller
) -> None:
    window = KeyWindow(key="k")
    due: dict[str, Any] = {"window": window, "replaces": True, "delay": timedelta(hours=1)}
    holder = await put(store, params='"old"', **due)
    new, other = (
        make_job(params='"new"', **due),
        make_job(
            window=KeyWindow(key="o"),
            **{name: value for name, value in due.items() if name != "window"},
        ),
    )

    added = await store.add_within(caller.tx, [new, other])
    before = (await job_of(store, holder)).params
    await caller.commit()

    assert added == [Added(holder, created=False, replaced=True), Added(other.id, created=True)]
    assert (before, (await job_of(store, holder)).params) == ('"old"', '"new"')


async def test_nothing_is_replaced_when_the_caller_rolls_back(
    store: PostgresStore, caller: Caller
) -> None:
    key = DedupeKey(key="k")
    holder = await put(store, params='"old"', key=key)

    await store.add_within(caller.tx, [make_job(params='"new"', key=key, replaces=True)])
    await caller.rollback()

    assert (await job_of(store, holder)).params == '"old"'
