"""S2: claimed, parsed, dispatched: each type by its own model, to its own handler."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel

from outlast import InvalidParams, Outlast
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore

from .app_helpers import drain, live
from .crashing import wrecks
from .database_file import Sql


@pytest.mark.req("S2-2.k")
async def test_claimed_then_parsed_then_dispatched(app: Outlast, sql: Sql) -> None:
    seen = []

    def look(value: int) -> int:
        states = sql.rows("SELECT state FROM outlast_job_state")
        seen.append(("parsed", states))
        return value

    @app.job
    async def user_sync(number: Annotated[int, AfterValidator(look)]) -> None:
        seen.append(("dispatched", sql.rows("SELECT state FROM outlast_job_state")))

    await user_sync.enqueue(1)
    at_enqueue = list(seen)
    seen.clear()
    await drain(app)

    assert at_enqueue == [("parsed", [])]
    assert seen == [("parsed", [("running",)]), ("dispatched", [("running",)])]


@pytest.mark.req("S2-2.k")
def test_claim_and_state_are_one_transaction(tmp_path: Path) -> None:
    for wreck in wrecks("claim_some", tmp_path):
        sql = Sql(wreck.path)
        states = dict(sql.rows("SELECT seq, state FROM outlast_job_state"))
        held = {job for (job,) in sql.rows("SELECT job FROM outlast_open_runs")}
        waiting = {job for (job,) in sql.rows("SELECT job FROM outlast_waiting")}

        assert held == {seq for seq, state in states.items() if state == "running"}
        assert held.isdisjoint(waiting), wreck.statement
        assert held | waiting == states.keys(), wreck.statement


@pytest.mark.req("S2-5.a")
async def test_each_type_leads_to_its_own_handler_with_its_own_model(app: Outlast) -> None:
    class Sync(BaseModel):
        user: str

    class Summary(BaseModel):
        user: str
        day: int = 1

    got = []

    @app.job(name="user_sync")
    def one(payload: Sync) -> None:
        got.append(("user_sync", payload))

    @app.job(name="daily_summary")
    async def two(payload: Summary) -> None:
        got.append(("daily_summary", payload))

    await one.enqueue(Sync(user="Ada"))
    await two.enqueue(Summary(user="Ada", day=5))
    await drain(app, concurrency=1)

    assert sorted(got, key=str) == [
        ("daily_summary", Summary(user="Ada", day=5)),
        ("user_sync", Sync(user="Ada")),
    ]


@pytest.mark.req("S2-5.f")
async def test_a_payload_that_does_not_fit_is_refused_at_enqueue(
    app: Outlast, store: SqliteStore
) -> None:
    class Sync(BaseModel):
        user: str
        age: int

    @app.job
    def user_sync(payload: Sync) -> None: ...

    with pytest.raises(InvalidParams, match="age"):
        await user_sync.enqueue({"user": "Ada", "age": "old"})  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidParams, match="payload"):
        await user_sync.enqueue()  # type: ignore[call-arg]  # that is the point
    assert await store.counts() == {}


@pytest.mark.req("S2-5.f")
async def test_a_stored_payload_that_no_longer_fits_fails_with_its_fields(path: Path) -> None:
    called = []
    old, new = live(path), live(path, poll="5ms", max_unfit="0s")

    @old.job(name="user_sync")
    def as_it_was(user: str) -> None: ...

    @new.job(name="user_sync")
    def as_it_is(user: int) -> None:
        called.append(user)

    async with old:
        broken, fine = await as_it_was.enqueue("Ada"), await as_it_was.enqueue("7")
    async with new:
        await drain(new)
        job, [run] = await new.get(broken.id), await new.runs(broken.id)
        other = await new.get(fine.id)

    assert (job.state, job.reason, run.status) == (State.DEAD_LETTER, "unfit_params", "failed")
    assert "user" in (run.error or "")
    assert "integer" in (run.error or "")
    assert (other.state, called) == (State.SUCCEEDED, [7])
