"""S0: what a worker that starts again makes of the rows its earlier self left running."""

from pathlib import Path
from typing import Any

import pytest

from outlast.core.delivery import Delivery
from outlast.core.run import Claim, LeaseHolder
from outlast.core.state import RunStatus, State
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.telemetry import InMemoryMetrics, subscribe
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    LEASE,
    MANY,
    SECOND,
    TYPE,
    job_of,
    last_run,
    new_id,
    put,
)
from outlast.worker.maintenance.recovery import Recovery, RecoveryResult

from .app_programs import hold_a_brief
from .child_process import Child
from .database_file import Sql, opened

EARLIER = LeaseHolder(instance_id="news-1", boot_id="boot-1")
NOW = LeaseHolder(instance_id="news-1", boot_id="boot-2")
ANOTHER = LeaseHolder(instance_id="news-2", boot_id="boot-3")
RUNNING = Filter(states=frozenset({State.RUNNING}))


async def start(store: SqliteStore, **over: Any) -> RecoveryResult:
    options: dict[str, Any] = {"scope": "instance", "new_id": new_id, **over}
    return await Recovery(store, NOW, **options).run_once()


async def left_running(store: SqliteStore, holder: LeaseHolder, name: str) -> Claim:
    """A `once` job of that name that its worker has claimed and not ended."""
    await put(store, delivery=Delivery.ONCE, name=name, queue=name)
    [claim] = await store.claim(holder, queue=name, types=[TYPE], limit=1, lease=LEASE)
    return claim


@pytest.mark.req("S0-7.1.b")
async def test_only_rows_of_its_own_earlier_boots_are_taken(store: SqliteStore) -> None:
    own = await left_running(store, EARLIER, "ingest")
    others = await left_running(store, ANOTHER, "digest")

    done = await start(store)

    assert done == RecoveryResult(lost=1)
    assert (await job_of(store, own.id)).state is State.FAILED
    assert (await job_of(store, others.id)).state is State.RUNNING
    assert (await store.renew([others.lease], span=LEASE))[0].held, "the other one works on"


@pytest.mark.req("S0-7.1.c")
@pytest.mark.parametrize(
    ("policy", "at_once", "when_lapsed"),
    [
        ("fail", "startup_recovery", "startup_recovery"),
        ("threshold", None, "lease_expired"),
        ("leave", None, None),
    ],
)
async def test_rows_of_an_unknown_instance_follow_the_policy(
    store: SqliteStore, clock: FakeClock, policy: str, at_once: str | None, when_lapsed: str | None
) -> None:
    claim = await left_running(store, ANOTHER, "digest")
    known = {"known": lambda name: name == NOW.instance_id, "unknown": policy}

    await start(store, **known)
    soon = await last_run(store, claim.id)
    clock.advance(LEASE)
    await start(store, **known)
    late = await last_run(store, claim.id)

    assert soon.reason == at_once
    assert late.reason == when_lapsed
    assert (await job_of(store, claim.id)).state is (State.FAILED if when_lapsed else State.RUNNING)


@pytest.mark.req("S0-7.1.c")
async def test_a_row_without_any_instance_cannot_be_written(store: SqliteStore, sql: Sql) -> None:
    await left_running(store, EARLIER, "ingest")

    assert "NOT NULL" in sql.refuses(
        "INSERT INTO outlast_open_runs (job, run_id, token, worker, started_at, lease_until,"
        " queue, name, delivery, priority, position, available_at, failures, losses)"
        " SELECT 2, 'x', 1, NULL, started_at, lease_until, queue, 'other', delivery, priority,"
        " position, available_at, failures, losses FROM outlast_open_runs"
    )


@pytest.mark.req("S0-7.1.d")
async def test_such_a_row_is_failed_as_of_now(store: SqliteStore, clock: FakeClock) -> None:
    claim = await left_running(store, EARLIER, "ingest")
    clock.advance(SECOND)

    await start(store)

    job, run = await job_of(store, claim.id), await last_run(store, claim.id)
    assert (job.state, job.reason) == (State.FAILED, "startup_recovery")
    assert (run.status, run.reason) == (RunStatus.LOST, "startup_recovery")
    assert job.finished_at == run.finished_at == clock.now()


@pytest.mark.req("S0-7.1.f")
async def test_each_recovered_row_is_a_line_and_counted_by_its_reason(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    claims = [await left_running(store, EARLIER, name) for name in ("ingest", "digest")]
    leave = subscribe(totals := InMemoryMetrics())

    await start(store)
    await start(store)  # which finds nothing any more
    leave()

    reported = [getattr(record, "facts", {}) for record in caplog.records]
    lines = [facts for facts in reported if facts.get("event") == "recovered"]
    assert [facts["job"] for facts in lines] == [claim.id for claim in claims]
    assert {facts["reason"] for facts in lines} == {"startup_recovery"}
    assert totals.value("recovered_total", reason="startup_recovery") == 2
    assert totals.value("recovered_total") == 2


@pytest.mark.req("S0-7.1.g", "S0-7.1.h")
async def test_right_after_the_boot_of_a_killed_worker_nothing_abandoned_is_listed(
    path: Path,
) -> None:
    with Child(hold_a_brief, path) as worker:
        abandoned = worker.hear()
        worker.kill()
    store = await opened(path)
    before = [job.id for job in await store.find(RUNNING, limit=MANY)]
    again = LeaseHolder(instance_id="first", boot_id="the-next")

    done = await Recovery(store, again, scope="instance", new_id=new_id).run_once()

    listed = await store.find(RUNNING, limit=MANY)
    job = await job_of(store, abandoned)
    await store.close()
    assert before == [abandoned]
    assert done == RecoveryResult(lost=1)
    assert listed == []
    assert job.state is State.FAILED
    assert job.finished_at is not None
    assert (job.finished_at - job.created_at) < LEASE, "no tick and no lease was waited for"
