"""The command line on DynamoDB and etcd, from an empty server on."""

import asyncio
import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outlast.cli.main import main
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.open import open_store
from outlast.testing.conformance.factories import put
from outlast.testing.servers import dynamodb as local
from support.corruption.keyvalue import KeyValueCorruption

from .conftest import APP

pytestmark = pytest.mark.slow

GARBAGE = (
    "{not json",
    '{"x":' + "[" * 3_000 + "]" * 3_000 + "}",
    '{"x":' + "7" * 5_000 + "}",
)
DRIVERS = {"dynamodb": ("boto3", "dynamodb://jobs"), "etcd": ("aiohttp", "etcd://127.0.0.1")}


@pytest.fixture(params=["dynamodb", "etcd"])
def url(request: pytest.FixtureRequest) -> str:
    """Where nothing is yet."""
    name = f"cli-{secrets.token_hex(6)}"
    server = request.getfixturevalue(request.param)
    return local.url(server, name) if request.param == "dynamodb" else str(server.url(name))


def run(*args: str, url: str | None = None, app: str | None = None) -> Result:
    env = {"OUTLAST_APP": app, "OUTLAST_URL": url, "NO_COLOR": "1"}
    return CliRunner().invoke(main, args, env=env)


def refusal(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("outlast: ")
    return line


def test_from_nothing_to_a_job_that_ran(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"tasks_{secrets.token_hex(4)}"
    Path(f"{name}.py").write_text(APP.replace("sqlite:///jobs.db", url))
    app = f"{name}:app"

    made, again = run("db", "migrate", url=url), run("db", "migrate", url=url)
    enqueued = run("enqueue", "add", '{"left": 1, "right": 2}', app=app)
    lonely = run("doctor", app=app)
    worked = subprocess.run(
        [sys.executable, "-m", "outlast", "worker", app, "--burst"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    seen = [run(*words, app=app) for words in (["jobs"], ["verify"], ["doctor"], ["db", "status"])]

    assert (made.exit_code, again.exit_code, enqueued.exit_code) == (0, 0, 0), enqueued.output
    assert 'queue "default" has 1 due job and no worker' in lonely.output
    assert worked.returncode == 0, worked.stderr
    assert not re.search("WARNING|ERROR|credentials", worked.stderr), worked.stderr
    assert [result.exit_code for result in seen] == [0, 0, 0, 0], [r.output for r in seen]
    assert "succeeded" in seen[0].stdout
    assert "0 violations" in seen[1].stderr
    assert "engine" in seen[3].stdout


@pytest.mark.parametrize("number", range(len(GARBAGE)))
def test_a_stored_text_that_is_no_json_breaks_no_command(url: str, number: int) -> None:
    job_id = asyncio.run(_spoiled(url, GARBAGE[number]))

    results = [
        run(*words, url=url)
        for words in (
            ["show", job_id], ["show", job_id, "--json"], ["jobs", "--json"], ["explain", job_id],
            ["jobs", "params.x=1"], ["logs", job_id], ["top", "--once"], ["verify"], ["doctor"],
        )
    ]  # fmt: skip

    assert {result.exit_code for result in results} <= {0, 1, 2}, [r.output for r in results]
    assert all(isinstance(result.exception, SystemExit | None) for result in results)
    assert "(not readable as JSON)" in results[0].stdout
    assert [json.loads(r.stdout)["unreadable"] for r in results[1:3]] == [["params"]] * 2


async def _spoiled(url: str, params: str) -> str:
    store = open_store(url)
    assert isinstance(store, KeyValueStore)
    await store.open()
    job_id = await put(store)
    await KeyValueCorruption(store.engine).replace_params(job_id, params)
    await store.close()
    return job_id


def test_table_that_is_missing_is_said_and_not_made(dynamodb: str) -> None:
    url = local.url(dynamodb, f"cli-{secrets.token_hex(6)}")

    for command in (["jobs"], ["doctor"], ["db", "status"], ["verify"]):
        line = refusal(run(*command, url=url), 5)

        assert "there is no store at" in line
        assert "outlast db migrate" in line


@pytest.mark.parametrize("engine", sorted(DRIVERS))
def test_there_is_no_sql_to_print(engine: str) -> None:
    line = refusal(run("db", "sql", "--url", DRIVERS[engine][1]), 2)

    assert f"{engine} has no SQL schema" in line
    assert "outlast db migrate" in line


@pytest.mark.parametrize("engine", sorted(DRIVERS))
def test_missing_driver_is_said_with_the_line_that_installs_it(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, url = DRIVERS[engine]
    for name in [name for name in sys.modules if ".keyvalue." in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, driver, None)

    line = refusal(run("doctor", url=url), 5)

    assert line == (
        f"outlast: {engine} needs a driver that is not installed; pip install 'outlast[{engine}]'"
    )
