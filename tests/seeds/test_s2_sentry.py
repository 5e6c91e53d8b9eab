"""S2: failures reach Sentry with their context, and nothing that happens there harms a job."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sentry_sdk
from pydantic import BaseModel

import companion as example
import outlast as package
from companion.companion import Companion
from outlast import Backoff, Failure, InvalidType, OperatorError, Outlast, State
from outlast.sentry import Sentry
from outlast.testing.clock import FakeClock

from .app_helpers import drain
from .receiver import Receiver, sentry_receiver
from .timeouts import PATIENCE, SOON


class Sync(BaseModel):
    user_id: int
    mail: str


class UserSyncHandler:
    @classmethod
    def payload_model(cls) -> type[Sync]:
        return Sync

    def handle(self, payload: Sync) -> None:
        raise ConnectionError(f"no answer for {payload.user_id} <{payload.mail}>")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.delenv("SENTRY_DSN", raising=False)
    with sentry_receiver() as server:
        yield server


@pytest.mark.req("S2-0.f", "S2-7.a")
async def test_a_failure_reaches_sentry_with_its_whole_context(
    app: Outlast, receiver: Receiver
) -> None:
    app.on_failure(Sentry(receiver.dsn), show=["user_id"])
    handle = await app.job(UserSyncHandler).enqueue(user_id=4711, mail="ada@example.org")

    await drain(app, instance_id="worker-7")

    [event] = receiver.events
    assert receiver.asked == ["/api/7/envelope/"]
    job = event["contexts"]["job"]
    assert (job["job_id"], job["job_type"]) == (handle.id, "user_sync")
    assert job["payload"] == {"user_id": 4711, "mail": "[redacted]"}
    assert (job["attempts"], job["max_attempts"], job["worker"]) == (1, 5, "worker-7")
    [raised] = event["exception"]["values"]
    assert (raised["type"], raised["value"]) == (
        "ConnectionError",
        "no answer for 4711 <[redacted]>",
    )
    last = raised["stacktrace"]["frames"][-1]
    assert (last["filename"], last["function"]) == ("test_s2_sentry.py", "handle")
    assert "vars" not in str(raised["stacktrace"])
    assert 'test_s2_sentry.py", line' in event["extra"]["traceback"]
    assert event["extra"]["traceback"].rstrip().endswith(f"ConnectionError: {raised['value']}")
    assert "ada@" not in receiver.raw[0]


@pytest.mark.req("S2-0.f")
async def test_every_failure_is_an_event_and_the_last_one_is_an_error(
    app: Outlast, receiver: Receiver, clock: FakeClock
) -> None:
    app.on_failure(Sentry(receiver.dsn))
    retry = Backoff(3, base="1m", jitter=False)
    await app.job(retry=retry)(UserSyncHandler).enqueue(user_id=1, mail="x@example.org")

    for _ in range(4):
        await drain(app)
        clock.advance("1h")

    reported = [(each["contexts"]["job"], each["level"]) for each in receiver.events]
    assert [(job["attempts"], job["state"], level) for job, level in reported] == [
        (1, "retry_wait", "warning"),
        (2, "retry_wait", "warning"),
        (3, "dead_letter", "error"),
    ]
    assert [job.get("retry_in_seconds") for job, _ in reported] == [60, 120, None]


@pytest.mark.req("S2-6.k")
async def test_a_raise_is_one_line_of_log_and_one_event_and_the_loop_goes_on(
    app: Outlast, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    app.on_failure(Sentry(receiver.dsn))
    sync = app.job(UserSyncHandler)

    @app.job
    def fine() -> int:
        return 1

    async with app.worker(concurrency=1) as worker:
        broken = await sync.enqueue(user_id=1, mail="x@example.org")
        await worker.drained()
        assert await (await fine.enqueue()).result(timeout=SOON) == 1

    lines = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [(line.facts["event"], line.facts["job"]) for line in lines] == [
        ("job_error", broken.id)
    ]
    assert [event["tags"]["job_id"] for event in receiver.events] == [broken.id]
    assert "x@example.org" not in caplog.text


@pytest.mark.req("S2-7.b")
@pytest.mark.parametrize("status", [200, 400, 429, 500])
async def test_whatever_sentry_answers_the_outcome_is_the_same(
    app: Outlast, receiver: Receiver, status: int
) -> None:
    receiver.status = status
    app.on_failure(Sentry(receiver.dsn))
    handle = await app.job(UserSyncHandler).enqueue(user_id=1, mail="x@example.org")

    await drain(app)

    job, [run] = await handle.read(), await app.runs(handle.id)
    assert len(receiver.events) == 1
    assert (job.state, job.failures, run.status) == (State.RETRY_WAIT, 1, "failed")


@pytest.mark.req("S2-7.b")
async def test_where_nobody_answers_the_outcome_is_the_same_and_the_worker_stops(
    app: Outlast,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        dsn = f"http://a-key@127.0.0.1:{silent.getsockname()[1]}/7"
        app.on_failure(Sentry(dsn, timeout="100ms"))
        reported: list[Failure] = []
        app.on_failure(reported.append)
        handle = await app.job(UserSyncHandler).enqueue(user_id=1, mail="x@example.org")

        await drain(app)

    assert (await handle.read()).state is State.RETRY_WAIT
    assert len(reported) == 1


async def test_without_a_dsn_it_is_off_and_needs_no_client(
    app: Outlast, receiver: Receiver
) -> None:
    sink = app.on_failure(Sentry())
    handle = await app.job(UserSyncHandler).enqueue(user_id=1, mail="x@example.org")

    await drain(app)

    assert not sink.is_on
    assert sink._client is None
    assert (await handle.read()).state is State.RETRY_WAIT
    assert receiver.asked == []


async def test_the_dsn_may_stand_in_the_environment(
    app: Outlast, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTRY_DSN", receiver.dsn)
    app.on_failure(Sentry(environment="test", release="shop@7"))
    await app.job(UserSyncHandler).enqueue(user_id=1, mail="x@example.org")

    await drain(app)

    [event] = receiver.events
    assert (event["environment"], event["release"]) == ("test", "shop@7")


async def test_an_app_that_uses_sentry_itself_keeps_its_own_client(
    app: Outlast, receiver: Receiver
) -> None:
    app.on_failure(Sentry(receiver.dsn))
    await app.job(UserSyncHandler).enqueue(user_id=1, mail="x@example.org")

    await drain(app)

    assert len(receiver.events) == 1
    assert not sentry_sdk.is_initialized(), "the process's own client is not ours to set"


@pytest.mark.parametrize("dsn", ["nonsense", "https://sentry.example.org/1", "ftp://key@host/1"])
def test_a_dsn_that_is_none_is_refused_without_being_shown(dsn: str) -> None:
    with pytest.raises(InvalidType, match="the DSN of Sentry cannot be read") as refused:
        Sentry(dsn)

    assert dsn not in str(refused.value)


def test_without_the_client_a_dsn_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['sentry_sdk'] = None\n"
        "from outlast.sentry import Sentry\n"
        "Sentry()\n"
        "try: Sentry('https://key@host/1')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )

    assert done.stdout.startswith(OperatorError.__name__)
    assert "pip install 'outlast[sentry]'" in done.stdout


@pytest.mark.slow
@pytest.mark.req("S2-7.b")
async def test_a_worker_in_processes_of_its_own_reports_as_well(
    tmp_path: Path, receiver: Receiver
) -> None:
    companion = Companion(tmp_path)
    async with companion.app:
        handle = await companion.schedule_sync("zoe")
    found_in = [str(Path(each.__file__).parents[1]) for each in (package, example)]

    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "outlast", "worker", "companion.service:app", "--burst"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(found_in), "SENTRY_DSN": receiver.dsn},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    [event] = receiver.events
    assert event["contexts"]["job"]["job_id"] == handle.id
    assert event["contexts"]["job"]["payload"] == {"user_id": "zoe"}
