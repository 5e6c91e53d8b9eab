"""Every statement that S1 prints, run as printed on the tables of the story studio."""

# ruff: noqa: S608 - the names of views are ours

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import asyncpg
import pytest

from outlast import State
from outlast.core.event import Lost
from outlast.core.reservation import NewReservation, ReservationId
from outlast.core.state import Loss
from outlast.store.open import open_store
from outlast.store.postgres.url import parse_url
from outlast.testing.conformance.factories import (
    FAILED,
    SECOND,
    SUCCEEDED,
    job_of,
    make_job,
    new_id,
    settle,
    take,
)
from outlast.verify import verify
from story_studio import queries, views, words
from story_studio.studio import QUEUE, Studio

from .store_urls import SQL
from .store_urls import store_url as make_url

PAGE: Final = Path(__file__).parents[2] / "docs" / "requirements" / "s1.md"
BLOCK: Final = re.compile(r"^### (\d\.\d) [^\n]*\n\n```sql\n(.*?)```$", re.MULTILINE | re.DOTALL)
STATEMENTS: Final = dict(BLOCK.findall(PAGE.read_text("utf-8")))
FRAGMENTS: Final = {
    "SELECT FROM direct_reservations WHERE status = 'ACTIVE'": "no columns",
    "UPDATE job SET status='RUNNING', started_at=now WHERE job_id=?": "no table of that name",
    "INSERT INTO job_runs (run_id, job_id, started_at, ...) VALUES (...)": "columns left out",
    "UPDATE job SET status = 'RUNNING'": "no condition; a step of another",
    "job_runs.job_id REFERENCES jobs.job_id": "part of a definition",
    "SELECT ... FOR UPDATE": "parts left out",
    "INSERT ...": "parts left out",
}
"""What S1 prints in the form of SQL and is no statement, and why."""

Row = Mapping[str, Any]


class Database(Protocol):
    """The studio's database as a person with a SQL client sees it."""

    async def run(self, statement: str, *values: str) -> list[Row]: ...


@dataclass(frozen=True)
class Sqlite:
    path: Path

    async def run(self, statement: str, *values: str) -> list[Row]:
        return await asyncio.to_thread(self._run, statement, values)

    def _run(self, statement: str, values: Sequence[str]) -> list[Row]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement, values)]


@dataclass(frozen=True)
class Postgres:
    dsn: str
    schema: str

    async def run(self, statement: str, *values: str) -> list[Row]:
        connection = await asyncpg.connect(
            self.dsn, server_settings={"search_path": self.schema}, statement_cache_size=0
        )
        try:
            rows = await connection.fetch(statement.replace("?", "$1"), *values)
            return [dict(row) for row in rows]
        finally:
            await connection.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "url" in metafunc.fixturenames:
        metafunc.parametrize("url", SQL, indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return make_url(request, tmp_path)


@pytest.fixture
async def studio(tmp_path: Path, url: str) -> AsyncIterator[Studio]:
    studio = Studio(tmp_path, url)
    async with studio.app:
        await studio.prepare()
        yield studio


@pytest.fixture
def database(studio: Studio, url: str) -> Database:
    if url.startswith("sqlite"):
        return Sqlite(Path(url.removeprefix("sqlite:///")))
    address = parse_url(url)
    return Postgres(address.dsn, f"{address.schema}_studio")


async def fill(studio: Studio) -> None:
    """One job in every state that a job of S1 can have, of both types, with all its links."""
    store, app = studio.app.store, studio.app
    template = await app.templates.save("bedtime", studio.story, params={"pages": 3})
    await studio.schedule(
        template_id=template.id,
        name="A bedtime story, every night",
        cron_expression="0 20 * * *",
        timezone="Europe/Berlin",
        param_overrides={"title": "Good Night"},
    )
    await app.schedules.save(
        "by-type", every="1h", job_type=studio.research, params={"topic": "tides"},
        coalesce=True, misfire_grace="5m", enabled=False,
    )  # fmt: skip
    for event in (SUCCEEDED, FAILED, Lost(Loss.OWNER_DEAD)):
        await app.templates.enqueue("bedtime", title=f"to be {event}"[:100])
        await settle(store, await take(store, queue=QUEUE, types={"story"}), event)
    unwanted = await studio.story.enqueue("Unwanted")
    await app.cancel(unwanted.id)
    await studio.research.options(priority=5, group_id=new_id()).enqueue("first")
    await studio.research.enqueue("second")


async def reserve(studio: Studio) -> str:
    """A direct run whose worker has not come yet."""
    new = NewReservation(
        id=ReservationId(new_id()), caller="caller.1", request="the boss", span=300 * SECOND
    )
    job = make_job(queue=QUEUE, type="story", name="story", delivery="linked", params="{}")
    held = await studio.app.store.reserve(new, job)
    assert held.reservation is not None
    return held.reservation.job_id


def test_the_page_has_each_statement_and_names_each_fragment() -> None:
    listed = [words.strip("`") for words in re.findall(r"`[^`]+`", _fragments_table())]

    assert list(STATEMENTS) == ["3.1", "4.2", "4.3", "4.4", "5.1", "5.2", "5.3", "5.4", "5.5"]
    assert [text for text in FRAGMENTS if text not in listed] == []


def _fragments_table() -> str:
    return PAGE.read_text("utf-8").partition("are no statements:")[2].partition("\n## ")[0]


@pytest.mark.req("S1-3.1.a", "S1-5.4.a")
async def test_s1_3_1_gives_the_job_that_the_next_claim_takes(
    studio: Studio, database: Database
) -> None:
    await fill(studio)

    [row] = await database.run(STATEMENTS["3.1"])

    assert (await take(studio.app.store, queue=QUEUE, types={"story", "research"})).id == _text(
        row["job_id"]
    )
    assert await database.run(STATEMENTS["3.1"]) != [row]


@pytest.mark.parametrize(
    ("section", "query"),
    [
        ("3.1", queries.head),
        ("4.2", queries.jobs),
        ("4.3", queries.reserved),
        ("4.4", queries.failed),
        ("5.1", queries.without_run),
        ("5.4", queries.order),
    ],
)
async def test_each_read_of_s1_gives_the_rows_that_outlast_has(
    studio: Studio,
    database: Database,
    section: str,
    query: Callable[[Studio], Awaitable[Sequence[Row]]],
) -> None:
    await fill(studio)
    await reserve(studio)
    await take(studio.app.store, queue=QUEUE, types={"story"})

    found = await database.run(STATEMENTS[section])

    expected = [
        row for row in await query(studio) if section != "4.2" or row["status"] == "RUNNING"
    ]
    assert _plain(found) == _plain(expected)
    assert expected or section == "5.1"
    assert (await verify(studio.app.store)).violations == ()


@pytest.mark.req("S1-2.5.h", "S1-3.3.e")
async def test_s1_5_5_counts_one_reservation_and_the_queue_remains_intact(
    studio: Studio, database: Database
) -> None:
    await fill(studio)
    before = await database.run(STATEMENTS["5.4"])

    await reserve(studio)

    [row] = await database.run(STATEMENTS["5.5"])
    assert list(row.values()) == [1]
    assert await database.run(STATEMENTS["5.4"]) == before
    assert len(before) == 2 + 2, "two retries, and research on two topics"


@pytest.mark.req("S1-5.2.a")
async def test_s1_5_2_finds_no_run_without_its_job(studio: Studio, database: Database) -> None:
    await fill(studio)
    runs = await queries.job_runs(studio)

    assert await database.run(STATEMENTS["5.2"]) == []

    assert await queries.job_runs(studio) == runs
    assert len(runs) == 3


async def test_s1_5_3_is_refused_with_the_command_that_claims(
    studio: Studio, database: Database
) -> None:
    await fill(studio)
    [head] = await database.run(STATEMENTS["3.1"])
    done = next(row for row in await queries.jobs(studio) if row["status"] == "RUNNING")

    with pytest.raises(Exception, match="outlast worker story_studio"):
        await database.run(STATEMENTS["5.3"], head["job_id"])

    assert await database.run(STATEMENTS["5.3"], done["job_id"]) == [], "no such job is queued"
    assert (await studio.app.get(_text(head["job_id"]))).state is State.QUEUED


@pytest.mark.parametrize("view", views.VIEWS)
async def test_a_write_to_a_view_is_refused_and_changes_nothing(
    studio: Studio, database: Database, view: str
) -> None:
    await fill(studio)
    await reserve(studio)
    [column, *_] = (await database.run(f"SELECT * FROM {view}"))[0]
    before = _plain(await database.run(f"SELECT * FROM {view}"))

    for statement in (
        f"INSERT INTO {view} ({column}) VALUES (NULL)",
        f"UPDATE {view} SET {column} = NULL",
        f"DELETE FROM {view}",
    ):
        with pytest.raises(Exception, match=f"{view} is a view; "):
            await database.run(statement)

    assert _plain(await database.run(f"SELECT * FROM {view}")) == before


@pytest.mark.req("S1-2.1.a", "S1-2.2.a", "S1-2.3.c")
@pytest.mark.parametrize("view", views.VIEWS)
async def test_each_view_has_the_rows_and_columns_of_s1(
    studio: Studio, database: Database, view: str
) -> None:
    await fill(studio)
    await reserve(studio)

    found = await database.run(f"SELECT * FROM {view}")

    assert _plain(found) == _plain(await queries.QUERIES[view](studio))
    assert found
    row = {
        "jobs": words.JobRow,
        "job_runs": words.JobRunRow,
        "job_templates": words.TemplateRow,
        "schedules": words.ScheduleRow,
        "direct_reservations": words.ReservationRow,
    }[view]
    assert list(found[0]) == list(row.__slots__)


@pytest.mark.req("S1-2.3.b", "S1-2.3.c")
async def test_a_schedule_is_made_of_the_fields_of_s1_alone(
    studio: Studio, database: Database
) -> None:
    await fill(studio)
    [template] = await queries.job_templates(studio)

    rows = await database.run("SELECT * FROM schedules ORDER BY name")

    made = rows[0]
    assert made["name"] == "A bedtime story, every night"
    assert _text(made["template_id"]) == template["template_id"]
    assert (made["cron_expression"], made["timezone"]) == ("0 20 * * *", "Europe/Berlin")
    assert bool(made["enabled"])
    assert made["last_triggered_at"] is None
    assert rows[1]["template_id"] is None, "it targets a type"


async def test_a_direct_job_is_a_row_once_it_is_dispatched(
    studio: Studio, database: Database
) -> None:
    await fill(studio)
    direct = await reserve(studio)
    waiting = await database.run("SELECT * FROM jobs WHERE job_id = ?", direct)

    await take(studio.app.store, queue=QUEUE, types={"story"})
    [running] = await database.run("SELECT * FROM jobs WHERE job_id = ?", direct)
    await settle(studio.app.store, await job_of(studio.app.store, direct), SUCCEEDED)
    [done] = await database.run("SELECT * FROM jobs WHERE job_id = ?", direct)

    assert waiting == []
    assert (running["status"], running["finished_at"]) == ("RUNNING", None)
    assert (done["status"], done["finished_at"] is None) == ("RUNNING", False)


async def test_the_views_are_there_for_every_process_that_opens_the_studio(
    studio: Studio, url: str
) -> None:
    await asyncio.gather(*(views.install(studio.app.store) for _ in range(3)))

    other = open_store(url)
    await other.open()
    assert (await verify(other)).violations == ()
    await other.close()


def _plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as every client could print them, in one order."""
    plain = [{name: _value(value) for name, value in row.items()} for row in rows]
    return sorted(plain, key=lambda row: json.dumps(row, sort_keys=True))


def _value(value: Any) -> Any:
    match value:
        case bool():
            return int(value)
        case datetime():
            return value.astimezone(UTC).isoformat()
        case str() if value.startswith(("{", "[")):
            return json.loads(value)
        case str() if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value):
            return datetime.fromisoformat(value).isoformat()
        case None | int() | list() | dict():
            return value
        case _:
            return _text(value)


def _text(value: Any) -> str:
    return str(value)
