"""Numbered steps, forward only, all or nothing, whoever comes first."""

# ruff: noqa: ASYNC240 - a test may wait for the disk

import re
import sqlite3
from importlib import resources
from pathlib import Path

import pytest

from outlast.errors import OperatorError
from outlast.store.sqlite import migrate
from outlast.store.sqlite.migrate import migrations
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import claim_order, ended, put, started
from support.crash.sqlite_target import dump

from .sqlite_helpers import Peer, opened, raw

ROUNDS = 10
NEWEST = max(migrations())
GOOD = "CREATE TABLE outlast_notes (job INTEGER REFERENCES outlast_jobs (seq), note TEXT);\n"
BAD = f"{GOOD}CREATE INDEX outlast_noted ON outlast_notes (nothing);\n"


def _next_step(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """As if the next Outlast brought one more step."""
    steps = {**migrations(), NEWEST + 1: script}
    monkeypatch.setattr(migrate, "migrations", lambda: steps)


def _version(path: Path) -> int:
    with raw(path) as outsider:
        [version] = outsider.execute("SELECT version FROM outlast_meta").fetchone()
    return int(version)


def test_steps_are_numbered_from_one_without_gaps() -> None:
    folder = resources.files(migrate.__package__ or "") / "migrations"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))

    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", name) for name in names)
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    assert list(migrations()) == list(range(1, len(names) + 1))


def test_no_step_ends_the_transaction_it_runs_in() -> None:
    for script in migrations().values():
        words = re.sub(r"--.*|'[^']*'", "", script)

        assert not re.search(
            r"\b(COMMIT|ROLLBACK|VACUUM|PRAGMA|BEGIN\s*(;|[TDIE]\w+(ION|RED|ATE|IVE)\b))", words
        )


async def test_new_file_has_the_newest_schema(path: Path) -> None:
    async with opened(path):
        pass

    assert _version(path) == NEWEST


async def test_opening_again_changes_nothing(path: Path) -> None:
    async with opened(path) as store:
        await put(store)
    before = path.read_bytes()

    async with opened(path):
        pass

    assert path.read_bytes() == before


async def test_older_file_is_brought_up_and_keeps_all_it_has(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        await ended(store)
        await started(store)
        waiting = await put(store)
    before = dump(path)
    _next_step(monkeypatch, GOOD)

    async with opened(path) as store:
        kept = await claim_order(store)

    after = dump(path)
    assert kept == [waiting]
    assert _version(path) == NEWEST + 1
    assert after["outlast_notes"] == []
    assert after["outlast_jobs"] == before["outlast_jobs"]
    assert after["outlast_ends"] == before["outlast_ends"]


async def test_step_that_fails_half_way_leaves_a_usable_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        waiting = await put(store)
    before = path.read_bytes()
    with monkeypatch.context() as next_version:
        _next_step(next_version, BAD)

        with pytest.raises(OperatorError, match="nothing"):
            await SqliteStore(path).open()

    assert path.read_bytes() == before
    async with opened(path) as store:
        assert await claim_order(store) == [waiting]


async def test_step_that_failed_is_done_when_it_is_mended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path):
        pass
    _next_step(monkeypatch, BAD)
    store = SqliteStore(path)
    with pytest.raises(OperatorError):
        await store.open()

    _next_step(monkeypatch, GOOD)
    await store.open()
    await store.close()

    assert _version(path) == NEWEST + 1


async def test_first_step_that_fails_leaves_an_empty_file_that_becomes_a_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(migrate, "migrations", lambda: {1: "CREATE TABLE a (b);\nNONSENSE;\n"})
        with pytest.raises(OperatorError):
            await SqliteStore(path).open()
    with raw(path) as outsider:
        left = outsider.execute("SELECT name FROM sqlite_schema").fetchall()

    async with opened(path) as store:
        job_id = await put(store)

        assert left == []
        assert await claim_order(store) == [job_id]


@pytest.mark.slow
def test_two_processes_open_a_new_file_at_the_same_moment(
    tmp_path: Path, peer: Peer, second_peer: Peer
) -> None:
    answers = []

    for number in range(ROUNDS):
        for process in (peer, second_peer):
            process.tell("open_and_close", tmp_path / f"{number}.db")
        answers += [process.answer() for process in (peer, second_peer)]

    assert answers == [None] * 2 * ROUNDS
    for number in range(ROUNDS):
        assert _version(tmp_path / f"{number}.db") == NEWEST
        assert len(dump(tmp_path / f"{number}.db")["outlast_meta"]) == 1


async def test_second_opener_finds_the_work_of_the_first_done(path: Path, peer: Peer) -> None:
    with raw(path) as first:
        first.execute("PRAGMA journal_mode = WAL")
    assert peer.ask("open", path) is None
    theirs = peer.ask("add", 1)

    async with opened(path) as store:
        assert await claim_order(store) == theirs

    peer.ask("close")


def test_schema_is_what_sqlite_itself_can_read_back() -> None:
    once, twice = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    for script in migrations().values():
        once.executescript(script)

    twice.executescript("\n".join(once.iterdump()))

    assert list(twice.iterdump()) == list(once.iterdump())
    once.close()
    twice.close()
