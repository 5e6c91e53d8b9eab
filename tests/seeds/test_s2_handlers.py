"""S2: handler classes, each with a model of its payload."""

from typing import ClassVar

import pytest
from pydantic import BaseModel

from outlast import Backoff, InvalidParams, InvalidType, Outlast, Run, Skip, State
from outlast.core.job import NewJob
from outlast.store.sqlite.store import SqliteStore

from .app_helpers import drain, jobs_of


class Summary(BaseModel):
    user_id: int
    day: str


class Recorder:
    """What was handled, and by which instance."""

    seen: ClassVar[list[tuple[object, object]]] = []

    @classmethod
    def payload_model(cls) -> type[Summary]:
        return Summary


class DailySummaryHandler(Recorder):
    async def handle(self, payload: Summary) -> None:
        self.seen.append((self, payload))


class UserSyncHandler(Recorder):
    def handle(self, run: Run, payload: Summary) -> int | Skip:
        self.seen.append((run.id, payload))
        return payload.user_id or Skip("nobody")


class MirrorHandler(Recorder):
    def handle(self, payload: Summary) -> Summary:
        return payload


@pytest.fixture(autouse=True)
def _forget():
    Recorder.seen.clear()


@pytest.mark.req("S2-5.d")
def test_a_class_that_does_not_say_its_model_is_refused(app: Outlast) -> None:
    class Silent:
        def handle(self, payload: Summary) -> None: ...

    with pytest.raises(InvalidType, match="Silent has no payload_model"):
        app.job(Silent)
    assert app.registry.names() == []


@pytest.mark.req("S2-5.d")
async def test_the_model_a_class_gives_is_what_its_handler_gets(app: Outlast) -> None:
    daily = app.job(DailySummaryHandler)

    await daily.enqueue(user_id=3, day="monday")
    await daily.enqueue(Summary(user_id=4, day="monday"))
    await drain(app)

    assert [payload for _, payload in Recorder.seen] == [
        Summary(user_id=3, day="monday"),
        Summary(user_id=4, day="monday"),
    ]
    assert daily.name == "daily_summary"


@pytest.mark.req("S2-5.e")
async def test_a_handler_that_returns_none_is_completed(app: Outlast) -> None:
    handle = await app.job(DailySummaryHandler).enqueue(user_id=3, day="monday")

    await drain(app)

    job = await handle.read()
    [run] = await app.runs(job.id)
    assert (job.state, run.status, run.result) == (State.SUCCEEDED, "succeeded", None)
    assert len(Recorder.seen) == 1


async def test_each_run_has_an_instance_of_its_own(app: Outlast) -> None:
    daily = app.job(DailySummaryHandler)
    for number in range(3):
        await daily.enqueue(user_id=number, day="monday")

    await drain(app)

    assert len({id(instance) for instance, _ in Recorder.seen}) == 3


async def test_a_plain_handle_gets_its_run_and_gives_results_and_outcomes(app: Outlast) -> None:
    sync = app.job(UserSyncHandler)
    kept, skipped = await sync.enqueue(user_id=7, day="x"), await sync.enqueue(user_id=0, day="x")
    mirrored = await app.job(MirrorHandler).enqueue(user_id=1, day="x")

    await drain(app)

    assert await kept.result() == 7
    assert (await skipped.read()).state is State.SKIPPED
    assert await mirrored.result() == Summary(user_id=1, day="x")
    runs = [run.run_id for handle in (kept, skipped) for run in await app.runs(handle.id)]
    assert sorted(str(run_id) for run_id, _ in Recorder.seen) == sorted(runs)


@pytest.mark.req("S2-5.f")
async def test_a_bad_payload_of_a_class_is_rejected_at_enqueue(
    app: Outlast, store: SqliteStore
) -> None:
    daily = app.job(DailySummaryHandler)

    with pytest.raises(InvalidParams, match='field "user_id": Input should be a valid integer'):
        await daily.enqueue(user_id="three", day="monday")
    with pytest.raises(InvalidParams, match='field "day": Field required'):
        await daily.enqueue(user_id=3)

    assert await jobs_of(store) == []


@pytest.mark.req("S2-5.f")
async def test_a_stored_bad_payload_takes_the_failure_path_with_its_fields(
    store: SqliteStore,
) -> None:
    app = Outlast(store, poll="5ms", tick="5ms", max_unfit="0s")
    app.job(retry=Backoff(3, base="0s"))(DailySummaryHandler)
    bad = NewJob(
        id=app._ids.job(), type="daily_summary", name="daily_summary", params='{"user_id":"three"}'
    )
    await store.add([bad])

    await drain(app)

    [job] = await jobs_of(store)
    [run] = await app.runs(job.id)
    assert (job.state, run.status) == (State.DEAD_LETTER, "failed")
    assert 'field "user_id": Input should be a valid integer' in str(run.error)
    assert 'field "day": Field required' in str(run.error)
    assert Recorder.seen == []
