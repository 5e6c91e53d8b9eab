"""What `verify` finds in a file that somebody has broken by hand, and that it never cries wolf."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outlast.core.audit.violation import ViolationCode
from outlast.store.sqlite.statements import statements
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import make_job, put
from outlast.verify import MAX_REPORTED, Report, verify

from .sqlite_helpers import Trace, Worlds, opened
from .violations import OTHER, QUEUED, PlantedViolation, RowEditor, plant, sound_world
from .violations_between_jobs import LINK_PLANTS
from .violations_within_jobs import RUN_PLANTS

PLANTS = (*RUN_PLANTS, *LINK_PLANTS)


async def _verified(path: Path) -> Report:
    async with opened(path, clock=FakeClock()) as store:
        return await verify(store)


def _ids(path: Path) -> dict[int, str]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT seq, id FROM outlast_jobs"))


def test_every_violation_is_planted() -> None:
    """Of those that a database can have: it has no intents, nor bodies beside its jobs."""
    assert {planted.code for planted in PLANTS} == set(ViolationCode) - {
        ViolationCode.SCHEDULE_INDEX_MISMATCH,
        ViolationCode.INDEX_MISMATCH,
        ViolationCode.UNFINISHED_INTENT,
        ViolationCode.QUARANTINED,
        ViolationCode.BODY_MISSING,
        ViolationCode.DANGLING_BODY,
    }


async def test_world_is_sound_before_it_is_broken(worlds: Worlds) -> None:
    report = await _verified(worlds.copy(sound_world))

    assert report.violations == ()
    assert (report.jobs, report.runs, report.events) == (10, 7, 5)


@pytest.mark.parametrize("planted", PLANTS, ids=lambda p: f"{p.code}-{p.rows[0]}")
async def test_violation_is_found_with_its_rows(worlds: Worlds, planted: PlantedViolation) -> None:
    path = worlds.copy(sound_world)
    ids = _ids(path)

    plant(path, planted.do)

    report = await _verified(path)
    [found] = [each for each in report.violations if each.code is planted.code]
    named = [re.sub(r"\{(\d+)\}", lambda m: ids[int(m[1])], row) for row in planted.rows]
    assert list(found.rows) == named
    assert found.job_id == (planted.job and ids[planted.job])
    assert {each.code for each in report.violations} == {planted.code, *planted.also}
    assert found.what
    assert found.repair


async def test_chain_that_goes_on_keeps_its_active_key(worlds: Worlds) -> None:
    path = worlds.copy(sound_world)

    def do(vandal: RowEditor) -> None:
        root = vandal.id(4)
        vandal.insert("outlast_keys", scope="active", key="x", bucket="", job_id=root)

    plant(path, do)

    assert (await _verified(path)).is_sound, "its last job still waits"


@pytest.mark.parametrize(
    ("mode", "queued", "other"),
    [("sequential", "queued", "blocked"), ("parallel", "queued", "scheduled")],
)
async def test_group_whose_members_take_turns_is_sound(
    worlds: Worlds, mode: str, queued: str, other: str
) -> None:
    path = worlds.copy(sound_world)

    plant(path, lambda v: v.group(mode, queued=queued, other=other))

    assert (await _verified(path)).is_sound


@pytest.mark.parametrize("change", ["sealed_at = NULL", "closing = 'stop'"])
async def test_group_that_fills_or_closes_may_have_members_that_nothing_unblocks(
    worlds: Worlds, change: str
) -> None:
    path = worlds.copy(sound_world)

    def do(vandal: RowEditor) -> None:
        vandal.group("sequential", queued="blocked", other="blocked")
        vandal.run(f"UPDATE outlast_groups SET {change}")  # noqa: S608 - ours

    plant(path, do)

    assert (await _verified(path)).is_sound


async def test_reservation_of_a_job_that_waits_is_sound(worlds: Worlds) -> None:
    path = worlds.copy(sound_world)

    def do(vandal: RowEditor) -> None:
        vandal.reserve(1, vandal.id(QUEUED), "queued")
        vandal.reserve(2, vandal.id(OTHER), "other")
        vandal.reserve(3, "pruned long ago", "other", "expired")

    plant(path, do)

    assert (await _verified(path)).is_sound


async def test_report_names_so_many_and_counts_the_rest(store: SqliteStore, path: Path) -> None:
    number = MAX_REPORTED + 5
    await store.add([make_job() for _ in range(number)])
    plant(path, lambda v: v.run("DELETE FROM outlast_waiting"))

    report = await verify(store)

    assert (len(report.violations), report.found, report.is_sound) == (MAX_REPORTED, number, False)


async def test_many_strays_of_one_kind_hide_no_other(store: SqliteStore, path: Path) -> None:
    job_id = await put(store)

    def do(vandal: RowEditor) -> None:
        for number in range(5):
            vandal.event(100 + number, "cancelled")
            key = f"k{number}"
            vandal.insert("outlast_keys", scope="active", key=key, bucket="", job_id="nobody")
        vandal.copy("outlast_waiting", "job", 1, job=99)

    plant(path, do)

    kinds = [stray.kind for stray in await store.dangling_records(limit=2)]
    assert kinds == ["event", "event", "place", "key", "key"], job_id


async def test_a_page_is_one_statement_so_that_it_is_one_moment(
    store: SqliteStore, trace: Trace
) -> None:
    await put(store)
    trace.steps.clear()

    await store.audit_jobs(after=0, limit=10)

    assert trace.done == ["audit.jobs"]
    assert trace.count("audit.jobs") == 1


def test_a_page_holds_nothing_that_somebody_asked_or_answered() -> None:
    text = statements()["audit.jobs"]

    assert re.findall(r"\b\w+\.params\b[^)]", text) == []
    assert re.findall(r"\b\w+\.(?:error|detail|log_path|progress|artifacts)\b", text) == []
    assert re.findall(r"\b\w+\.result\b(?! IS NOT NULL)", text) == []
