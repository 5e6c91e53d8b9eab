"""S0: the daily brief's two services, each in processes of its own, started and stopped apart."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from signal import SIGTERM
from typing import Any
from urllib.parse import urlencode

import pytest

from chaos.worker_tree import PATIENCE, PROGRAM, WorkerTree, until, worker_trees
from daily_brief import units
from daily_brief.brief import Brief
from daily_brief.config import store_url
from daily_brief.rules import RULES
from daily_brief.samples import Item, rss, serve
from daily_brief.show import QUERIES
from daily_brief.web import Counter, Web, WebRunsNoJobs
from outlast import Outlast
from outlast.scheduler.loop import LEADER_LOCK
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock

from .brief_web import EXAMPLES, FOUND_IN, SINGLE, call
from .newsroom import Newsroom, article, look

TARGET = ("--no-control-socket", "daily_brief.web:application")
Grow = Callable[..., WorkerTree]
SERVE = """
import sys, threading
from pathlib import Path
from wsgiref.util import setup_testing_defaults
from daily_brief.web import Web

web = Web(Path())
for path in ("/", "/runs", "/healthz"):
    environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
    setup_testing_defaults(environ)
    web(environ, lambda *_: None)
print([thread.name for thread in threading.enumerate()])
what_runs = (
    "daily_brief.brief", "daily_brief.ingest", "daily_brief.worker",
    "outlast.worker", "outlast.scheduler.loop", "outlast.scheduler.trigger",
)
print([module for module in sys.modules if module.startswith(what_runs)])
web.close()
"""
"""Serves every page, and tells its threads and what it has imported of what runs jobs."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The news and Outlast's tables are in one file."""
    return tmp_path / "brief.db"


def ask(url: str, form: dict[str, str] | None = None) -> tuple[int, str]:
    """What a browser would get."""
    body = None if form is None else urlencode(form).encode()
    with suppress(urllib.error.URLError, ConnectionError):
        try:
            with urllib.request.urlopen(url, body, timeout=PATIENCE) as answer:  # noqa: S310 - ours
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
    return 0, ""


@contextmanager
def gunicorn(folder: Path, workers: int = 2) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The web service as its unit starts it; its address, and its process."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    where = f"127.0.0.1:{port}"
    with (folder / "web.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--workers", str(workers), "--bind", where, *TARGET],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": FOUND_IN},
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: ask(f"http://{where}/healthz")[0] == 200, what="the web")
        yield f"http://{where}", process
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture
def grow(tmp_path: Path) -> Iterator[Grow]:
    """Starts `outlast worker` in the folder of the test, as its unit does."""
    start = f"import os; os.chdir({str(tmp_path)!r}); {PROGRAM}"
    with worker_trees(tmp_path) as plant:
        yield lambda: plant(
            *SINGLE, app="daily_brief.worker:app", program=start, env={"PYTHONPATH": FOUND_IN}
        )


def prepare(folder: Path, feeds: str = "", every_second: str | None = None) -> None:
    """Schedules as the worker would bring them, all paused but one that comes every second."""
    (folder / "brief.toml").write_text(f"[feeds]\n{feeds}")

    async def set_up() -> None:
        async with Brief(folder).app as app:
            await app.sync_schedules()
            for name in RULES:
                await app.schedules.pause(name)
            if every_second is not None:
                await app.schedules.edit(every_second, every="1s", enabled=True)

    asyncio.run(set_up())


def query_rows(folder: Path, query: str) -> list[dict[str, Any]]:
    async def asked() -> Any:
        async with Counter(store_url(folder)) as counter:
            return await QUERIES[query](counter, Brief(folder).desk)

    return list(asyncio.run(asked()))


def is_triggered_by_somebody(folder: Path) -> bool:
    async def held() -> bool:
        async with Outlast(store_url(folder)) as app:
            hold = await app.store.acquire_lock(LEADER_LOCK)
            if hold is None:
                return True
            await hold.release()
            return False

    return asyncio.run(held())


def next_slot(folder: Path) -> str:
    return str(
        look(
            folder / "brief.db",
            "SELECT next_slot FROM outlast_schedules WHERE name = 'event_clustering'",
        )
    )


@pytest.mark.slow
@pytest.mark.req("S0-2.a", "S0-2.c", "S0-2.d")
def test_web_alone_runs_nothing_and_answers_and_the_worker_alone_runs_every_slot(
    tmp_path: Path, grow: Grow
) -> None:
    prepare(tmp_path, every_second="event_clustering")
    with gunicorn(tmp_path) as (address, process):
        since, slot = time.time(), next_slot(tmp_path)
        until(lambda: time.time() > since + 1.5, what="a slot")
        pages = [ask(f"{address}{path}")[0] for path in ("/", "/runs", "/healthz")]
        ran_by_web, triggered = query_rows(tmp_path, "job_runs"), next_slot(tmp_path) != slot
        holds = is_triggered_by_somebody(tmp_path)

        grow().ready()
        until(lambda: query_rows(tmp_path, "job_runs"), what="a run of the worker")
        process.send_signal(SIGTERM)
        process.wait(PATIENCE)
    count = len(query_rows(tmp_path, "job_runs"))
    until(lambda: len(query_rows(tmp_path, "job_runs")) > count, what="a run while the web is down")

    assert pages == [200, 200, 200]
    assert (ran_by_web, triggered, holds) == ([], False, False)
    assert is_triggered_by_somebody(tmp_path), "which the worker is: so the question can tell"


@pytest.mark.slow
@pytest.mark.req("S0-7.1.e")
def test_killed_in_mid_ingestion_the_worker_starts_again_and_every_article_is_there_once(
    tmp_path: Path, grow: Grow
) -> None:
    asked, gate = threading.Event(), threading.Event()
    items = [
        Item(url=f"https://a.example/{n}", title=f"T {n}", summary="", at=START) for n in "abc"
    ]

    def slow() -> bytes:
        asked.set()
        gate.wait(PATIENCE)
        return rss("B", items)

    with serve({"/quick": lambda: rss("A", items[:2]), "/slow": slow}) as address:
        prepare(tmp_path, f'quick = "{address}/quick"\nslow = "{address}/slow"\n')
        worker = grow().ready()
        claim(tmp_path, "2026-01-05T09:00")
        assert asked.wait(PATIENCE)
        worker.kill()
        [left] = query_rows(tmp_path, "running")
        gate.set()

        grow().ready()
        [closed] = query_rows(tmp_path, "job_runs")
        claim(tmp_path, "2026-01-05T09:15")
        until(lambda: len(query_rows(tmp_path, "job_runs")) == 2, what="the next run")
        until(lambda: not query_rows(tmp_path, "running"), what="its end")

    assert (left["status"], left["worker_instance"]) == ("running", "brief-worker")
    assert (closed["id"], closed["status"]) == (left["id"], "failed")
    assert closed["error_message"] == "worker_startup_recovery"
    assert query_rows(tmp_path, "job_runs")[0]["status"] == "success"
    urls = look(tmp_path / "brief.db", "SELECT url FROM raw_articles ORDER BY url")
    assert [url[-1] for (url,) in urls] == ["a", "b", "c"]


def claim(folder: Path, slot: str) -> None:
    """As the page's form does."""
    status, _, _ = call(Web(folder), "POST", "/runs", job_name="rss_ingestion", scheduled_for=slot)
    assert status == 303


@pytest.mark.req("S0-2.b")
def test_there_is_one_unit_for_the_web_under_gunicorn_and_one_for_the_worker(
    tmp_path: Path,
) -> None:
    files = {file.name: file.read_text() for file in (EXAMPLES / "daily_brief/deploy").iterdir()}

    assert files == units.units()
    web_unit, worker_unit = (
        parsed(files["k2dailybrief-web.service"]),
        parsed(files["k2dailybrief-worker.service"]),
    )
    target = re.search(r"-m gunicorn .* (\S+):(\w+)$", web_unit["Service"]["ExecStart"])
    assert target is not None
    module = __import__(target[1], fromlist=[target[2]])
    assert call(getattr(module, target[2]), "GET", "/healthz")[0] == 200
    started = worker_unit["Service"]["ExecStart"].split()
    assert started[1:5] == ["-m", "outlast", "worker", "daily_brief.worker:app"]
    app = Brief(tmp_path).app
    assert (app.settings.topology, app.settings.scope) == ("single", "brief")
    for unit in (web_unit, worker_unit):
        tied = {"Requires", "BindsTo", "PartOf", "Requisite"} & set(unit["Unit"])
        assert not tied, "each is started and stopped alone"


@pytest.mark.req("S0-2.b")
def test_both_names_can_be_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    units.main(["--to", str(tmp_path), "--web", "news-web", "--worker", "news-worker"])

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "news-web.service",
        "news-worker.service",
    ]
    assert "--instance-id news-worker" in (tmp_path / "news-worker.service").read_text()
    assert "k2dailybrief-w" not in (tmp_path / "news-worker.service").read_text()
    assert len(capsys.readouterr().out.splitlines()) == 2
    for bad in ({"web": "a b"}, {"worker": "x\nExecStart=y"}, {"web": "a", "worker": "a"}):
        with pytest.raises(ValueError, match=r"cannot name|both"):
            units.units(**bad)


def parsed(text: str) -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as its manual says
    parser.read_string(text)
    return parser


@pytest.mark.req("S0-2.c")
async def test_with_only_web_up_a_slot_passes_and_no_run_appears(
    tmp_path: Path, store: SqliteStore, clock: FakeClock
) -> None:
    room = Newsroom(tmp_path, store, clock)
    room.give(one=[article("a")])
    await room.app.sync_schedules()
    clock.advance("1h")

    served = [await asyncio.to_thread(call, Web(tmp_path), "GET", path) for path in ("/", "/runs")]

    assert [status for status, _, _ in served] == [200, 200]
    assert await room.job_runs() == []
    assert await room.app.schedules.history("rss_ingestion") == []


@pytest.mark.req("S0-2.d")
async def test_starting_a_worker_or_its_schedules_in_the_web_process_raises(tmp_path: Path) -> None:
    web_app = Web(tmp_path)

    with pytest.raises(WebRunsNoJobs, match="runs no jobs and no schedules; start the worker"):
        web_app.counter.worker()
    with pytest.raises(WebRunsNoJobs):
        web_app.counter.engine(object())
    assert web_app.counter.registry.names() == []


@pytest.mark.req("S0-2.d")
def test_a_web_process_that_served_has_no_thread_that_triggers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SERVE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": FOUND_IN},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    threads, modules = done.stdout.splitlines()
    assert modules == "[]", "what runs and triggers is not even imported"
    assert "schedul" not in threads
