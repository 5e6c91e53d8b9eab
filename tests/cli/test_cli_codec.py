"""Commands on a store whose payloads are encrypted: with the app's key, and with the URL alone."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest

from outlast.cli.app_loader import load_app

from .conftest import Cli

SECRET = "hunter2"  # noqa: S105 - the canary
KEY = "a" * 43 + "="
HIDDEN = "encrypted (key 2026-11)"

APP = f"""
import logging

from outlast import Backoff, Outlast, Run, Skip
from outlast.encryption import AESGCMCodec

app = Outlast("sqlite:///jobs.db", codec=AESGCMCodec({{"2026-11": "{KEY}"}}, "2026-11"))


@app.job
async def pay(run: Run, card: str, n: int = 0) -> str:
    logging.getLogger("pay").warning("logged %s", card)
    run.progress(1, 2, f"card {{card}}")
    return f"paid by {{card}}"


@app.job(retry=Backoff(max_attempts=1))
async def broken(card: str) -> None:
    raise KeyError(card)


@app.job
async def skips(card: str) -> object:
    return Skip(f"no {{card}}")
"""


class Vault(Cli):
    """The same commands with the app that has the key; `blind` runs one with the URL alone."""

    jobs: dict[str, str]
    waiting: str

    def __call__(self, *args: str, **more: Any) -> Any:
        return super().__call__(*args, **{"app": "vault:app", **more})

    def blind(self, *args: str) -> str:
        return self.out(*args, "--url", self.url, app=None)

    def fill(self) -> Self:
        """Store something of everything that may hold a secret."""
        params = json.dumps({"card": SECRET})
        self.jobs = {name: self.enqueue(name, params) for name in ("pay", "broken", "skips")}
        self.burst()
        self.waiting = self.enqueue("pay", params, "--in", "1h")
        self.out("template", "save", "monthly", "pay", params)
        rule = ("0 2 * * *", "--type", "pay", "--coalesce", "--misfire-grace", "5m")
        self.out("schedule", "save", "nightly", *rule, "--params", params)
        return self

    def burst(self) -> None:
        async def run() -> None:
            app = load_app("vault:app")
            async with app, app.worker() as worker:
                await worker.drained()

        asyncio.run(run())


@pytest.fixture
def vault(cli: Cli) -> Iterator[Vault]:
    (cli.folder / "vault.py").write_text(APP)
    sys.modules.pop("vault", None)
    yield Vault(cli.folder).fill()
    sys.modules.pop("vault", None)


def views(vault: Vault) -> list[tuple[str, ...]]:
    ids = [*vault.jobs.values(), vault.waiting]
    return [
        ("jobs",),
        ("template", "list"),
        ("schedule", "list"),
        ("doctor",),
        ("verify",),
        ("top", "--once"),
        ("workers",),
        *((command, job) for command in ("show", "logs", "explain") for job in ids),
    ]


def test_without_the_key_every_view_says_encrypted_and_shows_nothing(vault: Vault) -> None:
    for view in views(vault):
        for more in ((), ("--json",)):
            shown = vault.blind(*view, *more)
            assert SECRET not in shown, view
            assert KEY not in shown, view
            assert "$outlast" not in shown, (view, shown)


def test_show_without_the_key_names_it_for_each_text(vault: Vault) -> None:
    done, failed, skipped = vault.jobs.values()

    of_done, of_failed = vault.blind("show", done), vault.blind("show", failed)

    for line in (f"params    {HIDDEN}", f"progress  {HIDDEN}", f"result\n  {HIDDEN}"):
        assert line in of_done
    assert f"last error\n  {HIDDEN}" in of_failed
    assert f"KeyError: {HIDDEN}" in of_failed
    assert f"skipped  {HIDDEN} after" in vault.blind("show", skipped)
    record = json.loads(vault.blind("show", failed, "--json"))
    assert record["params"] == HIDDEN
    assert record["encrypted"] == ["params"]
    assert record["error"] == {"type": "KeyError", "message": HIDDEN, "traceback": None}
    assert record["runs"][0]["encrypted"] == ["error", "params_snapshot"]


def test_with_the_key_everything_is_shown(vault: Vault) -> None:
    done, failed, skipped = vault.jobs.values()

    assert f'{{"card":"{SECRET}"}}' in vault.out("show", done)
    assert f'{{"card":"{SECRET}"}}' in vault.out("show", done[:35])
    assert f"1/2 card {SECRET}" in vault.out("show", done)
    assert f"result\n  paid by {SECRET}" in vault.out("show", done)
    assert f"KeyError: '{SECRET}'" in vault.out("show", failed)
    assert f"no {SECRET}" in vault.out("show", skipped)
    assert f"card {SECRET}" in vault.out("logs", done)
    assert f"pay: logged {SECRET}" in vault.out("logs", done)
    assert f"1 lines {HIDDEN}" in vault.blind("logs", done)
    assert f"no {SECRET}" in vault.out("logs", skipped)
    assert f"no {SECRET}" in vault.out("explain", skipped)
    assert SECRET in vault.out("template", "list")
    record = json.loads(vault.out("show", done, "--json"))
    assert record["params"] == {"card": SECRET}
    assert record["result"] == f"paid by {SECRET}"
    assert record["progress"]["message"] == f"card {SECRET}"
    assert "encrypted" not in record
    [listed] = vault.documents("jobs", "type:broken")
    assert listed["params"] == {"card": SECRET}
    [schedule] = vault.documents("schedule", "list")
    assert schedule["plan"]["params"] == {"card": SECRET}


def test_filters_by_params_and_error_need_the_key(vault: Vault) -> None:
    assert [job["type"] for job in vault.documents("jobs", f"params.card={SECRET}", "type:broken")]
    assert [job["type"] for job in vault.documents("jobs", f"error:{SECRET}")] == ["broken"]

    assert vault.blind("jobs", f"params.card={SECRET}", "--json") == ""
    assert vault.blind("jobs", f"error:{SECRET}", "--json") == ""


def test_a_job_is_retried_and_cancelled_without_the_key(vault: Vault) -> None:
    vault.blind("retry", vault.jobs["broken"])
    vault.blind("cancel", vault.waiting)

    [again, _] = vault.documents("jobs", "type:broken")
    assert (again["state"], again["params"]) == ("queued", {"card": SECRET})


def test_an_edit_prints_what_was_edited(vault: Vault) -> None:
    vault.out("edit", vault.waiting, "--params", '{"card": "new"}')

    assert '{"card":"new"}' in vault.out("show", vault.waiting)
    assert HIDDEN in vault.blind("show", vault.waiting)


def test_a_copy_holds_the_same_envelopes_and_the_key_reads_them(vault: Vault) -> None:
    vault.out("db", "copy", "--from", vault.url, "--to", "sqlite:///other.db", app=None)

    def texts(file: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(Path(vault.folder) / file)) as connection:
            jobs = connection.execute("SELECT id, params FROM outlast_jobs ORDER BY id")
            runs = connection.execute("SELECT run_id, result, error FROM outlast_runs ORDER BY 1")
            return [*jobs, *runs]

    assert texts("other.db") == texts("jobs.db")
    (vault.folder / "moved.py").write_text(APP.replace("jobs.db", "other.db"))
    shown = vault.out("show", vault.jobs["pay"], app="moved:app")
    assert f"paid by {SECRET}" in shown
    vault.out("verify", "--url", "sqlite:///other.db", app=None)  # it ends well
