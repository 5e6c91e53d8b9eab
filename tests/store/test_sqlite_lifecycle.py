"""Before opening, after closing, and across a fork."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlast.core.decide import succeed
from outlast.core.group import NewGroup
from outlast.core.job import Slot
from outlast.core.reservation import ReservationId
from outlast.core.run import Lease
from outlast.core.run_log import LogWrite
from outlast.core.schedule import Firing, SlotOutcome
from outlast.errors import StoreClosed
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.contract.transfer import StatusChange, TableKind, TransferStage
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    SECOND,
    make_holder,
    make_job,
    make_worker,
    new_id,
    put,
    take_many,
)
from outlast.testing.conformance.reservations import make_reservation
from support.crash.sqlite_target import dump

from .sqlite_helpers import PATIENCE, environment, files, opened

FIRING = Firing(
    schedule_id=new_id(),
    version=1,
    slot=Slot(series="nightly", at=START),
    outcome=SlotOutcome.MISSED,
    planned=START,
    job=None,
    next_slot=None,
    next_trigger_at=None,
)
VERBS: dict[str, Callable[[SqliteStore], Any]] = {
    "add": lambda s: s.add([make_job()]),
    "get": lambda s: s.get([new_id()]),
    "claim": lambda s: take_many(s),
    "apply": lambda s: s.apply([succeed(new_id(), 1, None)]),
    "renew": lambda s: s.renew([Lease(new_id(), 1)], span=LEASE),
    "expired_leases": lambda s: s.expired_leases(limit=1),
    "missed_start_deadline": lambda s: s.missed_start_deadline(limit=1),
    "promote_due": lambda s: s.promote_due(limit=1),
    "peek": lambda s: s.peek("default", limit=1),
    "find": lambda s: s.find(Filter(), limit=1),
    "counts": lambda s: s.counts(),
    "chain": lambda s: s.chain(new_id()),
    "prune": lambda s: s.prune(older_than=HOUR, limit=1),
    "ended_jobs": lambda s: s.ended_jobs(older_than=HOUR, after=None, limit=1),
    "prune_jobs": lambda s: s.prune_jobs([], older_than=HOUR),
    "refusals": lambda s: s.refusals([new_id()]),
    "write_logs": lambda s: s.write_logs([(Lease(new_id(), 1), LogWrite(()))]),
    "log_chunks": lambda s: s.log_chunks(new_id(), limit=1),
    "log_lengths": lambda s: s.log_lengths(new_id()),
    "runs": lambda s: s.runs(new_id()),
    "record_progress": lambda s: s.record_progress([(Lease(new_id(), 1), "1")]),
    "register_worker": lambda s: s.register_worker(make_worker()),
    "heartbeat": lambda s: s.heartbeat(make_holder(), span=LEASE),
    "deregister_worker": lambda s: s.deregister_worker(make_holder()),
    "workers": lambda s: s.workers(),
    "acquire_lock": lambda s: s.acquire_lock("host-1"),
    "free_locks": lambda s: s.free_locks(["host-1"]),
    "attach": lambda s: s.attach(Lease(new_id(), 1), ["a.txt"]),
    "events": lambda s: s.events(new_id()),
    "stream": lambda s: s.stream(limit=1),
    "document": lambda s: s.document("note", "daily"),
    "documents": lambda s: s.documents("note"),
    "swap": lambda s: s.swap("note", "daily", expected=None, value="1"),
    "running_under_other_boots": lambda s: s.running_under_other_boots(besides="boot", limit=1),
    "detached_jobs": lambda s: s.detached_jobs(limit=1),
    "missing_successors": lambda s: s.missing_successors(limit=1),
    "remove_orphans": lambda s: s.remove_orphans(limit=1),
    "set_queue": lambda s: s.set_queue(Queue(name="lane")),
    "renumber": lambda s: s.renumber("lane"),
    "queue": lambda s: s.queue("lane"),
    "queues": lambda s: s.queues(),
    "reserve": lambda s: s.reserve(make_reservation(), make_job()),
    "extend_reservation": lambda s: s.extend_reservation(ReservationId(new_id()), span=LEASE),
    "reservation": lambda s: s.reservation(ReservationId(new_id())),
    "reservations": lambda s: s.reservations(limit=1),
    "expired_reservations": lambda s: s.expired_reservations(limit=1),
    "release_stale_reservations": lambda s: s.release_stale_reservations(limit=1),
    "pause": lambda s: s.pause("lane", reason=None, span=None),
    "resume": lambda s: s.resume("lane"),
    "add_group": lambda s: s.add_group(NewGroup(id=new_id(), total=1)),
    "seal_group": lambda s: s.seal_group(new_id()),
    "stop_group": lambda s: s.stop_group(new_id(), reason=None),
    "group": lambda s: s.group(new_id()),
    "find_groups": lambda s: s.find_groups(limit=1),
    "groups_finished": lambda s: s.groups_finished([new_id()]),
    "closing_groups": lambda s: s.closing_groups(limit=1),
    "remaining_members": lambda s: s.remaining_members(new_id(), limit=1),
    "mark_groups_closed": lambda s: s.mark_groups_closed(limit=1),
    "expire_groups": lambda s: s.expire_groups(older_than=HOUR, limit=1),
    "job_count": lambda s: s.job_count(),
    "audit_jobs": lambda s: s.audit_jobs(after=0, limit=1),
    "dangling_records": lambda s: s.dangling_records(limit=1),
    "overview": lambda s: s.overview(span=HOUR),
    "wait_facts": lambda s: s.wait_facts(new_id()),
    "describe": lambda s: s.describe(),
    "begin": lambda s: s.begin(within=SECOND),
    "set_schedule": lambda s: s.set_schedule(new_id(), expected=1, value=None),
    "schedule": lambda s: s.schedule("nightly"),
    "schedules": lambda s: s.schedules(limit=1),
    "due_schedules": lambda s: s.due_schedules(limit=1),
    "fire": lambda s: s.fire([FIRING]),
    "slots": lambda s: s.slots("nightly", limit=1),
    "slot_rows": lambda s: s.slot_rows("nightly", [START]),
    "transfer_status": lambda s: s.transfer_status(),
    "change_transfer_status": lambda s: s.change_transfer_status(
        StatusChange(stage=TransferStage.FILLING, other="sqlite:////a.db", transfer_id="me")
    ),
    "dump": lambda s: s.dump(TableKind.JOBS, limit=1),
    "load": lambda s: s.load(TableKind.QUEUES, [["lane", "scheduled", 1, None, None, None, None]]),
    "running_names": lambda s: s.running_names(["nightly"]),
}
NEED_NOT_BE_OPEN = {
    "open",
    "close",
    "subscribe",
    "capabilities",
    "exists",
    "connection_warnings",
    "health_warnings",
    "now",
}


def test_every_verb_of_the_contract_is_tried_below() -> None:
    contract = {name for name in dir(Store) if not name.startswith("_")}

    assert contract - NEED_NOT_BE_OPEN <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
async def test_store_is_opened_before_it_is_used(path: Path, verb: str) -> None:
    store = SqliteStore(path)

    with pytest.raises(StoreClosed, match=r"is not open; call open\(\) first") as closed:
        await VERBS[verb](store)

    assert str(path) in str(closed.value)
    assert files(path) == []


@pytest.mark.parametrize("verb", VERBS)
async def test_store_that_was_closed_does_nothing(path: Path, verb: str) -> None:
    async with opened(path) as store:
        await put(store)
    before = dump(path)

    with pytest.raises(StoreClosed):
        await VERBS[verb](store)

    assert dump(path) == before


@pytest.mark.parametrize("same_file", [True, False])
async def test_enqueue_within_a_transaction_needs_an_open_store(
    tmp_path: Path, same_file: bool
) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    own = sqlite3.connect(store.path if same_file else tmp_path / "other.db")

    with closing(own), pytest.raises(StoreClosed):
        await store.add_within(own, [make_job()])


async def test_closing_twice_and_closing_unopened_are_fine(path: Path) -> None:
    store = SqliteStore(path)
    await store.close()
    await store.open()

    await asyncio.gather(store.close(), store.close())
    await store.close()

    assert files(path) == [""]


async def test_closed_store_can_be_opened_again(path: Path) -> None:
    async with opened(path) as store:
        job_id = await put(store)

    await store.open()
    [claim] = await take_many(store)
    await store.close()

    assert claim.id == job_id


async def test_opening_twice_is_opening_once(path: Path) -> None:
    async with opened(path) as store:
        await store.open()
        await put(store)

    assert files(path) == [""]


async def test_opening_twice_at_the_same_time_is_opening_once(path: Path) -> None:
    store = SqliteStore(path)

    await asyncio.gather(store.open(), store.open(), store.open())

    await put(store)
    await store.close()
    assert files(path) == [""], "a connection was left open"


async def test_closed_store_leaves_no_thread_behind(path: Path) -> None:
    before = set(threading.enumerate())
    async with opened(path) as store:
        await put(store)
        await store.counts()
        await (await store.begin(within=SECOND)).rollback()

    left = set(threading.enumerate()) - before

    assert [thread.name for thread in left if thread.name.startswith("outlast-")] == []


def _fork(path: Path, part: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("forking.py")), path, part],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.slow
def test_store_inherited_through_a_fork_is_refused_and_harms_nobody(path: Path) -> None:
    report = _fork(path, "uses_inherited")

    tried = report["child"]
    assert tried.pop("close") == "done"
    assert set(tried) == {"add", "claim", "counts", "find", "begin"}
    for answer in tried.values():
        assert answer.startswith("StoreClosed: ")
        assert str(path) in answer
        assert "before a fork; open a store of your own" in answer
    assert set(report["found"]) == set(report["stored"])
    assert len(dump(path)["outlast_jobs"]) == 3


@pytest.mark.slow
def test_what_a_forked_child_stored_by_itself_outlives_its_parent_s_store(path: Path) -> None:
    report = _fork(path, "opens_own")

    acknowledged = {*report["stored"], *report["child"]["stored"]}

    lost = acknowledged - set(report["found"])
    assert lost == set(), "acknowledged, and gone"
    assert dump(path)
