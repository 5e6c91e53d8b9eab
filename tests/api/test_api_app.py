"""The app itself: opened when needed, closed once, and no business of another app's."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from outlast import IdentityInUse, Outlast, Settings, State
from outlast.core.event import Succeeded
from outlast.errors import ConfigurationError, ForeignStore, StoreClosed, StoreReadOnly
from outlast.testing.model.store import ModelStore


class Slow(ModelStore):
    """Takes its time to open, and counts."""

    opened = closed = 0

    async def open(self):
        self.opened += 1
        await asyncio.sleep(0.01)
        await super().open()

    async def close(self):
        self.closed += 1
        await super().close()


@pytest.fixture
def slow(clock, ids):
    return Slow(clock, ids)


def with_send(app):
    @app.job
    def send(number: int) -> int:
        return number

    return send


async def test_a_store_is_opened_once_on_first_use_however_many_ask(slow):
    send = with_send(Outlast(slow))
    assert slow.opened == 0

    handles = await asyncio.gather(*(send.enqueue(number) for number in range(10)))

    assert slow.opened == 1
    assert len({handle.id for handle in handles}) == 10


async def test_an_opening_that_failed_is_tried_again(slow):
    send = with_send(Outlast(slow))
    opening, slow.open = slow.open, None

    async def refuse():
        raise StoreReadOnly("no")

    slow.open = refuse
    with pytest.raises(StoreReadOnly):
        await send.enqueue(1)
    slow.open = opening

    assert (await send.enqueue(1)).created


async def test_closing_twice_is_fine_and_use_after_it_is_told(slow):
    app = Outlast(slow)
    send = with_send(app)
    async with app:
        await send.enqueue(1)

    await app.close()

    with pytest.raises(StoreClosed, match="this app was closed; use it inside `async with app:`"):
        await send.enqueue(2)
    async with app:
        assert (await send.enqueue(3)).created


async def test_closing_an_app_that_was_never_used_is_fine(slow):
    await Outlast(slow).close()

    assert slow.opened == 0


async def test_two_apps_in_one_process_do_not_meet(clock, ids):
    stores = [ModelStore(clock, ids), ModelStore(clock, ids)]
    apps = [Outlast(store) for store in stores]
    first, second = (with_send(app) for app in apps)

    handle = await first.enqueue(1)

    assert first is not second
    assert (await apps[0].get(handle.id)).state is State.QUEUED
    assert await stores[0].get([handle.id]) != [None]
    await second.enqueue(2)
    assert await stores[1].get([handle.id]) == [None]


async def test_two_apps_over_one_store_share_its_jobs(store, hand):
    one, two = Outlast(store), Outlast(store)
    send = with_send(one)

    handle = await send.enqueue(1)
    await hand.end(await hand.take("send"), Succeeded("5"))

    assert await two.handle(handle.id).result() == 5
    assert [run.result for run in await two.runs(handle.id)] == ["5"]
    assert await two.events(handle.id) == []


@pytest.mark.parametrize(
    "url", ["", "jobs.db", "redis://x", "sqlite://", "sqlite:///:memory:", None, Path("jobs.db")]
)
def test_an_address_that_names_no_store_is_refused_at_once(url):
    with pytest.raises(ConfigurationError, match="write"):
        Outlast(url)


def test_making_an_app_touches_nothing(tmp_path):
    Outlast(f"sqlite:///{tmp_path}/jobs.db")

    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_not_ours_is_refused_and_left_as_it_was(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but dear to somebody\n" * 100)
    before = path.read_bytes()
    app = Outlast(f"sqlite:///{path}")
    send = with_send(app)

    for _ in range(2):
        with pytest.raises(ForeignStore, match=r"notes.txt"):
            await send.enqueue(1)
    await app.close()

    assert path.read_bytes() == before


def test_settings_by_name_change_the_given_ones():
    app = Outlast("sqlite:///x.db", settings=Settings(poll="1s", tick="2s"), poll="3s")

    assert app.settings == Settings(poll="3s", tick="2s")
    with pytest.raises(TypeError, match="pol"):
        Outlast("sqlite:///x.db", pol="3s")  # type: ignore[call-arg]


WRONG_SETTINGS = [
    ({"lease": "10s"}, r"lease is 0:00:10 and renew is 0:00:05; a lease must last at least 3"),
    ({"renew": "0s"}, "renew is 0:00:00; it must last at least 1 ms"),
    ({"poll": "often"}, "poll is 'often'; write a timedelta"),
    ({"tick": -1}, "tick is -1; write a timedelta"),
    ({"grace": "-1s"}, "grace is '-1s'"),
    ({"transaction": "0s"}, "transaction is 0:00:00"),
    ({"max_unfit": "-1s"}, "max_unfit is '-1s'"),
    ({"max_unfit": "367d"}, "max_unfit is 367 days, 0:00:00; it must last at most 366 days"),
    ({"retention": 30}, 'retention is 30; write "30s" or "30m"'),
    ({"concurrency": 0}, "concurrency is 0; it must lie in 1…100,000"),
    ({"concurrency": True}, "concurrency is True; use a whole number"),
    ({"prefetch": -1}, "prefetch is -1; it must lie in 0…100,000"),
    ({"prune_batch": 1.5}, "prune_batch is 1.5; use a whole number"),
    ({"uvloop": "no"}, "uvloop is 'no'; use True or False"),
    ({"topology": "ring"}, "topology is 'ring'; use one of 'pool', 'single'"),
    ({"scope": "x" * 101}, "scope has 101 characters; use at most 100"),
    ({"scope": "two words"}, "scope is 'two words'"),
    ({"unknown_owner": "kill"}, "unknown_owner is 'kill'; use one of None, 'fail', 'threshold'"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG_SETTINGS)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Settings(**settings)


TOO_LONG = [
    ({"transaction": "5s"}, 'lease="16s" or transaction="4s500ms"'),
    ({"lease": "9s", "renew": "3s", "transaction": "3s"}, 'lease="10s" or transaction="2s500ms"'),
    ({"lease": "1500ms", "renew": "500ms", "transaction": "10s"}, 'transaction="400ms"'),
]


@pytest.mark.parametrize(("settings", "remedy"), TOO_LONG)
def test_transactions_that_could_cost_a_lease_are_refused_on_sqlite(settings, remedy):
    with pytest.raises(ConfigurationError, match=remedy):
        Outlast("sqlite:///x.db", **settings)

    assert Outlast("postgresql://x/y", **settings).settings == Settings(**settings)


@pytest.mark.parametrize(
    ("settings", "transaction"),
    [
        ({}, "4s"),
        ({"transaction": "4500ms"}, "4500ms"),
        ({"lease": "60s"}, "4s"),
        ({"lease": "9s", "renew": "3s"}, "2500ms"),
        ({"lease": "1500ms", "renew": "500ms"}, "400ms"),
    ],
)
def test_two_transactions_fit_between_a_renewal_and_the_end_of_its_lease(settings, transaction):
    app = Outlast("sqlite:///x.db", **settings)

    assert app.settings.transaction == Settings(transaction=transaction).transaction
    assert Settings.load(app.settings.dump()) == app.settings


def test_the_defaults_are_those_of_the_design():
    settings = Settings()

    shown = {name: str(getattr(settings, name)) for name in settings.dump()}
    assert shown == {
        "lease": "0:00:15",
        "max_silence": "0:10:00",
        "lifespan_timeout": "0:00:30",
        "logs": "outlast-logs",
        "renew": "0:00:05",
        "tick": "0:00:01",
        "poll": "0:00:00.500000",
        "grace": "0:00:30",
        "transaction": "0:00:04",
        "reservation": "0:05:00",
        "direct_wait": "0:01:00",
        "max_unfit": "1:00:00",
        "retention": "30 days, 0:00:00",
        "prune_batch": "500",
        "concurrency": "10",
        "prefetch": "1500",
        "log_capture": "True",
        "uvloop": "True",
        "topology": "pool",
        "scope": "default",
        "unknown_owner": "None",
    }
    assert Settings(retention=None).retention is None


def test_an_app_may_live_through_several_loops(tmp_path):
    code = """
import asyncio, sys
from outlast import Outlast
app = Outlast("sqlite:///" + sys.argv[1])

@app.job
def send(number: int) -> int:
    return number

async def main() -> None:
    async with app, app.worker():
        print(await (await send.enqueue(7)).result("2m"))

asyncio.run(main())
asyncio.run(main())
"""
    path = str(Path(tmp_path) / "jobs.db")
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=240, check=False
    )

    assert (done.stdout, done.returncode) == ("7\n7\n", 0), done.stderr


def test_an_app_without_a_url_takes_it_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTLAST_URL", f"sqlite:///{tmp_path}/elsewhere.db")

    app = Outlast(lease="30s", renew="5s")

    assert app.url == f"sqlite:///{tmp_path}/elsewhere.db"
    assert str(tmp_path / "elsewhere.db") in str(app.store.path)


def test_a_url_in_the_code_wins_over_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTLAST_URL", "postgresql://nowhere/shop")

    assert Outlast(f"sqlite:///{tmp_path}/jobs.db").url == f"sqlite:///{tmp_path}/jobs.db"


@pytest.mark.parametrize("value", [None, ""])
def test_an_app_without_any_url_says_what_to_paste(monkeypatch, value):
    monkeypatch.delenv("OUTLAST_URL", raising=False)
    if value is not None:
        monkeypatch.setenv("OUTLAST_URL", value)

    with pytest.raises(ConfigurationError, match=r"`export OUTLAST_URL=sqlite:///jobs\.db`"):
        Outlast()


async def test_a_single_app_has_one_embedded_worker_at_a_time(tmp_path):
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    first, second, other = (
        Outlast(url, topology="single", scope=scope) for scope in ("brief", "brief", "other")
    )
    for app in (first, second, other):
        app.job(name="nothing")(lambda: None)
    async with first, second, other:
        async with first.worker():
            with pytest.raises(IdentityInUse, match="serves the scope 'brief' already"):
                async with second.worker():
                    pass
        async with second.worker(), other.worker():
            pass
