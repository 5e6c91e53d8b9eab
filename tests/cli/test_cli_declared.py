"""What code declares is shown and obeyed by commands: queues, and the retention of types."""

import json
import re
import subprocess
import sys

import pytest

from .conftest import APP, Cli

DECLARED = f"""{APP}

mail = app.queue("mail", concurrency=2, ordering="position")


@app.job(retention="7d")
async def noise() -> None: ...


@app.job(retention="forever")
async def audit() -> None: ...
"""


@pytest.fixture
def declared(cli: Cli) -> Cli:
    (cli.folder / "tasks.py").write_text(DECLARED)
    return cli


def test_a_worker_writes_declared_queues_and_queue_list_shows_them(declared: Cli) -> None:
    declared.out("db", "migrate")
    declared.out("queue", "save", "lane", "--concurrency", "9", "--create")

    declared.burst()
    declared.out("queue", "save", "mail", "--concurrency", "1")

    rows = {row["queue"]["name"]: row for row in declared.documents("queue", "list")}
    settings = {"concurrency": 2, "ordering": "position"}
    assert rows["mail"]["declared"] == {"name": "mail", "app": "tasks", "settings": settings}
    assert rows["mail"]["queue"]["concurrency"] == 1, "what the operator set"
    assert rows["lane"]["declared"] is None
    shown = declared.out("queue", "list")
    assert re.search(r"^mail .* position +1 +ordering position, concurrency 2", shown, re.MULTILINE)


def test_show_and_jobs_say_how_long_the_jobs_of_a_type_are_kept(declared: Cli) -> None:
    noise, audit = declared.enqueue("noise"), declared.enqueue("audit")
    declared.burst()

    assert re.search(r"kept +until .* UTC \(retention 7d\)", declared.out("show", noise))
    assert re.search(r"kept +for ever: its retention has no end", declared.out("show", audit))
    kept = {each: declared.documents("show", each)[0]["kept_until"] for each in (noise, audit)}
    assert (kept[noise] is None, kept[audit]) == (False, None)


def test_db_prune_keeps_types_that_are_kept_longer_if_it_knows_the_app(declared: Cli) -> None:
    for name in ("noise", "audit"):
        declared.enqueue(name)
    declared.enqueue("add", '{"left": 1}')
    declared.burst()

    assert declared.documents("db", "prune", "--older-than", "0s", "-y") == [{"deleted": 1}]
    left = {job["type"] for job in declared.documents("jobs")}
    everything = ("db", "prune", "--older-than", "0s", "-y", "--url", declared.url, "--json")
    without = declared.out(*everything, app=None)

    assert left == {"noise", "audit"}
    assert json.loads(without) == {"deleted": 2}


def test_a_worker_of_several_processes_writes_declared_queues_too(declared: Cli) -> None:
    declared.out("db", "migrate")

    done = subprocess.run(
        [sys.executable, "-m", "outlast", "worker", "tasks:app", "--burst"],
        cwd=declared.folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert declared.documents("queue", "list")[0]["queue"]["concurrency"] == 2
