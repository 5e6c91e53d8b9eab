"""Stored params that no longer fit, results that cannot be kept, types that are not registered."""

import asyncio
import json
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, field_serializer
from worker_helpers import SOON, all_slots_work, query, quick, statuses

from outlast import Backoff, InvalidType, Run, State


@pytest.fixture
async def app(path):
    """Its workers give up jobs at once whose params they cannot read."""
    async with quick(path, max_unfit="0s") as app:
        yield app


@pytest.fixture
async def rival(path, app):
    async with quick(path, max_unfit="0s") as other:
        yield other


def set_params(path, handle, text):
    query(path, "UPDATE outlast_jobs SET params = ? WHERE id = ?", text, handle.id)


@pytest.mark.parametrize("delivery", ["lease", "linked", "once"])
async def test_params_that_no_longer_fit_close_the_job_with_the_reason(app, rival, slot, delivery):
    calls = []

    @app.job(name="send", delivery=delivery)
    async def old(number: str) -> None: ...

    @rival.job(name="send", delivery=delivery)
    async def new(number: int) -> None:
        calls.append(number)

    handle = await old.options(slot=slot).enqueue("three")
    async with rival.worker():
        job = await handle.wait(SOON)

        assert await all_slots_work(rival)
    assert job.state is (State.SKIPPED if delivery == "once" else State.DEAD_LETTER)
    assert job.reason == "unfit_params"
    assert (job.id, calls) == (handle.id, [])
    [run] = await app.runs(handle.id)
    assert 'params of "send" refused: field "number"' in run.error
    assert "three" not in run.error


EDITED = [
    "{}",
    "[1]",
    "null",
    '"x"',
    '{"number":1,"more":2}',
    '{"number":1e999}',
    '{"number":"\\ud800"}',
    '{"number":' + "9" * 5000 + "}",
    '{"number":' + "[" * 900 + "]" * 900 + "}",
]


async def test_params_edited_by_hand_close_their_jobs_and_nothing_else(app, path):
    @app.job
    async def send(number: int) -> None: ...

    handles = await app.enqueue_many(send.bind(1) for _ in EDITED)
    for handle, text in zip(handles, EDITED, strict=True):
        set_params(path, handle, text)
    async with app.worker():
        ends = [await handle.wait(SOON) for handle in handles]

        assert await all_slots_work(app)
    expected = ("dead_letter", "unfit_params")
    assert [(job.state, job.reason) for job in ends] == [expected] * len(EDITED)


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("x"), SystemExit(1)])
async def test_a_validator_that_breaks_at_the_claim_closes_the_job(app, error):
    broken = False

    def check(number):
        if broken:
            raise error
        return number

    @app.job
    async def send(number: Annotated[int, AfterValidator(check)]) -> None: ...

    handle = await send.enqueue(1)
    broken = True
    async with app.worker():
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    assert (job.state, job.failures) == (State.DEAD_LETTER, 1)


class Broken(BaseModel):
    number: int = 1

    @field_serializer("number")
    def refuse(self, _number):
        raise KeyError("cannot write it")


def endless():
    things = []
    things.append(things)
    return things


UNKEPT = {
    "object": object,
    "nan": lambda: float("nan"),
    "too large": lambda: "x" * 300_000,
    "endless": endless,
    "surrogate": lambda: "\ud800",
    "nul": lambda: "\0",
    "lock": asyncio.Lock,
    "generator": lambda: (n for n in [1]),
    "deep": lambda: json.loads("[" * 500 + "]" * 500),
    "serializer": Broken,
    "digits": lambda: 10**5000,
}


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_a_result_that_cannot_be_kept_is_a_dead_letter_at_once(app, thread):
    if thread:

        @app.job(name="give")
        def give(kind: str):
            return UNKEPT[kind]()

    else:

        @app.job(name="give")
        async def give(kind: str):
            return UNKEPT[kind]()

    async with app.worker():
        handles = {kind: await give.enqueue(kind) for kind in UNKEPT}
        jobs = {kind: await handle.wait(SOON) for kind, handle in handles.items()}

        assert await all_slots_work(app)
    ends = {kind: (job.state, job.reason, job.failures) for kind, job in jobs.items()}
    assert ends == dict.fromkeys(UNKEPT, (State.DEAD_LETTER, "permanent", 1))
    for handle in handles.values():
        [run] = await app.runs(handle.id)
        assert 'result of "give"' in run.error


async def test_artifacts_that_cannot_be_kept_fail_their_own_job_only(app):
    @app.job(retry=Backoff(1))
    async def hoard(run: Run, many: int) -> int:
        for n in range(many):
            run.attach(f"{n:04}" * 1000)
        return many

    async with app.worker() as worker:
        handles = await app.enqueue_many(hoard.bind(n) for n in (1, 900, 1))
        ends = [await handle.wait(SOON) for handle in handles]
        await worker.drained()

        assert worker.unwritten == []
        assert worker.refused == 0
    assert [job.state for job in ends] == ["succeeded", "dead_letter", "succeeded"]
    assert await statuses(app, handles[1]) == [("failed", "attempts_exhausted")]
    [run] = await app.runs(handles[1].id)
    assert "artifacts" in run.error


async def test_a_worker_never_takes_types_it_does_not_know(app, rival, path):
    @app.job
    async def ours() -> str:
        return "ours"

    @rival.job
    async def theirs() -> str:
        return "theirs"

    async with app.worker() as worker:
        foreign = await theirs.enqueue()
        await (await ours.enqueue()).result(SOON)
        await worker.drained()

        assert (await foreign.read()).state is State.QUEUED
        async with rival.worker():
            assert await foreign.result(SOON) == "theirs"
    assert await statuses(app, foreign) == [("succeeded", None)]


async def test_a_worker_takes_only_the_types_and_queues_it_was_given(app):
    @app.job
    async def one() -> None: ...

    @app.job
    async def two() -> None: ...

    async with app.worker(types=["one", "roll_call"]) as worker:
        other_type = await two.enqueue()
        other_queue = await one.options(queue="elsewhere").enqueue()
        await (await one.enqueue()).wait(SOON)
        await worker.drained()

    assert (await other_type.read()).state is State.QUEUED
    assert (await other_queue.read()).state is State.QUEUED
    async with app.worker(queues=["elsewhere", "default"]):
        ends = [await handle.wait(SOON) for handle in (other_type, other_queue)]
    assert [job.state for job in ends] == [State.SUCCEEDED] * 2


@pytest.mark.parametrize(
    "wrong",
    [{"types": ["nobody"]}, {"types": []}, {"queues": []}],
    ids=str,
)
async def test_a_worker_with_nothing_to_serve_is_refused(app, wrong):
    with pytest.raises(InvalidType, match=r"known types: .*roll_call"):
        app.worker(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"concurrency": -1},
        {"concurrency": 10**9},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"concurrency": "2"},
        {"queues": "mail"},
        {"types": "roll_call"},
        {"queues": ["a b"]},
        {"queues": [None]},
        {"instance_id": "a b"},
        {"instance_id": "x" * 129},
    ],
    ids=str,
)
async def test_settings_a_worker_cannot_have_are_refused_before_it_starts(app, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)).removesuffix("s")):
        app.worker(**wrong)


async def test_a_file_that_cannot_be_opened_stops_the_worker_with_a_clear_error(tmp_path):
    (tmp_path / "jobs.db").write_text("this is no database, whatever its name says" * 100)
    app = quick(tmp_path / "jobs.db")

    with pytest.raises(Exception, match=r"jobs\.db is not a SQLite database") as reported:
        async with app.worker():
            pass

    assert type(reported.value).__name__ == "ForeignStore"
