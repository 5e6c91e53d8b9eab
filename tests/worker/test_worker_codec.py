"""A worker of an app with a payload codec: what it stores and tells of a run is encoded."""

import json
import logging
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from codec_app import ADDRESS, AT_ONCE, KEYS, SECRET, codec, install
from worker_helpers import QUICK, SOON, all_slots_work, kinds, statuses, until, with_roll_call

from outlast import (
    Cancel,
    EncodedPayload,
    Failure,
    JobNotSucceeded,
    Outlast,
    PayloadContext,
    PayloadUnreadable,
    RetryAfter,
    Run,
    Skip,
    Snooze,
    State,
    StoreBusy,
)
from outlast.core.envelope import label, parse
from outlast.core.failure import split_error
from outlast.encryption import AESGCMCodec
from outlast.telemetry import subscribe

HIDDEN = "encrypted (key 2026-11)"


def coded(path: Any, with_codec: Any = None, **more: Any) -> Outlast:
    settings = QUICK.with_(logs=path.parent / "logs")
    given = with_codec or codec()
    return with_roll_call(Outlast(f"sqlite:///{path}", settings=settings, codec=given, **more))


@pytest.fixture
async def app(path):
    async with install(coded(path)) as app:
        yield app


@pytest.fixture
async def keyless(path):
    async with install(with_roll_call(Outlast(f"sqlite:///{path}", settings=QUICK))) as app:
        yield app


def dump(path):
    """Everything that is in the file, as text."""
    with closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump())


async def run_one(app, name, *args, **more):
    """Run one job in a worker; return its handle."""
    async with app.worker(types=[name], app_address=ADDRESS, **more):
        handle = await app.registry.get(name).enqueue(*args)
        await handle.wait(SOON)
    return handle


names = ["in_loop", "at_once", "in_thread", pytest.param("in_process", marks=pytest.mark.slow)]
failing = [
    "fails_in_loop",
    "fails_in_thread",
    pytest.param("fails_in_process", marks=pytest.mark.slow),
    pytest.param("fails_in_command", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name", names)
async def test_params_progress_and_result_of_every_executor_are_encoded(app, path, name):
    handle = await run_one(app, name, SECRET)

    assert await handle.result(SOON) == SECRET
    [run] = await app.store.runs(handle.id)
    assert {label(run.params_snapshot), label(run.result)} == {HIDDEN}
    assert label(run.progress) == (None if name == "at_once" else HIDDEN)
    assert SECRET not in dump(path)
    [plain] = await app.runs(handle.id)
    if name != "at_once":
        assert json.loads(plain.progress)["message"] == f"for {SECRET}"


@pytest.mark.parametrize(
    "name",
    ["logs_in_loop", "logs_in_thread", pytest.param("logs_in_process", marks=pytest.mark.slow)],
)
async def test_what_a_run_logs_is_encoded(app, keyless, path, name):
    handle = await run_one(app, name, SECRET)

    lines = [line async for line in app.handle(handle.id).logs()]
    blind = [line async for line in keyless.handle(handle.id).logs()]

    assert f"logs {SECRET}" in " ".join(line.text for line in lines)
    assert [line.text for line in blind] == [f"{len(lines)} lines {HIDDEN}"]
    assert SECRET not in dump(path)
    assert SECRET not in repr(lines)


async def test_lines_are_a_mark_if_the_codec_fails(path):
    async with install(coded(path, Flaky("log"))) as app:
        handle = await run_one(app, "logs_in_loop", SECRET)

        [line] = [line async for line in app.handle(handle.id).logs()]

        assert "lines not stored: codec flaky raised OSError at" in line.text
        assert (await handle.read()).state is State.SUCCEEDED


@pytest.mark.parametrize("name", failing)
async def test_errors_of_every_executor_are_encoded_but_their_class(app, path, name):
    handle = await run_one(app, name, SECRET)

    is_command = name == "fails_in_command"
    kind = "outlast.errors.CommandFailed" if is_command else "ValueError"
    with pytest.raises(JobNotSucceeded, match=rf"ended dead_letter \(\w+\): {kind}; ") as refused:
        await handle.result(SOON)
    runs = await app.store.runs(handle.id)
    assert len(runs) == 2
    for run in runs:
        assert split_error(run.error).message == HIDDEN
        assert parse(run.error).error_type == kind
        frames = json.loads(run.error)["error"]["frames"]
        assert is_command or frames[-1].endswith(f" {name}")
    assert SECRET not in dump(path)
    assert f"refused {SECRET}" in refused.value.error
    assert SECRET not in repr(refused.value)
    assert f"refused {SECRET}" in (await app.runs(handle.id))[0].error


OUTCOMES = [
    (Skip, "skipped"),
    (Cancel, "cancelled"),
    (lambda why: RetryAfter("1ms", why), "dead_letter"),
]


@pytest.mark.parametrize(("outcome", "state"), OUTCOMES)
async def test_the_reason_that_a_handler_gives_is_encoded(app, path, outcome, state):
    @app.job(retry=AT_ONCE)
    async def ends(secret: str) -> Any:
        return outcome(f"no {secret}")

    handle = await run_one(app, "ends", SECRET)

    job = await handle.read()
    runs, events = await app.runs(handle.id), await app.events(handle.id)
    assert job.state == state
    assert f"no {SECRET}" in f"{job.reason} {runs[0].error}"
    assert state == "dead_letter" or f"no {SECRET}" in [event.reason for event in events]
    assert SECRET not in dump(path)
    assert SECRET not in repr([job, runs, events])


async def test_a_snooze_keeps_its_reason_encoded_and_the_job_runs_again(app, path):
    @app.job
    async def ends(run: Run, secret: str) -> Any:
        return Snooze("1ms", f"no {secret}") if run.token == 1 else secret

    handle = await run_one(app, "ends", SECRET)

    assert await handle.result(SOON) == SECRET
    assert f"no {SECRET}" in [event.reason for event in await app.events(handle.id)]
    assert SECRET not in dump(path)


async def test_a_successor_of_a_linked_job_is_decoded(app, path):
    seen = []

    @app.job(delivery="linked", retry=AT_ONCE)
    async def tries(secret: str) -> str:
        seen.append(secret)
        if len(seen) == 1:
            raise ValueError(secret)
        return secret

    handle = await run_one(app, "tries", SECRET)

    assert await handle.result(SOON) == SECRET
    assert seen == [SECRET, SECRET]
    assert SECRET not in dump(path)


async def test_a_result_in_a_transaction_is_encoded(app, path):
    @app.job
    async def writes(run: Run, secret: str) -> str:
        async with run.transaction() as connection:
            connection.execute("CREATE TABLE effects (n)")
        return secret

    handle = await run_one(app, "writes", SECRET)

    assert await handle.result(SOON) == SECRET
    assert SECRET not in dump(path)


async def test_after_a_rotation_old_jobs_run_and_new_results_use_the_new_key(path):
    old = install(coded(path))
    async with old:
        handle = await old.registry.get("at_once").enqueue(SECRET)
    keys = {"2026-12": b"n" * 32, **KEYS}
    async with install(coded(path, AESGCMCodec(keys, "2026-12"))) as new:
        async with new.worker(types=["at_once"]):
            assert await new.handle(handle.id).result(SOON) == SECRET
        [run] = await new.store.runs(handle.id)

    assert label(run.params_snapshot) == "encrypted (key 2026-11)"
    assert label(run.result) == "encrypted (key 2026-12)"


# Workers that cannot read, and codecs that fail.


@pytest.mark.parametrize("name", ["in_loop", "in_thread"])
async def test_a_job_that_a_worker_has_no_key_for_is_left_to_one_that_has_it(app, keyless, name):
    handle = await app.registry.get(name).enqueue(SECRET)

    async with keyless.worker(app_address=ADDRESS):
        await until(lambda: _waits(handle))
        assert await all_slots_work(keyless)
    async with app.worker(app_address=ADDRESS):
        done = await handle.wait(SOON)

    runs = await keyless.runs(handle.id)
    assert (done.state, done.failures) == (State.SUCCEEDED, 0)
    assert {run.reason for run in runs[:-1]} == {"unfit_params"}
    assert [run.progress for run in runs[:-1]] == [None] * (len(runs) - 1)


async def _waits(handle):
    return (await handle.read()).state is State.RETRY_WAIT


@pytest.mark.parametrize("name", ["in_loop", "in_thread"])
async def test_after_max_unfit_the_error_names_the_key(app, path, name):
    handle = await app.registry.get(name).enqueue(SECRET)
    settings = QUICK.with_(max_unfit="0s")

    async with install(with_roll_call(Outlast(f"sqlite:///{path}", settings=settings))) as keyless:
        async with keyless.worker(app_address=ADDRESS):
            await handle.wait(SOON)

        [run] = await keyless.runs(handle.id)
    error = split_error(run.error)
    assert error.type == "outlast.errors.PayloadUnreadable"
    assert "key 2026-11" in error.message
    assert run.progress is None


class Flaky:
    """A codec that fails for the kinds that a test chooses."""

    name = "flaky"

    def __init__(self, *broken: str) -> None:
        self.broken = broken

    def encode(self, text: str, context: PayloadContext) -> EncodedPayload:
        if context.kind in self.broken:
            raise OSError(f"no key service for {text}")
        return EncodedPayload(text[::-1])

    def decode(self, payload: EncodedPayload, _: PayloadContext) -> str:
        return payload.text[::-1]


async def test_the_end_of_a_run_is_stored_even_if_its_result_cannot_be_encoded(path, caplog):
    async with install(coded(path, Flaky("result", "progress"))) as app:
        async with app.worker(types=["in_loop", "roll_call"]):
            handle = await app.registry.get("in_loop").enqueue(SECRET)
            job = await handle.wait(SOON)
            with pytest.raises(PayloadUnreadable, match=r"not stored.*flaky raised OSError at"):
                await handle.result(SOON)

        assert job.state is State.SUCCEEDED
        [run] = await app.runs(handle.id)
        assert label(run.result).startswith("not stored: codec flaky raised OSError at test_wor")
        assert label(run.progress).startswith("not stored: codec flaky raised OSError")
        assert "result not stored" in caplog.text
        assert SECRET not in caplog.text


async def test_a_failure_is_stored_and_retried_even_if_its_error_cannot_be_encoded(path, caplog):
    async with install(coded(path, Flaky("error", "reason"))) as app:

        @app.job
        async def skips(secret: str) -> Any:
            return Skip(secret)

        handle = await run_one(app, "fails_in_loop", SECRET)
        skipped = await run_one(app, "skips", SECRET)

        assert [status for status, _ in await statuses(app, handle)] == ["failed", "failed"]
        [run, _] = await app.runs(handle.id)
        assert split_error(run.error).type == "ValueError"
        assert "OSError" in split_error(run.error).message
        assert (await skipped.read()).state is State.SKIPPED
        assert SECRET not in dump(path)
        assert SECRET not in caplog.text


async def test_progress_too_long_when_encoded_is_a_mark_and_costs_no_lease(path):
    class Wordy(Flaky):
        def encode(self, text: str, context: PayloadContext) -> EncodedPayload:
            return EncodedPayload(text[::-1] * (100 if context.kind == "progress" else 1))

    async with install(coded(path, Wordy())) as app:
        handle = await run_one(app, "in_loop", SECRET)

        [run] = await app.runs(handle.id)
        assert label(run.progress) == "not stored: its encoded text is too large"
        assert await handle.result(SOON) == SECRET


async def test_a_direct_run_is_encoded(app, path):
    kind = app.registry.get("at_once")
    async with app.worker(types=["at_once"]):
        handle = await kind.options(wait=SOON).run_now(SECRET)
        assert await handle.result(SOON) == SECRET

    assert SECRET not in dump(path)


async def test_a_result_too_large_when_encoded_fails_as_any_too_large_result(app):
    @app.job(retry=AT_ONCE)
    async def large() -> str:
        return "x" * 230_000

    handle = await run_one(app, "large")

    assert (await handle.read()).state is State.DEAD_LETTER
    [run] = await app.runs(handle.id)
    assert "bytes as codec aesgcm encodes it" in run.error


async def test_a_long_error_is_cut_so_that_its_encoded_form_fits(app):
    @app.job(retry=AT_ONCE)
    async def wordy() -> None:
        raise ValueError("ö" * 100_000)

    handle = await run_one(app, "wordy")

    run = (await app.runs(handle.id))[0]
    assert len((await app.store.runs(handle.id))[0].error) <= 65_536
    assert len(run.error.encode()) > 40_000
    assert run.error.endswith("[cut]")


async def test_a_text_is_encoded_once_however_often_its_write_is_repeated(app, path):
    seen: list[str] = []

    class Counting(Flaky):
        def encode(self, text: str, context: PayloadContext) -> EncodedPayload:
            seen.append(context.kind)
            return super().encode(text, context)

    async with install(coded(path, Counting())) as other:
        apply, failures = other.store.apply, ["one"]

        async def lose_first_reply(changes):
            answers = await apply(changes)
            if failures:
                failures.pop()
                raise StoreBusy("the reply was lost")
            return answers

        other.store.apply = lose_first_reply
        handle = await run_one(other, "at_once", SECRET)

        assert await handle.result(SOON) == SECRET
        assert seen == ["params", "result"]
        assert "late_write_refused" not in await kinds(other, handle)


# What is told.


async def test_the_canary_is_in_no_log_sink_event_repr_or_file(app, path, caplog):
    caplog.set_level(logging.DEBUG)
    told: list[Any] = []
    failures: list[Failure] = []
    app.on_failure(failures.append)
    unsubscribe = subscribe(told.append)

    @app.job(retry=AT_ONCE)
    async def nested(secret: dict[str, str]) -> None:
        try:
            raise KeyError(secret["name"])
        except KeyError as error:
            raise RuntimeError(f"while paying {secret}") from error

    try:
        async with app.worker(types=["nested", "fails_in_loop", "fails_in_thread", "in_loop"]):
            handles = [
                await nested.enqueue({"name": SECRET}),
                await app.registry.get("fails_in_loop").enqueue(SECRET),
                await app.registry.get("fails_in_thread").enqueue(SECRET),
                await app.registry.get("in_loop").enqueue(SECRET),
            ]
            for handle in handles:
                await handle.wait(SOON)
    finally:
        unsubscribe()

    assert len(failures) == 6
    assert told
    key = KEYS["2026-11"].decode()
    everything = {
        "log": caplog.text + repr([vars(record) for record in caplog.records]),
        "told": repr(told),
        "failures": repr(failures),
        "jobs": repr([(await app.jobs.page()).jobs, [await app.runs(each.id) for each in handles]]),
        "events": repr([event async for event in app.event_stream()]),
        "explained": str([str(await app.explain(each.id)) for each in handles]),
        "app": repr([app, app.registry.envelopes.codec, vars(app.registry)]),
        "file": dump(path),
    }
    assert [name for name, text in everything.items() if SECRET in text] == []
    assert [name for name, text in everything.items() if key in text] == []
    raised = {failure.raised[0].type for failure in failures}
    assert raised == {"RuntimeError", "ValueError"}
    assert all("[redacted]" in failure.traceback for failure in failures)


async def test_a_sink_sees_the_fields_that_it_is_shown(app):
    failures: list[Failure] = []
    app.on_failure(failures.append, show=["secret"])

    await run_one(app, "fails_in_loop", SECRET)

    assert failures[0].payload == {"secret": SECRET}


async def test_without_a_codec_no_text_is_parsed_or_encoded(path, monkeypatch):
    async with install(with_roll_call(Outlast(f"sqlite:///{path}", settings=QUICK))) as app:
        touched: list[str] = []
        for name in ("wrap", "wrap_end", "wrap_error", "unwrap", "reveal_text"):
            kind = type(app.registry.envelopes)
            original = getattr(kind, name)

            def watched(self, *args, name=name, original=original, **more):
                touched.append(name)
                return original(self, *args, **more)

            monkeypatch.setattr(kind, name, watched)

        handle = await run_one(app, "in_loop", SECRET)

        assert await handle.result(SOON) == SECRET
        assert touched == []
        [run] = await app.store.runs(handle.id)
        assert (run.params_snapshot, run.result) == (f'{{"secret":"{SECRET}"}}', f'"{SECRET}"')
