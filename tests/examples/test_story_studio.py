"""The story studio end to end, with the settings of S1."""

import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from itertools import pairwise
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest

import outlast as package
from outlast import Backoff, InvalidParams, Outlast, Queue, State
from outlast.core.ordering import Ordering
from outlast.testing.harness import Harness
from outlast.verify import verify
from story_studio import queries, words
from story_studio.show import main
from story_studio.studio import QUEUE, Studio, app

EXAMPLE = Path(words.__file__).parent
README = (EXAMPLE / "README.md").read_text()
FOUND_IN = os.pathsep.join([str(Path(package.__file__).parents[1]), str(EXAMPLE.parent)])


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    return Studio(tmp_path)


@pytest.fixture
def outlast_app(studio: Studio) -> Outlast:
    return studio.app


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": FOUND_IN},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def text_of(path: str | None) -> str:
    assert path is not None
    return Path(path).read_text()


def show(query: str, folder: Path) -> list[dict[str, Any]]:
    with redirect_stdout(StringIO()) as reported:
        main([query, str(folder)])
    return [json.loads(line) for line in reported.getvalue().splitlines()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that the one command leaves behind, and what it printed."""
    folder = tmp_path_factory.mktemp("world")
    done = python("-m", "story_studio.run", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "studio", done.stdout


def test_the_one_command_shows_every_table_of_s1(world: tuple[Path, str]) -> None:
    _, reported = world

    tables = re.findall(r"^(\w+)\n  (\S+)", reported, re.MULTILINE)

    assert tables == [
        ("order", "job_id"),
        ("reserved", "reservation_id"),
        ("order", "job_id"),
        ("job_templates", "template_id"),
        ("jobs", "job_id"),
        ("job_runs", "job_id"),
        ("direct_reservations", "reservation_id"),
        ("schedules", "schedule_id"),
    ]
    assert max(map(len, reported.splitlines())) <= 100, "it fits into a terminal"
    for word in ("RUNNING", "COMPLETED", "FAILED", "SKIPPED", "ACTIVE", "RELEASED", "for the boss"):
        assert word in reported
    assert re.findall(r"attempt (\d)  (.*)", reported) == [
        ("0", "failed"),
        ("1", "failed"),
        ("2", "failed"),
        ("3", "permanently failed"),
    ]


def test_its_jobs_ran_one_at_a_time_the_direct_one_first_and_the_moved_one_next(
    world: tuple[Path, str],
) -> None:
    folder, _ = world
    jobs = {row["job_id"]: row for row in show("jobs", folder)}

    runs = show("job_runs", folder)

    what = [jobs[run["job_id"]]["params"] for run in runs]
    titles = [params.get("title", params.get("topic")) for params in what]
    assert titles == [
        "A Story Right Now",
        "lighthouses",
        "The Keeper's Lamp",
        "The Unknown Dragon",
        "lighthouses",
        "tides",
        *["The Unknown Dragon"] * 3,
    ]
    assert all(one["finished_at"] <= two["started_at"] for one, two in pairwise(runs))
    assert len({run["job_id"] for run in runs}) == len(runs) == len(jobs)


def test_its_stories_logs_and_notes_are_where_the_runs_say(world: tuple[Path, str]) -> None:
    folder, _ = world

    runs = show("job_runs", folder)

    made = [Path(path) for run in runs for path in run["artifacts"]]
    logs = [Path(run["log_path"]) for run in runs if run["log_path"]]
    assert sorted(made) == sorted([*folder.glob("notes/*"), *folder.glob("stories/*")])
    assert sorted(logs) == sorted(folder.glob("logs/*"))
    assert (len(made), len(logs)) == (4, 6)
    assert any("A lamp turns once" in path.read_text() for path in folder.glob("stories/*"))
    assert {run["exit_code"] for run in runs if run["status"] == "FAILED"} == {3}


def test_every_query_of_s1_is_a_command_with_its_columns(world: tuple[Path, str]) -> None:
    folder, _ = world

    answers = {name: show(name, folder) for name in queries.QUERIES}

    job = list(answers["jobs"][0])
    assert list(answers["permanently_failed"][0]) == job
    assert list(answers["failed"][0]) == [*answers["job_runs"][0], "retry_of"]
    assert len(answers["failed"]) == 4
    assert [run["retry_of"] is None for run in answers["failed"]] == [True, False, False, False]
    assert len(answers["permanently_failed"]) == 1
    for name in ("next", "order", "reserved", "interrupted", "without_run"):
        assert answers[name] == [], "everything is over"


@pytest.mark.slow
def test_the_command_may_be_repeated_and_shows_only_its_own_rows(
    world: tuple[Path, str], tmp_path: Path
) -> None:
    folder, told = world
    copytree(folder, tmp_path / "studio")

    done = python("-m", "story_studio.run", "studio", folder=tmp_path)

    assert (done.returncode, done.stderr) == (0, ""), "warnings go to studio.log"
    assert done.stdout.count("SKIPPED") > 1, "the notes are there already"
    assert len(show("jobs", tmp_path / "studio")) == 2 * len(show("jobs", folder))
    assert done.stdout.count("\n") == told.count("\n")


def test_a_query_is_asked_as_the_readme_says(world: tuple[Path, str]) -> None:
    folder, _ = world

    done = python("-m", "story_studio.show", "failed", "studio", folder=folder.parent)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 4


def test_a_wrong_query_is_refused_with_the_names_of_all(tmp_path: Path) -> None:
    done = python("-m", "story_studio.show", "everything", folder=tmp_path)

    assert done.returncode == 2
    assert all(name in done.stderr for name in queries.QUERIES)
    assert not list(tmp_path.iterdir())


async def test_the_settings_are_those_of_s1(studio: Studio, outlast: Harness) -> None:
    queue = await studio.prepare()

    for kind in (studio.story, studio.research):
        assert (kind.delivery, kind.queue, kind.priority) == ("linked", QUEUE, 0)
        assert kind.retry == Backoff(max_attempts=4, base="0s", jitter=False)
    assert (studio.story.executor, studio.research.executor) == ("command", "thread")
    assert queue == Queue(name=QUEUE, ordering=Ordering.POSITION, gap=100, concurrency=1)
    assert timedelta(minutes=5) <= studio.app.settings.reservation <= timedelta(minutes=10)
    assert sorted(app.registry.names()) == ["research", "story"]


@pytest.mark.parametrize("topic", ["", "..", "../secrets", "a/b", "Tides", "a b", "x" * 41, "a\n"])
async def test_a_topic_that_could_name_another_file_is_refused(
    studio: Studio, outlast: Harness, topic: str
) -> None:
    with pytest.raises(InvalidParams):
        await studio.research.enqueue(topic)
    with pytest.raises(InvalidParams):
        await studio.story.enqueue("A Story", topic=topic)

    assert outlast.jobs() == []


@pytest.mark.parametrize("title", ["-h", "--pages", "“Zwölf” & $(rm -r .)", "[*]", "a\nb"])
async def test_any_title_is_only_a_title(studio: Studio, outlast: Harness, title: str) -> None:
    await studio.prepare()
    handle = await studio.story.enqueue(title)

    await outlast.drain(raising=True)

    [run] = await studio.app.runs(handle.id)
    [story] = words.run_row(run).artifacts
    assert text_of(story).startswith(f"{title}\n")


async def test_a_failing_story_says_why_in_its_error_and_its_log(
    studio: Studio, outlast: Harness
) -> None:
    await studio.prepare()
    handle = await studio.story.enqueue("The Unknown Dragon", topic="dragons")

    drained = await outlast.drain()

    [run] = await studio.app.runs(handle.id)
    row = words.run_row(run)
    assert [ran.job.state for ran in drained] == [State.FAILED] * 3 + [State.DEAD_LETTER]
    assert "there are no notes called dragons" in (row.error or "")
    assert "there are no notes called dragons" in text_of(row.log_path)
    assert not list(studio.folder.glob("stories/*"))


async def test_half_of_the_notes_that_a_crash_left_are_no_notes(
    studio: Studio, outlast: Harness
) -> None:
    await studio.prepare()
    draft = studio.notes("tides").with_suffix(".draft")
    draft.parent.mkdir()
    draft.write_text("The sea comes")
    await studio.research.enqueue("tides")

    [ran] = await outlast.drain(raising=True)

    assert (ran.result, text_of(ran.run.artifacts[0]).count("\n")) == (2, 2)
    assert [path.name for path in draft.parent.iterdir()] == ["tides.txt"]


async def test_the_retry_waits_behind_the_others_and_copies_what_was_asked(
    studio: Studio, outlast: Harness
) -> None:
    await studio.prepare()
    template = await studio.app.templates.save("lost", studio.research, params={"topic": "dragons"})
    await studio.app.templates.enqueue("lost")
    other = await studio.research.enqueue("tides")

    await outlast.drain(limit=1)

    [first, _, retry] = await queries.jobs(studio)
    assert [row["job_id"] for row in await queries.order(studio)] == [other.id, retry["job_id"]]
    assert (retry["retry_of"], retry["status"]) == (first["job_id"], "QUEUED")
    assert retry["template_id"] == first["template_id"] == template.id
    assert (retry["params"], retry["priority"]) == (first["params"], first["priority"])
    assert first["finished_at"] == retry["created_at"], "there is no backoff"


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_was_moved_or_cancelled_the_head_of_the_query_is_dispatched(
    studio: Studio, outlast: Harness, seed: int
) -> None:
    random = Random(seed)
    await studio.prepare()
    for _ in range(12):
        await studio.research.options(priority=random.randrange(2)).enqueue("dragons")
    expected, dispatched = [], []

    while waiting := await queries.order(studio):
        await disturb(studio, random, [row["job_id"] for row in waiting])
        expected += [row["job_id"] for row in await queries.head(studio)]
        dispatched += [ran.job.id for ran in await outlast.drain(limit=1)]

    rows = await queries.jobs(studio)
    cancelled = [row for row in rows if row["status"] == "CANCELLED"]
    assert dispatched == expected
    assert sorted(dispatched) == sorted({row["job_id"] for row in rows if row not in cancelled})
    assert len(rows) > 12
    assert await queries.without_run(studio) == []
    assert (await verify(outlast.store)).violations == ()


async def disturb(studio: Studio, random: Random, waiting: list[str]) -> None:
    """Do one of the things that S1 lets people do to a queue."""
    job_id, other = random.choice(waiting), random.choice(waiting)
    priorities = [(await studio.app.get(each)).priority for each in (job_id, other)]
    match random.randrange(5):
        case 0:
            await studio.app.move(job_id, random.choice(["front", "back"]))
        case 1 if job_id != other and priorities[0] == priorities[1]:
            await studio.app.move(job_id, **{random.choice(["before", "after", "swap"]): other})
        case 2:
            await studio.app.edit(job_id, priority=random.randrange(3))
        case 3 if len(waiting) > 1:
            await studio.app.cancel(job_id)
        case 4:
            await studio.app.queues.renumber(QUEUE)


def test_the_readme_maps_every_word_of_s1() -> None:
    rows = (words.JobRow, words.JobRunRow, words.ReservationRow, words.ScheduleRow)
    columns = {name for row in rows for name in row.__slots__}
    states = {*words.JobStatus, *words.JobRunStatus, *words.DirectStatus}

    for word in (*columns, *states, *queries.QUERIES):
        assert f"`{word}`" in README, f"the README says nothing of {word}"


def test_what_the_readme_shows_of_the_command_is_what_it_prints(world: tuple[Path, str]) -> None:
    [shown] = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    _, reported = world

    printed = {_alike(line) for line in reported.splitlines()}

    assert len(shown.splitlines()) > 10
    assert [line for line in shown.splitlines() if _alike(line) not in printed] == []


def _alike(line: str) -> str:
    """The line as it is in every run: with no particular id, and at no time of the day."""
    same = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|…[0-9a-f]{12}", "ID", line)
    return re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "TIME", same)
