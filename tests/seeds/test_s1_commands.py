"""S1: work done by a subprocess. Its exit code and its log belong to the run, written once."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast import Command, Outlast
from outlast.core.run import RunRecord

from .app_helpers import drain
from .database_file import Sql

CLOSED = "outlast: a closed run is frozen"
CODE = "import os, sys; print('by', os.getpid()); sys.exit(int(sys.argv[1]))"


@pytest.fixture
async def app(path: Path, tmp_path: Path) -> AsyncIterator[Outlast]:
    async with Outlast(f"sqlite:///{path}", poll="5ms", logs=tmp_path / "logs") as app:
        yield app


def render(code: int) -> Command:
    return Command([sys.executable, "-c", CODE, str(code)])


def think() -> int:
    return os.getpid()


async def run_of(app: Outlast, code: int) -> RunRecord:
    """The run of a command that exits with this code."""
    command = app.job(name=f"render{code}", delivery="linked", executor="command")(render)
    handle = await command.options(max_attempts=1).enqueue(code)
    await drain(app)
    [run] = await app.runs(handle.id)
    return run


def log_of(run: RunRecord) -> str:
    assert run.log_path is not None
    return Path(run.log_path).read_text()


@pytest.mark.req("S1-2.2.h")
async def test_the_exit_code_of_a_subprocess_is_written_once(app: Outlast, sql: Sql) -> None:
    failed = await run_of(app, 3)
    fine = await run_of(app, 0)
    thought = await app.job(delivery="linked")(think).enqueue()
    await drain(app)

    assert (failed.status, failed.exit_code) == ("failed", 3)
    assert (fine.status, fine.exit_code) == ("succeeded", 0)
    assert (await app.runs(thought.id))[0].exit_code is None
    for value in ("4", "0", "NULL"):
        statement = f"UPDATE outlast_runs SET exit_code = {value} WHERE exit_code = 3"  # noqa: S608 - ours
        assert sql.refuses(statement) == CLOSED


@pytest.mark.req("S1-2.2.k")
async def test_the_log_path_names_a_file_that_exists_and_is_written_once(
    app: Outlast, sql: Sql
) -> None:
    run = await run_of(app, 0)
    thought = await app.job(delivery="linked")(think).enqueue()
    await drain(app)

    assert log_of(run).startswith("by ")
    assert (await app.runs(thought.id))[0].log_path is None
    for value in ("'other.log'", "NULL"):
        statement = f"UPDATE outlast_runs SET log_path = {value} WHERE log_path IS NOT NULL"  # noqa: S608 - ours
        assert sql.refuses(statement) == CLOSED


@pytest.mark.req("S1-6.2.y")
async def test_a_job_is_worked_on_in_this_process_or_in_another(app: Outlast) -> None:
    here = await app.job(think).enqueue()
    await drain(app)
    there = await run_of(app, 3)

    worked_by = int(log_of(there).split()[1])
    assert await here.result() == os.getpid()
    assert worked_by != os.getpid()
    assert there.exit_code == 3
