"""S0: the three settings of every scheduled job, runs by hand, and what the log tells."""

import logging
import sys
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from outlast import InvalidSchedule, Outlast, Run, SlotTaken
from outlast.cli.main import main
from outlast.core.ids import Ids
from outlast.core.run import LeaseHolder
from outlast.core.schedule import ADVISED_GRACE, SlotOutcome
from outlast.scheduler.trigger import Trigger
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.telemetry import InMemoryMetrics, log_full_errors, subscribe
from outlast.testing.clock import START, FakeClock

HOUR = timedelta(hours=1)
HOLDER = LeaseHolder(instance_id="news-1", boot_id="boot-1")


@pytest.fixture
def trigger(store: SqliteStore, clock: FakeClock) -> Trigger:
    return Trigger(store, Ids(clock.now, Random(3).getrandbits).job)


@pytest.fixture
def ingestion(app: Outlast) -> Outlast:
    @app.job(delivery="once")
    def rss_ingestion(run: Run) -> None:
        run.rows(3)
        run.rows(4)

    @app.job(delivery="once")
    def broken() -> None:
        raise ValueError("a secret word")

    return app


@pytest.mark.req("S0-9.a")
async def test_a_once_job_has_one_instance(ingestion: Outlast) -> None:
    given: dict[str, Any] = {"coalesce": True, "misfire_grace": "300s"}

    with pytest.raises(InvalidSchedule, match="max_instances is 2"):
        await ingestion.schedules.save("s", "0 * * * *", "rss_ingestion", max_instances=2, **given)

    await ingestion.schedules.save("s", "0 * * * *", "rss_ingestion", max_instances=1, **given)


@pytest.mark.req("S0-9.b", "S0-9.c")
@pytest.mark.parametrize("left_out", ["coalesce", "misfire_grace"])
async def test_what_becomes_of_late_slots_has_no_default(ingestion: Outlast, left_out: str) -> None:
    given: dict[str, Any] = {"coalesce": True, "misfire_grace": "300s"}
    del given[left_out]

    with pytest.raises(TypeError, match=left_out):
        ingestion.schedule("s", "0 * * * *", "rss_ingestion", **given)
    with pytest.raises(TypeError, match=left_out):
        await ingestion.schedules.save("s", "0 * * * *", "rss_ingestion", **given)


@pytest.mark.req("S0-9.d")
async def test_many_missed_slots_run_once_for_the_latest(
    ingestion: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger
) -> None:
    given: dict[str, Any] = {"coalesce": True, "misfire_grace": "10h"}
    await ingestion.schedules.save("s", "0 * * * *", "rss_ingestion", **given)
    clock.advance(5 * HOUR)

    await trigger.run_once()

    [job] = await store.find(Filter(), limit=9)
    assert job.slot_at == START + 5 * HOUR
    outcomes = [row.outcome for row in await ingestion.schedules.history("s")]
    assert outcomes == [SlotOutcome.RAN, *[SlotOutcome.COALESCED] * 4]


@pytest.mark.req("S0-9.e")
@pytest.mark.parametrize(("late", "jobs"), [(299, 1), (301, 0)])
async def test_a_slot_runs_within_the_grace_and_is_logged_as_missed_after(
    ingestion: Outlast,
    store: SqliteStore,
    clock: FakeClock,
    trigger: Trigger,
    caplog: pytest.LogCaptureFixture,
    late: int,
    jobs: int,
) -> None:
    given: dict[str, Any] = {"coalesce": True, "misfire_grace": ADVISED_GRACE}
    await ingestion.schedules.save("s", "0 * * * *", "rss_ingestion", **given)
    clock.advance(HOUR + timedelta(seconds=late))

    with caplog.at_level(logging.INFO, logger="outlast.scheduler"):
        await trigger.run_once()

    [reported] = [record.facts for record in caplog.records]  # type: ignore[attr-defined]  # ours
    assert len(await store.find(Filter(), limit=9)) == jobs
    assert (reported["event"], reported["outcome"]) == ("slot", "late" if jobs else "missed")


@pytest.mark.req("S0-9.e")
def test_what_is_advised_is_300_seconds_and_told_to_whoever_leaves_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "news", raising=False)
    (tmp_path / "news.py").write_text(
        "from outlast import Outlast\n"
        "app = Outlast('sqlite:///jobs.db')\n"
        "app.job(name='brief', delivery='once')(lambda: None)\n"
    )
    words = ["schedule", "save", "s", "@hourly", "-t", "brief", "--coalesce", "--app", "news:app"]

    answer = CliRunner().invoke(main, words)

    assert timedelta(seconds=300) == ADVISED_GRACE
    assert answer.exit_code == 2
    assert "--misfire-grace" in answer.output
    assert "300s" in answer.output


@pytest.mark.req("S0-10.a")
async def test_a_run_by_hand_of_a_job_that_runs_is_refused(
    ingestion: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger
) -> None:
    given: dict[str, Any] = {"coalesce": True, "misfire_grace": "300s"}
    await ingestion.schedules.save("s", "0 * * * *", "rss_ingestion", **given)
    clock.advance(HOUR)
    await trigger.run_once()
    kinds = ["rss_ingestion"]
    assert await store.claim(HOLDER, queue="default", types=kinds, limit=1, lease=HOUR)

    with pytest.raises(SlotTaken, match="is running"):
        await ingestion.schedules.run("s", "next")

    assert len(await ingestion.schedules.history("s")) == 1


@pytest.mark.req("S0-10.b")
async def test_a_run_by_hand_names_its_slot_and_carries_it(
    ingestion: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    given: dict[str, Any] = {"coalesce": True, "misfire_grace": "300s"}
    await ingestion.schedules.save("s", "0 * * * *", "rss_ingestion", **given)

    with pytest.raises(TypeError, match="slot"):
        await ingestion.schedules.run("s")  # type: ignore[call-arg]
    job = await ingestion.schedules.run("s", START)

    assert (await ingestion.get(job.id)).slot_at == START
    [row] = await ingestion.schedules.history("s")
    assert (row.outcome, row.job_id) == (SlotOutcome.MANUAL, job.id)


async def _facts(
    app: Outlast, kind: str, clock: FakeClock, trigger: Trigger, caplog: pytest.LogCaptureFixture
) -> list[dict[str, Any]]:
    given: dict[str, Any] = {"coalesce": True, "misfire_grace": "300s"}
    await app.schedules.save("s", "0 * * * *", kind, **given)
    clock.advance(HOUR)
    await trigger.run_once()
    with caplog.at_level(logging.INFO, logger="outlast.jobs"):
        async with app.worker() as worker:
            await worker.drained()
    records = [record for record in caplog.records if record.name == "outlast.jobs"]
    return [record.facts for record in records]  # type: ignore[attr-defined]  # ours


@pytest.mark.req("S0-11.a", "S0-11.b", "S0-11.c", "S0-11.d")
async def test_the_log_tells_of_start_end_duration_and_rows(
    ingestion: Outlast,
    store: SqliteStore,
    clock: FakeClock,
    trigger: Trigger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    start, end = await _facts(ingestion, "rss_ingestion", clock, trigger, caplog)

    [job] = await store.find(Filter(), limit=9)
    [run] = await store.runs(job.id)
    assert job.name == "rss_ingestion"
    assert (start["event"], end["event"]) == ("job_start", "job_end")
    assert (start["type"], start["run"]) == ("rss_ingestion", run.run_id)
    assert start["slot"] == end["slot"] == (START + HOUR).isoformat()
    assert end["status"] == "succeeded"
    assert 0 <= end["duration_seconds"] < 60
    assert end["rows_processed"] == 7


@pytest.mark.req("S0-11.e")
async def test_an_app_that_asks_for_it_logs_errors_with_message_and_traceback(
    ingestion: Outlast, clock: FakeClock, trigger: Trigger, caplog: pytest.LogCaptureFixture
) -> None:
    leave = subscribe(log_full_errors(logging.getLogger("news")))

    await _facts(ingestion, "broken", clock, trigger, caplog)
    leave()

    [record] = [record for record in caplog.records if record.name == "news"]
    facts = record.facts  # type: ignore[attr-defined]  # ours
    assert (record.levelname, facts["event"], facts["type"]) == ("ERROR", "job_error", "broken")
    for reported in (record.getMessage(), facts["traceback"]):
        assert "ValueError: a secret word" in reported
        assert "Traceback" in reported


async def test_metrics_tell_the_same_as_the_log(
    ingestion: Outlast, clock: FakeClock, trigger: Trigger, caplog: pytest.LogCaptureFixture
) -> None:
    leave = subscribe(totals := InMemoryMetrics())

    _, fine = await _facts(ingestion, "rss_ingestion", clock, trigger, caplog)
    *_, bad = await _facts(ingestion, "broken", clock, trigger, caplog)
    leave()

    spent = fine["duration_seconds"] + bad["duration_seconds"]
    assert totals.value("runs_started_total", type="rss_ingestion") == 1
    assert totals.value("runs_ended_total", type="rss_ingestion", status="succeeded") == 1
    assert totals.value("rows_processed_total") == 7
    assert totals.value("run_errors_total", type="broken", error="ValueError") == 1
    assert totals.value("runs_ended_total", status="failed") == 1
    assert totals.value("run_duration_seconds") == pytest.approx(spent)
    assert totals.value("slots_total", outcome="ran") == 2


@pytest.mark.req("S0-11.e")
async def test_the_log_names_the_error_and_the_run_that_has_its_words_and_traceback(
    ingestion: Outlast,
    store: SqliteStore,
    clock: FakeClock,
    trigger: Trigger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, error, end = await _facts(ingestion, "broken", clock, trigger, caplog)

    [job] = await store.find(Filter(), limit=9)
    [run] = await store.runs(job.id)
    assert (error["event"], error["error"], error["run"]) == ("job_error", "ValueError", run.run_id)
    assert "a secret word" not in caplog.text, "which may quote what nobody may read"
    assert "Traceback" in (run.error or "")
    assert "a secret word" in (run.error or "")
    assert (end["status"], end["rows_processed"]) == ("failed", 0)
