"""S2: the companion's two handlers: called by the dispatcher alone, and safe to run again."""

import ast
import asyncio
import traceback
from pathlib import Path
from uuid import UUID, uuid5

import pytest

import companion as example
from companion.chat import Message
from companion.companion import Companion
from companion.handlers import HANDLERS, DailySummaryHandler, UserSyncHandler, token_of
from outlast import InvalidParams, Outlast, Run, State, TypeNotFound
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.worker.maintenance.loop import Maintenance

from .app_helpers import drain
from .child_process import Child
from .companions import MONDAY, QUICK, TUESDAY, Forgetful, die_in_a_summary
from .database_file import Sql
from .sources import shipped_modules
from .timeouts import SOON

ROOT = Path(__file__).parents[2]


@pytest.fixture
def companion(tmp_path: Path, store: SqliteStore) -> Companion:
    return Companion(tmp_path, store, rules=QUICK)


@pytest.mark.req("S2-0.a")
async def test_handlers_are_called_from_the_worker_and_from_nowhere_else(
    companion: Companion, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = []
    for handler in HANDLERS.values():

        def look(self, run: Run, payload: object) -> None:
            stacks.append([Path(frame.filename) for frame in traceback.extract_stack()])

        monkeypatch.setattr(handler, "handle", look)
        look.__annotations__["payload"] = handler.payload_model()
    again = Companion(companion.folder, companion.app.store, rules=QUICK)
    async with again.app:
        await again.schedule_sync("ada")
        await again.schedule_summary("ada", MONDAY)
        assert stacks == [], "whoever schedules a job does not run it"
        await drain(again.app)

    assert [any(path.parts[-2:] == ("executors", "thread.py") for path in s) for s in stacks] == [
        True,
        True,
    ]


@pytest.mark.req("S2-0.a")
def test_in_the_code_only_the_dispatcher_calls_handlers() -> None:
    calls = {
        name for name, tree in shipped_modules() if _calls(tree, "handle", "handler", "function")
    }
    example_folder = Path(example.__file__).parent
    files = sorted(example_folder.glob("*.py"))

    # The last one gives a record to a handler of `logging`.
    assert calls == {
        "jobs/handler_class.py",
        "worker/executors/coroutine.py",
        "worker/log_handler.py",
    }
    assert [file.name for file in files if _calls(ast.parse(file.read_text()), "handle")] == []
    assert [file.name for file in files if _makes_handlers(ast.parse(file.read_text()))] == []


def _calls(tree: ast.AST, *names: str) -> bool:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(each, ast.Attribute) and each.attr in names for each in calls)


def _makes_handlers(tree: ast.AST) -> bool:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(each, ast.Name) and each.id.endswith("Handler") for each in calls)


@pytest.mark.req("S2-1.h")
async def test_both_types_are_accepted_and_an_unknown_one_is_refused(
    companion: Companion, sql: Sql
) -> None:
    async with companion.app:
        await companion.schedule_sync("ada")
        await companion.schedule_summary("ada", MONDAY)
        with pytest.raises(TypeNotFound, match=r"weekly_summary.*did you mean daily_summary"):
            companion.app.registry.dump_params("weekly_summary", {"user_id": "ada"})

    types = sql.rows("SELECT type FROM outlast_jobs ORDER BY seq")
    assert types == [("user_sync",), ("daily_summary",)]


@pytest.mark.parametrize("user_id", ["", "Ada", "a/../b", "a#b", "a" * 41])
async def test_a_user_that_cannot_be_one_is_refused(companion: Companion, user_id: str) -> None:
    async with companion.app:
        with pytest.raises(InvalidParams, match="user_id"):
            await companion.schedule_summary(user_id, MONDAY)


@pytest.mark.req("S2-5.b")
async def test_a_summary_is_sent_once_per_user_and_day(companion: Companion) -> None:
    async with companion.app:
        for user in ("ada", "bob"):
            await companion.schedule_sync(user)
        await drain(companion.app)
        handles = [
            await companion.schedule_summary(user, day)
            for day in (MONDAY, TUESDAY, MONDAY)
            for user in ("ada", "bob", "ada")
        ]
        await drain(companion.app)
        late = await companion.schedule_summary("ada", MONDAY)
        await drain(companion.app)

    assert companion.app.registry.get("daily_summary").function.__qualname__ == (
        f"{DailySummaryHandler.__name__}.handle"
    )
    assert sum(handle.created for handle in handles) == 4
    assert not late.created
    assert sorted((each.user_id, each.text) for each in companion.world.chat.messages()) == [
        ("ada", "Ada, your Monday: called the printer; finished note G."),
        ("ada", "Ada, your Tuesday: called the printer; finished note G."),
        ("bob", "Bob, your Monday: watered the fern."),
        ("bob", "Bob, your Tuesday: watered the fern."),
    ]
    assert len(companion.world.chat.calls()) == 4


async def run_twice(name: str, folder: Path, store: SqliteStore, clock: FakeClock) -> Companion:
    """Schedule a job of that type for Ada; its first worker dies when the effect is there."""
    before = Companion(folder, store, rules=QUICK)
    forgetful = Forgetful(store)
    companion = Companion(folder, forgetful, rules=QUICK)  # type: ignore[arg-type]  # it is like one
    async with companion.app:
        if name == "daily_summary":
            await before.schedule_sync("ada")
            await drain(before.app)
            handle = await companion.schedule_summary("ada", MONDAY)
        else:
            handle = await companion.schedule_sync("ada")
        first = await drain(companion.app)
        assert (first.refused, (await handle.read()).state) == (1, State.RUNNING)
        clock.advance("1m")
        assert (await Maintenance(store, companion.app._ids.job).run_once()).reclaimed == 1
        await drain(companion.app)
        runs = await companion.app.runs(handle.id)
    assert [run.status for run in runs] == ["lost", "succeeded"]
    return companion


@pytest.mark.req("S2-7.1.a")
@pytest.mark.parametrize("name", HANDLERS)
async def test_each_handler_that_we_ship_has_one_effect_when_it_runs_twice(
    name: str, tmp_path: Path, store: SqliteStore, clock: FakeClock
) -> None:
    companion = await run_twice(name, tmp_path, store, clock)

    user = companion.world.memory.user("ada")
    assert user is not None
    assert user.syncs == 1
    sent = [name == "daily_summary"]
    assert [bool(companion.world.memory.summary_sent_at("ada", MONDAY))] == sent
    assert len(companion.world.chat.messages()) == sum(sent)


@pytest.mark.req("S2-5.c")
async def test_the_same_token_syncs_once_and_another_one_again(
    tmp_path: Path, store: SqliteStore, clock: FakeClock
) -> None:
    companion = await run_twice("user_sync", tmp_path, store, clock)
    once = companion.world.memory.user("ada")
    async with companion.app:
        handle = await companion.schedule_sync("ada")
        await drain(companion.app)
    twice = companion.world.memory.user("ada")

    assert companion.app.registry.get("user_sync").function.__qualname__ == (
        f"{UserSyncHandler.__name__}.handle"
    )
    assert once is not None
    assert twice is not None
    assert (once.syncs, twice.syncs) == (1, 2)
    assert once.token != twice.token == str(uuid5(UUID(handle.id), "sync"))


@pytest.mark.req("S2-7.1.b")
@pytest.mark.parametrize(
    ("when", "calls"), [("noted, not completed", 1), ("sent, not noted", 2)], ids=["noted", "sent"]
)
async def test_killed_before_it_is_completed_the_second_execution_sends_nothing(
    tmp_path: Path, when: str, calls: int
) -> None:
    with Child(die_in_a_summary, tmp_path, when) as child:
        job_id = child.hear()
        assert child.end() == -9
    companion = Companion(tmp_path, rules=QUICK)
    before = companion.world.chat.messages()

    async with companion.app, companion.app.worker(instance_id="second"):
        job = await companion.app.wait(job_id, SOON)
        runs = await companion.app.runs(job_id)

    token = str(uuid5(UUID(job_id), "summary"))
    assert (job.state, [run.status for run in runs]) == (State.SUCCEEDED, ["lost", "succeeded"])
    assert (
        companion.world.chat.messages()
        == before
        == [Message(token=token, user_id="ada", text=before[0].text)]
    )
    assert companion.world.chat.calls() == [token] * calls
    assert companion.world.memory.summary_sent_at("ada", MONDAY) is not None


@pytest.mark.req("S2-7.1.c")
async def test_every_run_of_a_job_has_the_same_token(app: Outlast, clock: FakeClock) -> None:
    tokens = []

    @app.job
    def note(run: Run) -> None:
        tokens.append((run.token, token_of(run, "summary"), token_of(run, "sync")))
        if run.attempt < 3:
            raise ConnectionError

    handle = await note.enqueue()
    for _ in range(3):
        await drain(app)
        clock.advance("1h")
    other = await note.enqueue()
    await drain(app)

    job = UUID(handle.id)
    expected = (str(uuid5(job, "summary")), str(uuid5(job, "sync")))
    assert [each[0] for each in tokens[:3]] == [1, 2, 3]
    assert {each[1:] for each in tokens[:3]} == {expected}
    assert tokens[3][1:] == (
        str(uuid5(UUID(other.id), "summary")),
        str(uuid5(UUID(other.id), "sync")),
    )
    assert len({*expected, *tokens[3][1:]}) == 4


@pytest.mark.req("S2-7.1.d")
async def test_an_effect_that_is_not_idempotent_is_repeated_and_the_pages_say_so(
    store: SqliteStore, clock: FakeClock
) -> None:
    effects = []
    app = Outlast(Forgetful(store), poll="5ms", lease="300ms", renew="100ms")  # type: ignore[arg-type]  # it is like one

    @app.job
    def careless(run: Run) -> None:
        effects.append(run.job_id)

    async with app:
        handle = await app.registry.get("careless").options(key="once", bucket="today").enqueue()
        await drain(app)
        clock.advance("1s")
        await Maintenance(store, app._ids.job).run_once()
        await drain(app)

    assert effects == [handle.id, handle.id]
    promises = " ".join((ROOT / "docs" / "guarantees.md").read_text().split())
    assert (
        "**Effects are not deduplicated.** Making a handler idempotent is its author's" in promises
    )
    assert "A handler must be idempotent" in str(HANDLERS["user_sync"].__mro__[1].__doc__)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_on_another_store_it_is_the_same_program(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else None
    companion = Companion(tmp_path, url, rules=QUICK)

    async with companion.app, companion.app.worker():
        synced = await companion.schedule_sync("ada")
        await synced.wait(SOON)
        handles = [await companion.schedule_summary("ada", MONDAY) for _ in range(3)]
        unknown = await companion.schedule_summary("zoe", MONDAY)
        states = await asyncio.gather(*(each.wait(SOON) for each in (*handles, unknown)))

    assert [job.state for job in states] == [State.SUCCEEDED] * 3 + [State.DEAD_LETTER]
    assert states[-1].failures == 5
    assert len(companion.world.chat.messages()) == 1
