"""`add_within`: a job in the caller's own transaction, however he has set up his connection."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, KeyWindow
from outlast.core.state import State
from outlast.errors import InvalidArgument, StoreBusy
from outlast.store.contract.jobs import Added
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import job_of, make_job, put
from support.crash.sqlite_target import dump

from .sqlite_helpers import Peer

INVOICE = "INSERT INTO invoices VALUES (7)"

SETTINGS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "rows by name": {"row_factory": sqlite3.Row},
    "rows as dicts": {"row_factory": lambda cursor, row: dict(enumerate(row))},
    "text as bytes": {"text_factory": bytes},
    "text by a function": {"text_factory": lambda raw: raw.decode("latin-1").upper()},
    "deferred": {"isolation_level": "DEFERRED"},
    "immediate": {"isolation_level": "IMMEDIATE"},
    "exclusive": {"isolation_level": "EXCLUSIVE"},
}
BY_ITSELF: dict[str, Any] = {"isolation_level": None}
"""Settings under which each statement commits by itself."""
if sys.version_info >= (3, 12):  # connections that begin and commit in the new way
    SETTINGS["in the new way"] = {"autocommit": False}
    BY_ITSELF["autocommit"] = True


@pytest.fixture
def own(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """The caller's connection, and a table of his."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE invoices (number INTEGER)")
    connection.commit()
    yield connection
    connection.close()


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS)
def set_up(own: sqlite3.Connection, request: pytest.FixtureRequest) -> sqlite3.Connection:
    """The caller's connection, set up in one of many ways."""
    for name, value in request.param.items():
        setattr(own, name, value)
    return own


def _invoices(path: Path) -> int:
    return len(dump(path)["invoices"])


async def test_job_exists_when_the_caller_commits(
    store: SqliteStore, path: Path, set_up: sqlite3.Connection
) -> None:
    job = make_job(active_key="inv:7")

    set_up.execute(INVOICE)
    added = await store.add_within(set_up, [job])
    before = await store.get([job.id])
    set_up.commit()

    assert added == [Added(job.id, created=True)]
    assert before == [None]
    assert (await job_of(store, job.id)).state is State.QUEUED
    assert _invoices(path) == 1


async def test_job_never_existed_when_the_caller_rolls_back(
    store: SqliteStore, path: Path, set_up: sqlite3.Connection
) -> None:
    job = make_job()

    set_up.execute(INVOICE)
    await store.add_within(set_up, [job])
    set_up.rollback()

    assert await store.get([job.id]) == [None]
    assert _invoices(path) == 0


async def test_holder_of_a_key_is_answered(store: SqliteStore, set_up: sqlite3.Connection) -> None:
    holder = await put(store, key=DedupeKey(key="k"))

    added = await store.add_within(set_up, [make_job(key=DedupeKey(key="k"))])
    set_up.rollback()

    assert added == [Added(holder, created=False)]


async def test_repeated_enqueue_finds_itself(
    store: SqliteStore, set_up: sqlite3.Connection
) -> None:
    job = make_job()

    added = await store.add_within(set_up, [job, job])
    set_up.commit()

    assert [answer.created for answer in added] == [True, False]


async def test_refused_job_takes_neither_its_neighbours_nor_the_caller_s_rows(
    store: SqliteStore, path: Path, set_up: sqlite3.Connection
) -> None:
    good, bad, last = make_job(), make_job(params="no json"), make_job(key=DedupeKey(key="k"))

    set_up.execute(INVOICE)
    added = await store.add_within(set_up, [good, bad, last])
    set_up.commit()

    assert [answer.created for answer in added] == [True, False, True]
    assert added[1].refused
    assert _invoices(path) == 1


async def test_settings_of_the_caller_s_connection_stay_as_they_were(
    store: SqliteStore, set_up: sqlite3.Connection
) -> None:
    before = (set_up.row_factory, set_up.text_factory, set_up.isolation_level)

    await store.add_within(set_up, [make_job()])
    set_up.rollback()

    assert (set_up.row_factory, set_up.text_factory, set_up.isolation_level) == before


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
async def test_transaction_begun_by_hand_carries_the_job(
    store: SqliteStore, own: sqlite3.Connection, begin: str
) -> None:
    own.isolation_level = None
    job = make_job()

    own.execute(begin)
    await store.add_within(own, [job])
    still_open = own.in_transaction
    own.execute("COMMIT")

    assert still_open
    assert await job_of(store, job.id)


async def test_savepoint_of_the_caller_is_respected(
    store: SqliteStore, own: sqlite3.Connection
) -> None:
    own.isolation_level = None
    kept, dropped = make_job(), make_job()

    own.execute("BEGIN IMMEDIATE")
    await store.add_within(own, [kept])
    own.execute("SAVEPOINT outlast_item")
    await store.add_within(own, [dropped])
    own.execute("ROLLBACK TO outlast_item")
    own.execute("COMMIT")

    assert [job and job.id for job in await store.get([kept.id, dropped.id])] == [kept.id, None]


async def test_foreign_keys_turned_off_by_the_caller_make_no_orphans(
    store: SqliteStore, own: sqlite3.Connection, path: Path
) -> None:
    own.execute("PRAGMA foreign_keys = OFF")
    nobody = JobId("00000000-0000-7000-8000-ffffffffffff")

    [added] = await store.add_within(own, [make_job(retry_of=nobody)])
    own.commit()

    assert added.refused
    assert dump(path)["outlast_jobs"] == []


async def test_connection_through_a_link_is_one_to_this_file(
    store: SqliteStore, path: Path
) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)

    with closing(sqlite3.connect(link)) as own:
        [added] = await store.add_within(own, [make_job()])
        own.commit()

    assert added.created


async def test_connection_to_another_file_is_refused(store: SqliteStore, path: Path) -> None:
    other = sqlite3.connect(path.with_name("other.db"))
    other.execute("ATTACH ? AS jobs", (str(path),))

    with closing(other), pytest.raises(InvalidArgument) as refused:
        await store.add_within(other, [make_job()])

    assert "other.db" in str(refused.value)
    assert str(path) in str(refused.value)


async def test_connection_to_memory_is_refused(store: SqliteStore, path: Path) -> None:
    other = sqlite3.connect(":memory:")

    with (
        closing(other),
        pytest.raises(InvalidArgument, match="connection to memory, not") as refused,
    ):
        await store.add_within(other, [make_job()])

    assert str(path) in str(refused.value)


@pytest.mark.parametrize("thing", [None, "jobs.db", object()], ids=["None", "text", "thing"])
async def test_what_is_no_connection_is_refused(store: SqliteStore, thing: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=rf"tx is a {type(thing).__name__}; give a connection of sqlite3"
    ):
        await store.add_within(thing, [make_job()])


@pytest.mark.parametrize("setting", BY_ITSELF)
async def test_connection_without_a_transaction_is_told_to_begin_one(
    store: SqliteStore, own: sqlite3.Connection, path: Path, setting: str
) -> None:
    setattr(own, setting, BY_ITSELF[setting])

    with pytest.raises(InvalidArgument, match="run BEGIN IMMEDIATE on it first"):
        await store.add_within(own, [make_job()])

    assert dump(path)["outlast_jobs"] == []


async def test_connection_that_cannot_get_the_lock_says_who_has_it(
    store: SqliteStore, own: sqlite3.Connection, path: Path, peer: Peer
) -> None:
    own.execute("PRAGMA busy_timeout = 0")
    peer.ask("lock_file", path)

    with pytest.raises(StoreBusy) as busy:
        await store.add_within(own, [make_job()])

    peer.ask("unlock_file")
    assert str(path) in str(busy.value)


async def test_transaction_that_has_read_an_older_moment_is_told_it_is_too_late(
    store: SqliteStore, own: sqlite3.Connection, path: Path
) -> None:
    own.isolation_level = None
    own.execute("BEGIN")
    own.execute("SELECT count(*) FROM invoices").fetchone()
    await put(store)

    with pytest.raises(StoreBusy):
        await store.add_within(own, [make_job()])

    own.execute("ROLLBACK")
    assert len(dump(path)["outlast_jobs"]) == 1


async def test_waiting_job_takes_the_request_when_the_caller_commits(
    store: SqliteStore, set_up: sqlite3.Connection
) -> None:
    key = DedupeKey(key="k")
    holder = await put(store, params='"old"', key=key)
    job = make_job(params='"new"', key=key, replaces=True)

    set_up.execute(INVOICE)
    added = await store.add_within(set_up, [job])
    before = (await job_of(store, holder)).params
    set_up.commit()

    assert added == [Added(holder, created=False, replaced=True)]
    assert (before, (await job_of(store, holder)).params) == ('"old"', '"new"')


async def test_nothing_is_replaced_or_taken_when_the_caller_rolls_back(
    store: SqliteStore, clock: FakeClock, own: sqlite3.Connection
) -> None:
    window = KeyWindow(key="k", span=timedelta(seconds=1))
    holder = await put(store, params='"old"', key=DedupeKey(key="k"), window=window)
    clock.advance(timedelta(seconds=1))
    replacing = make_job(params='"new"', key=DedupeKey(key="k"), replaces=True)

    own.execute(INVOICE)
    await store.add_within(own, [replacing, make_job(window=window)])
    own.rollback()

    assert (await job_of(store, holder)).params == '"old"'
    assert await store.events(holder) == []
    assert await put(store, window=window)
