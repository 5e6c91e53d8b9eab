"""Events reach the log and the sinks with the same fields; no error of a sink comes back."""

import logging
from random import Random

import pytest

from outlast import Cancel, Outlast, Run, Skip, Snooze
from outlast.cli.logging_setup import TextLines
from outlast.core.event import DetachedJobFound
from outlast.core.ids import Ids
from outlast.store.contract.jobs import Filter
from outlast.telemetry import (
    InMemoryMetrics,
    MetricKind,
    Sample,
    TelemetryEvent,
    log_full_errors,
    metrics,
    samples,
    subscribe,
)
from outlast.telemetry.events import emit, has_audience
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.corruption import ModelCorrupter
from outlast.testing.model.store import ModelStore
from outlast.worker.maintenance.history_inspector import settle

log = logging.getLogger("outlast.tests.telemetry")


@pytest.fixture
def events():
    """Every event while the test runs."""
    events = []
    leave = subscribe(events.append)
    yield events
    leave()


async def ended(app, *handlers, **options):
    for handler in handlers:
        await app.job(**options)(handler).enqueue()
    async with app.worker() as worker:
        await worker.drained()


@pytest.fixture
async def app():
    clock = FakeClock()
    store = ModelStore(clock, Ids(clock.now, Random(5).getrandbits))
    async with Outlast(store, poll="5ms", tick="5ms") as outlast:
        yield outlast


async def test_log_line_and_metric_have_the_same_fields(app, caplog, events):
    def rows(run: Run) -> None:
        run.rows(7)

    with caplog.at_level(logging.INFO, logger="outlast.jobs"):
        await ended(app, rows)

    logged = [record.facts for record in caplog.records if hasattr(record, "facts")]
    assert [{"event": event.event, **event.fields} for event in events] == logged
    start, end = events
    assert list(samples(start)) == [
        Sample("runs_started_total", MetricKind.COUNT, 1, {"type": "rows"}),
    ]
    assert list(samples(end)) == [
        Sample("runs_ended_total", MetricKind.COUNT, 1, {"type": "rows", "status": "succeeded"}),
        Sample("rows_processed_total", MetricKind.COUNT, 7, {"type": "rows"}),
        Sample(
            "run_duration_seconds",
            MetricKind.SECONDS,
            end.fields["duration_seconds"],
            {"type": "rows"},
        ),
    ]


async def test_sinks_receive_runs_that_the_log_leaves_out(app, caplog, events):
    caplog.set_level(logging.ERROR, logger="outlast")

    await ended(app, lambda: None, name="quiet")

    assert [event.event for event in events] == ["job_start", "job_end"]
    assert caplog.records == []


async def test_error_text_goes_to_sinks_and_not_to_the_log(app, caplog, events):
    def broken() -> None:
        raise ValueError("a secret word")

    own = logging.getLogger("theirs")
    leave = subscribe(log_full_errors(own))
    await ended(app, broken, delivery="linked")
    leave()

    [error] = [event for event in events if event.event == "job_error"]
    assert error.error_text is not None
    assert error.error_text.startswith("Traceback")
    assert "a secret word" in error.error_text
    ours = [record for record in caplog.records if record.name.startswith("outlast")]
    assert "secret" not in "".join(str(vars(record)) for record in ours)
    [full] = [record for record in caplog.records if record.name == "theirs"]
    assert "a secret word" in full.getMessage()
    assert full.facts["traceback"] == error.error_text


@pytest.mark.parametrize("outcome", [Skip, Cancel, lambda text: Snooze("1h", text)])
async def test_reason_of_a_handler_is_stored_and_not_logged(app, caplog, events, outcome):
    async def handler():
        return outcome("customer 7\njob_end job=FORGED")

    with caplog.at_level(logging.INFO, logger="outlast"):
        await ended(app, handler, name="mail")

    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("job_end ") for line in lines)
    assert not any("customer" in line or "FORGED" in line for line in lines)
    assert not any("customer" in str(event.fields) for event in events)
    (job,) = await app.store.find(Filter(), limit=2)
    assert (await app.runs(job.id))[0].reason == "customer 7\njob_end job=FORGED"


def test_no_value_of_an_event_can_forge_a_log_line(caplog):
    caplog.set_level(logging.INFO, logger=log.name)

    emit(log, logging.INFO, "slot", {"schedule": "a\nslot schedule=b\x1b[2J", "slot": "x y=z"})

    (record,) = caplog.records
    assert record.getMessage() == ('slot schedule="a\\nslot schedule=b\\x1b[2J" slot="x y=z"')


def test_text_log_has_one_unindented_line_per_record():
    error = ValueError("bad\n12:00:00.000 INFO 1 job_end job=FORGED\x1b[2J")
    record = logging.LogRecord(
        "theirs", logging.ERROR, "f", 1, "a\n12:00:00.000 INFO 1 x", (), (ValueError, error, None)
    )

    first, *rest = TextLines().format(record).split("\n")

    assert " ERROR " in first
    assert len(rest) == 3
    assert all(line.startswith("    ") for line in rest)
    assert not any("\x1b" in line for line in rest)


def test_sink_that_raises_is_logged_once_and_affects_nothing_else(caplog):
    got, calls = [], []

    def bad(event: TelemetryEvent) -> None:
        calls.append(event)
        raise RuntimeError("with a secret word")

    leave = [subscribe(bad), subscribe(got.append)]
    for _ in range(3):
        emit(log, logging.INFO, "odd", {"job": "1"})
    for each in (*leave, *leave):
        each()
    emit(log, logging.INFO, "odd", {"job": "2"})

    assert (len(calls), len(got)) == (3, 3)
    assert [record.getMessage() for record in caplog.records] == [
        "telemetry sink failed error=RuntimeError event=odd; its further errors are not logged"
    ]


def test_nothing_is_collected_without_an_audience():
    quiet = logging.getLogger("outlast.tests.quiet")
    quiet.setLevel(logging.ERROR)
    leave = subscribe(lambda _: None)
    with_a_sink = has_audience(quiet, logging.INFO)
    leave()

    assert (with_a_sink, has_audience(quiet, logging.INFO)) == (True, False)
    assert has_audience(quiet, logging.ERROR)


EVENTS = [
    ("job_start", {"type": "t"}, ["runs_started_total"]),
    ("job_error", {"type": "t", "error": "OSError"}, ["run_errors_total"]),
    ("job_lost", {"reason": "owner_dead"}, ["runs_lost_total"]),
    ("late_write_refused", {}, ["late_writes_refused_total"]),
    ("recovered", {"reason": "startup_recovery"}, ["recovered_total"]),
    (
        "slot",
        {"outcome": "late", "lateness_seconds": 1.5},
        ["slots_total", "slot_lateness_seconds"],
    ),
    ("something else", {}, []),
]


@pytest.mark.parametrize(("event", "facts", "names"), EVENTS)
def test_each_event_has_its_metrics_and_no_label_is_an_id(event, facts, names):
    pushed = []

    metrics(pushed.append)(
        TelemetryEvent(event, {"job": "j", "run": "r", "schedule": "s", **facts})
    )

    assert [sample.name for sample in pushed] == names
    assert not {"j", "r", "s"} & {value for each in pushed for value in each.labels.values()}


def test_totals_add_up_by_label():
    totals = InMemoryMetrics()
    for outcome, seconds in (("ran", 0.25), ("ran", 0.5), ("late", 4.0)):
        totals(TelemetryEvent("slot", {"outcome": outcome, "lateness_seconds": seconds}))

    assert totals.value("slots_total") == 3
    assert totals.value("slots_total", outcome="ran") == 2
    assert totals.value("slot_lateness_seconds", outcome="ran") == 0.75
    assert totals.number("slot_lateness_seconds") == 3
    assert totals.value("nothing") == 0


@pytest.mark.parametrize("outcome", [Skip, Cancel, lambda text: Snooze("1h", text)])
async def test_reason_of_a_handler_is_not_logged_by_recovery(app, caplog, outcome):
    async def handler():
        return outcome("customer 7")

    await ended(app, handler, name="mail")
    (job,) = await app.store.find(Filter(), limit=2)
    (run,) = await app.runs(job.id)
    await ModelCorrupter(app.store).detach(job.id)
    (job,) = await app.store.detached_jobs(limit=1)

    found = DetachedJobFound(run.status, run.reason)
    await settle(app.store, [(job, found)], new_id=lambda: job.id)

    lines = [record.getMessage() for record in caplog.records]
    assert run.reason == "customer 7"
    assert any(line.startswith("recovered ") for line in lines)
    assert not any("customer" in line for line in lines)
