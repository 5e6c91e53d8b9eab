"""`--json` of every command: nested objects, ISO 8601 times, and the fields of the models."""

import asyncio
import json
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import click
import pytest

from outlast import Outlast
from outlast.cli.app_loader import load_app
from outlast.cli.json_values import is_unreadable, stored_json
from outlast.cli.main import main
from outlast.core.failure import StoredError, split_error
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.reservation import NewReservation, ReservationId
from outlast.core.worker import WorkerInfo

from . import json_models as models
from .conftest import Cli

APP = """
from datetime import timedelta
from outlast import Backoff, Command, Outlast, Run

app = Outlast("sqlite:///jobs.db", renew="500ms")


@app.job
async def add(left: int, right: int = 0) -> dict[str, int]:
    return {"sum": left + right}


@app.job(retry=Backoff(max_attempts=1))
async def broken(user: str) -> None:
    raise KeyError(user)


@app.job(retry=Backoff(base=timedelta(hours=1)))
async def flaky(run: Run) -> None:
    run.progress(1, 2, "half")
    raise ConnectionError("away")


@app.job(queue="story", delivery="linked", retry=Backoff(base=timedelta(hours=1)))
async def story(title: str) -> str:
    raise OSError(title)


@app.job(executor="command")
def shell() -> Command:
    return Command(["echo", "hello"])


@app.job(queue="slow")
async def slow(run: Run) -> None: ...
"""

WORKER = WorkerInfo(
    instance_id="w1", boot_id="b1", host="h", pid=1, queues=("slow",), types=("slow",),
    concurrency=2,
)  # fmt: skip
DAY = timedelta(days=1)
RESERVED = "01900000-0000-7000-8000-00000000000a"


async def build() -> dict[str, str]:
    """Fill the store of the app in this folder; return the ids by what they are."""
    async with Outlast("sqlite:///rest.db"):
        pass
    app = load_app("tasks:app")
    kinds = {name: app.registry.get(name) for name in app.registry.names()}
    async with app:
        params = {"add": {"left": 1}, "broken": {"user": "ada"}, "story": {"title": "t"}}
        ids = {
            name: (await kinds[name].enqueue(**params.get(name, {}))).id
            for name in ("add", "broken", "flaky", "story", "shell", "slow")
        }
        bound = [kinds["add"].bind(left=n) for n in range(2)]
        ids["group"] = (await app.groups.start(bound, name="two")).id
        ids["open"] = (await app.groups.start([kinds["slow"].bind()])).id
        async with app.worker(queues=["default", "story"]) as worker:
            await worker.drained()
        store = app.store
        await store.register_worker(WORKER)
        await store.heartbeat(WORKER.holder, span=DAY)
        (run,) = await store.claim(WORKER.holder, queue="slow", types=["slow"], limit=1, lease=DAY)
        await store.record_progress([(run.lease, '{"done": 5, "total": 10, "message": "m"}')])
        await store.reserve(
            NewReservation(id=ReservationId(RESERVED), caller="c", request="r", span=DAY),
            NewJob(id=JobId(RESERVED), type="add", params='{"left": 1}', name="add", queue="held"),
        )
        ids["waiting"] = (await kinds["add"].enqueue(left=7)).id
        ids["other"] = (await kinds["add"].enqueue(left=8)).id
        ids["held"] = (await kinds["add"].options(queue="held").enqueue(left=9)).id
        await app.queues.pause("story", reason="db move", duration="1h")
        await app.templates.save("weekly", kinds["add"], params={"left": 3})
        for name in ("nightly", "often"):
            await app.schedules.save(
                name, "30 2 * * *", kinds["add"], params={"left": 1}, timezone="Europe/Berlin",
                coalesce=True, misfire_grace="5m",
            )  # fmt: skip
        await app.schedules.run("nightly", "next")
    return ids


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("json")
    with pytest.MonkeyPatch.context() as patch:
        logs = (
            f'renew="500ms", logs={str(folder / "outlast-logs")!r}'  # `logs` reads no other folder
        )
        (folder / "tasks.py").write_text(APP.replace('renew="500ms"', logs))
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        sys.modules.pop("tasks", None)
        ids = asyncio.run(build())
        sys.modules.pop("tasks", None)
    return folder, ids


@pytest.fixture
def full(cli: Cli, built: tuple[Path, dict[str, str]]) -> tuple[Cli, dict[str, str]]:
    """A folder with a copy of the store."""
    folder, ids = built
    shutil.copytree(folder, cli.folder, dirs_exist_ok=True)
    return cli, ids


CASES: list[tuple[str, type[models.Model]]] = [
    # (what is typed, the model of each object); <name> is an id
    ("jobs", models.Job),
    ("jobs state:retry_wait,dead_letter", models.Job),
    ("jobs --count", models.JobCount),
    ("show <add>", models.ShownJob),
    ("show <broken>", models.ShownJob),
    ("show <flaky>", models.ShownJob),
    ("show <story>", models.ShownJob),
    ("show <slow>", models.ShownJob),
    ("logs <shell>", models.LogText),
    ("logs <slow>", models.LogProgress),
    ("logs <broken>", models.Event),
    ("explain <add>", models.Explained),
    ("explain <slow>", models.Explained),
    ("explain <flaky>", models.Explained),
    ("explain <waiting>", models.Explained),
    ("explain <held>", models.Explained),
    ('enqueue add {"left":1}', models.Enqueued),
    ("edit <waiting> --in 1h", models.Job),
    ("move <waiting> back", models.Job),
    ("retry <broken>", models.Retried),
    ("cancel <slow>", models.Cancelled),
    ("cancel state:waiting --yes", models.Cancelled),
    ("queue list", models.ListedQueue),
    ("queue order default", models.Job),
    ("queue pause default --for 5m --reason r", models.Queue),
    ("queue resume story", models.Queue),
    ("queue save story --concurrency 3", models.Queue),
    ("queue renumber default", models.Renumbered),
    ("schedule list", models.Schedule),
    ("schedule next nightly", models.Upcoming),
    ("schedule test --every 15m", models.Upcoming),
    ("schedule save new --every 15m -t slow --coalesce --misfire-grace 1m --jitter 3s",
     models.Schedule),
    ("schedule edit often --max-instances 2", models.Schedule),
    ("schedule edit often --cron @hourly --dry-run", models.SlotChange),
    ("schedule remove often", models.Removed),
    ("schedule run often --next", models.SlotJob),
    ("schedule pause often", models.Schedule),
    ("schedule resume often", models.Schedule),
    ("schedule backfill often --since 2026-03-28T00:00Z --until 2026-03-30T00:00Z",
     models.Backfilled),
    ("schedule history nightly", models.SlotRecord),
    ("template list", models.Template),
    ("template save daily add", models.Template),
    ("template enqueue weekly", models.Id),
    ("template remove weekly", models.Removed),
    ("group list", models.Group),
    ("group get <group>", models.Group),
    ("group cancel <open>", models.Group),
    ("workers", models.Worker),
    ("top", models.Top),
    ("doctor", models.Finding),
    ("db migrate", models.StoreStatus),
    ("db status", models.StoreStatus),
    ("db prune --older-than 0s --yes", models.Deleted),
    ("db copy --from sqlite:///rest.db --to sqlite:///other.db", models.Copied),
]  # fmt: skip
ELSEWHERE = {"verify", "health", "check"}
"""Commands that need another kind of store, or a worker; they have a test of their own."""


def _commands(group: click.Group, path: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path}{name} ")
        elif any("--json" in each.opts for each in command.params):
            yield f"{path}{name}"


def test_the_json_of_every_command_has_a_model() -> None:
    assert isinstance(main, click.Group)
    tested = {
        name for name in _commands(main) if any(f"{c[0]} ".startswith(f"{name} ") for c in CASES)
    }

    assert tested | ELSEWHERE == set(_commands(main))


@pytest.mark.parametrize(("typed", "model"), CASES, ids=[case[0] for case in CASES])
def test_json_is_nested_objects_with_iso_times(
    full: tuple[Cli, dict[str, str]], typed: str, model: type[models.Model]
) -> None:
    cli, ids = full
    words = [ids[word.strip("<>")] if word[0] == "<" else word for word in typed.split()]

    result = cli(*words, "--json")

    assert result.exit_code in {0, 1}, (result.output, result.exception)
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    assert printed
    for each in printed:
        model.model_validate(each)


def test_the_json_of_a_violation_names_its_repair(full: tuple[Cli, dict[str, str]]) -> None:
    cli, _ = full
    with sqlite3.connect(cli.folder / "jobs.db") as database:
        database.execute("DROP TRIGGER outlast_ends_kept")
        database.execute("DELETE FROM outlast_ends")
    database.close()

    printed = [json.loads(line) for line in cli("verify", "--json").stdout.splitlines()]

    assert printed
    for each in printed:
        models.Violation.model_validate(each)


@pytest.mark.slow
def test_wait_ends_with_the_result_or_the_error_as_an_object(cli: Cli, worker: object) -> None:
    good = cli("enqueue", "add", '{"left": 3}', "--wait", "--json")
    bad = cli("enqueue", "broken", '{"user": "ada"}', "--wait", "--json")

    ends = []
    for result in (good, bad):
        enqueued, ended = result.stdout.splitlines()
        models.Enqueued.model_validate_json(enqueued)
        ends.append(models.Ended.model_validate_json(ended))
    assert (ends[0].result, ends[0].error) == (3, None)
    assert ends[1].error is not None
    assert (ends[1].error.type, ends[1].error.message) == ("KeyError", "'ada'")


@pytest.mark.parametrize("payload", ["{not json", '{"x":NaN}', '{"x":1e999}', "[" * 3000])
def test_a_stored_text_that_is_not_json_stays_text(payload: str) -> None:
    assert stored_json(payload) == payload
    assert is_unreadable(payload)


def test_an_error_is_its_class_its_message_and_its_traceback() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nKeyError: 1\n\n'
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    h()\n'
        "shop.Refused: no\nreally\n"
    )
    group = (
        '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 1, in f\n'
        "  |     raise\n  | ExceptionGroup: two (2 sub-exceptions)\n  +-+----- 1 -----\n"
    )

    chained, grouped, lost = map(split_error, (text, group, "worker w1 stopped"))

    assert chained == StoredError(type="shop.Refused", message="no\nreally", traceback=text)
    assert chained.summary == "shop.Refused: no"
    assert (grouped.type, grouped.message) == ("ExceptionGroup", "two (2 sub-exceptions)")
    assert lost == StoredError(type=None, message="worker w1 stopped", traceback=None)
