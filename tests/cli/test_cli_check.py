"""`outlast check`: new code is tried on what waits, before it is deployed."""

import asyncio
import json
import secrets
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import Result

from outlast import Outlast
from outlast.cli.app_loader import load_app
from outlast.clock import SystemClock
from outlast.core.decide import decide
from outlast.core.event import Unfit
from outlast.core.ids import Ids
from outlast.core.job import Job
from outlast.core.run import LeaseHolder
from outlast.fit_check import NO_CODE
from outlast.store.contract.jobs import Filter

from . import json_models as models
from .conftest import Cli

SECRET = "ada@example.org"  # noqa: S105 - a param that no output may show

NEW = """
from typing import Annotated

from outlast import Outlast
from pydantic import AfterValidator

app = Outlast("sqlite:///elsewhere.db")


def refuse(text: str) -> str:
    raise ValueError(f"no {text} here")


@app.job
async def add(left: int, right: int = 0, third: int = 0) -> int:
    return left + right + third


@app.job(queue="mail")
async def broken(user: Annotated[str, AfterValidator(refuse)]) -> None: ...


@app.job(queue="studio", delivery="linked")
async def story(headline: str) -> None: ...


@app.job(delivery="once")
async def brief() -> None: ...
"""


@pytest.fixture
def deployed(cli: Cli) -> Iterator[Cli]:
    """A store of the old app with waiting jobs, and `new.py`, whose own store is another."""
    (cli.folder / "new.py").write_text(NEW)
    sys.modules.pop("new", None)
    cli.enqueue("add", '{"left": 1}')
    yield cli
    sys.modules.pop("new", None)


def check(cli: Cli, *more: str) -> Result:
    return cli("check", "--app", "new:app", "--url", cli.url, *more, app=None)


def dump(cli: Cli) -> list[str]:
    """Every job and event of the store."""

    async def read() -> list[str]:
        async with Outlast(cli.url) as app:
            jobs = [job async for job in _jobs(app)]
            return [*map(str, jobs), *map(str, await app.store.stream(limit=1000))]

    return asyncio.run(read())


async def _jobs(app: Outlast) -> AsyncIterator[Job]:
    for job in await app.store.find(Filter(), limit=1000):
        yield job


def test_code_that_reads_all_waiting_work_passes(deployed: Cli) -> None:
    result = check(deployed)

    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "1 waiting job, 0 running jobs, 0 schedules, 0 templates tried: 0" in result.stderr
    assert not (deployed.folder / "elsewhere.db").exists()


def test_what_would_not_fit_is_grouped_by_type_and_problem_without_values(deployed: Cli) -> None:
    ids = [deployed.enqueue("story", json.dumps({"title": SECRET})) for _ in range(5)]
    deployed.enqueue("broken", json.dumps({"user": SECRET}))
    deployed.enqueue("counting", '{"to": 3}')
    before = dump(deployed)

    result = check(deployed)
    documents = [json.loads(line) for line in check(deployed, "--json").stdout.splitlines()]

    assert result.exit_code == 1
    assert SECRET not in result.output
    found = {(each["type"], each["problem"]): each for each in documents}
    assert set(found) == {
        ("story", 'param "headline": missing; param "title": extra_forbidden'),
        ("broken", 'param "user": value_error'),
        ("counting", NO_CODE),
    }
    for each in documents:
        models.Misfit.model_validate(each)
    stories = found["story", 'param "headline": missing; param "title": extra_forbidden']
    assert stories["count"] == 5
    assert len(stories["examples"]) == 3
    assert set(stories["examples"]) <= set(ids)
    assert "7 would not fit" in result.stderr
    assert dump(deployed) == before


def test_schedules_and_templates_are_tried_too(deployed: Cli) -> None:
    deployed.out(
        *shlex.split(
            """schedule save daily "0 2 * * *" -t story --params '{"title": "x"}' --coalesce
        --misfire-grace 5m"""
        )
    )
    deployed.out("template", "save", "slow", "counting")
    deployed.out("template", "save", "part", "add")

    documents = [json.loads(line) for line in check(deployed, "--json").stdout.splitlines()]

    assert [(each["what"], each["type"], each["examples"]) for each in documents] == [
        ("schedule", "story", ["daily"]),
        ("template", "counting", ["slow"]),
    ]


def test_a_running_job_that_would_not_fit_is_a_note(deployed: Cli) -> None:
    deployed.enqueue("story", '{"title": "x"}')

    async def claim() -> None:
        app = load_app("tasks:app")
        async with app:
            holder = LeaseHolder(instance_id="w", boot_id="b")
            await app.store.claim(
                holder, queue="studio", types=["story"], limit=1, lease=timedelta(hours=1)
            )

    asyncio.run(claim())
    result = check(deployed, "--json")

    [document] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (document["what"], document["type"]) == ("running_job", "story")
    assert result.exit_code == 0


def test_a_limit_tries_the_newest_jobs_and_says_so(deployed: Cli) -> None:
    deployed.enqueue("story", '{"title": "x"}')
    for _ in range(3):
        deployed.enqueue("add", '{"left": 1}')

    result = check(deployed, "--limit", "3")

    assert result.exit_code == 0
    assert "3 waiting jobs" in result.stderr
    assert "older jobs were not tried" in result.stderr


def test_every_page_of_jobs_is_tried(deployed: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.fit_check.PAGE", 2)
    for _ in range(5):
        deployed.enqueue("story", '{"title": "x"}')

    [document] = [json.loads(line) for line in check(deployed, "--json").stdout.splitlines()]

    assert document["count"] == 5


def test_a_check_without_an_app_says_what_to_give(deployed: Cli) -> None:
    result = deployed("check", "--url", deployed.url, app=None)

    assert result.exit_code == 2
    assert "--app" in result.stderr


def test_without_a_url_the_store_of_the_app_is_checked(deployed: Cli) -> None:
    result = deployed("check", "-a", "tasks:app", app=None)

    assert result.exit_code == 0
    assert "1 waiting job" in result.stderr


def test_a_store_that_is_missing_is_named(deployed: Cli, tmp_path: Path) -> None:
    result = deployed("check", "-a", "new:app", "--url", "sqlite:///missing.db", app=None)

    assert result.exit_code == 5
    assert "missing.db" in result.stderr


def test_a_refused_job_is_shown_with_its_refusals_everywhere(deployed: Cli) -> None:
    """`show`, `jobs`, `explain` and `doctor` name the worker and count, and quote no param."""
    job_id = deployed.enqueue("story", json.dumps({"title": SECRET}))

    async def refuse() -> None:
        async with load_app("tasks:app") as app:
            holder = LeaseHolder(instance_id="old-1", boot_id="b")
            [claim] = await app.store.claim(
                holder, queue="studio", types=["story"], limit=1, lease=timedelta(hours=1)
            )
            event = Unfit("no field", "old-1", timedelta(hours=1))
            new_id = Ids(SystemClock().now, secrets.randbits).job
            assert await app.store.apply([decide(claim, event, new_id=new_id)]) == [True]

    asyncio.run(refuse())
    [_, successor] = deployed.documents("show", job_id)[0]["chain"]

    [shown] = deployed.documents("show", successor)
    models.ShownJob.model_validate(shown)
    assert (shown["refusals"]["count"], shown["refusals"]["workers"]) == (1, ["old-1"])
    for command in (["show", successor], ["jobs", "type:story"], ["explain", successor]):
        assert "refused once since" in deployed.out(*command)
    assert SECRET not in deployed.out("explain", successor)
    checks = map(json.loads, deployed("doctor", "--json").stdout.splitlines())
    found = {each["check"]: each for each in checks}
    assert found["Params"]["verdict"] == "warn"
    assert "1 job with params that no worker could read" in found["Params"]["text"]
    assert f"outlast explain {successor}" in found["Params"]["fix"]
