"""Schedules that are no longer declared in code: what workers, the trigger loop and apps do."""

import asyncio
from datetime import timedelta

import pytest
from loop_world import VirtualWait, loop_of, run_for

from outlast import Outlast
from outlast.core.declaration import UNDECLARED_AFTER
from outlast.core.ids import Ids
from outlast.scheduler.declaration_check import DeclarationCheck
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import make_holder, make_worker
from outlast.testing.model.store import ModelStore

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
PATIENCE_S = 120
SET = {"coalesce": True, "misfire_grace": "5m"}


def _report() -> None: ...


def app_of(store: Store, *schedules: str) -> Outlast:
    """Return an app of this module that declares these schedules."""
    app = Outlast(store, name="shop", poll="5ms", tick="5ms")
    app.job(name="report")(_report)
    for name in schedules:
        app.schedule(name, "0 * * * *", "report", **SET)
    return app


async def start(store: Store, name: str, app: Outlast) -> None:
    """Do what a worker of the app does at its start."""
    declared = tuple(sorted(app._declared))
    await store.register_worker(make_worker(name, app=app.name, schedules=declared))
    await store.heartbeat(make_holder(name), span=24 * HOUR)
    await app.sync_schedules()


async def test_a_schedule_removed_from_the_code_stops_and_comes_back_with_its_code(
    store: Store, clock: FakeClock
) -> None:
    before, after = app_of(store, "often", "nightly"), app_of(store, "nightly")
    await start(store, "v1", before)
    await store.deregister_worker(make_holder("v1"))
    await start(store, "v2", after)
    clock.advance(UNDECLARED_AFTER)
    await DeclarationCheck(store).run_once()
    removed = await after.schedules.get("often")
    kept = await after.schedules.get("nightly")

    await start(store, "v3", before)

    again = await after.schedules.get("often")
    assert (removed.plan.enabled, removed.plan.disabled_reason) == (False, "undeclared")
    assert kept.plan.enabled
    assert (again.plan.enabled, again.plan.disabled_reason) == (True, None)
    assert again.id == removed.id
    assert again.next_slot is not None
    assert again.next_slot > clock.now(), "slots that passed while it was disabled are not missed"


async def test_declaring_again_does_not_undo_the_pause_of_an_operator(
    store: Store, clock: FakeClock
) -> None:
    app = app_of(store, "often")
    await start(store, "v1", app)
    await store.deregister_worker(make_holder("v1"))
    await start(store, "v2", app_of(store))
    clock.advance(UNDECLARED_AFTER)
    await DeclarationCheck(store).run_once()
    await app.schedules.pause("often")

    await start(store, "v3", app)
    await DeclarationCheck(store).run_once()

    assert not (await app.schedules.get("often")).plan.enabled


async def test_a_schedule_saved_by_hand_is_never_disabled(store: Store, clock: FakeClock) -> None:
    app = app_of(store)
    await app.schedules.save("by-hand", "0 * * * *", "report", **SET)
    await start(store, "v1", app)
    clock.advance(24 * HOUR - MINUTE)

    await DeclarationCheck(store).run_once()

    assert (await app.schedules.get("by-hand")).plan.enabled


async def test_a_renamed_schedule_belongs_to_the_operator(store: Store, clock: FakeClock) -> None:
    app = app_of(store, "often")
    await start(store, "v1", app)
    await app.schedules.edit("often", new_name="rare")
    clock.advance(HOUR)

    await DeclarationCheck(store).run_once()

    assert (await app.schedules.get("rare")).plan.enabled


async def test_a_worker_that_starts_during_the_check_keeps_its_schedules(
    clock: FakeClock, ids: Ids
) -> None:
    class Busy(ModelStore):
        """A store in which a worker registers right before the schedule is disabled."""

        async def set_schedule(self, *args: object, **options: object) -> object:
            if any(w.instance_id == "v2" for w in await self.workers()):
                await self.register_worker(make_worker("v3", app="shop", schedules=("often",)))
            return await super().set_schedule(*args, **options)  # type: ignore[arg-type]

    store = Busy(clock, ids)
    await store.open()
    app = app_of(store, "often")
    await app.sync_schedules()
    await start(store, "v2", app_of(store))
    clock.advance(UNDECLARED_AFTER)

    await DeclarationCheck(store).run_once()

    plan = (await app.schedules.get("often")).plan
    assert (plan.enabled, plan.disabled_reason) == (True, None)


async def test_the_trigger_loop_checks_once_a_minute_and_never_per_slot(
    clock: FakeClock, ids: Ids
) -> None:
    class Counting(ModelStore):
        looks = 0

        async def workers(self) -> list[object]:  # type: ignore[override]
            self.looks += 1
            return await super().workers()  # type: ignore[return-value]

    store = Counting(clock, ids)
    await store.open()
    app = app_of(store, "often")
    await app.schedules.save("fast", every="1s", job_type="report", **SET)
    await app.sync_schedules()
    await start(store, "v2", app_of(store))
    store.looks = 0

    await run_for(loop_of(store, ids, clock, VirtualWait(clock, 20 * MINUTE)))

    assert (await app.schedules.get("often")).plan.disabled_reason == "undeclared"
    assert store.looks <= 21


async def test_an_embedded_worker_registers_what_its_app_declares(store_url: str) -> None:
    app = Outlast(store_url, name="shop", renew="10ms")
    app.job(name="report")(_report)
    app.schedule("often", "0 * * * *", "report", **SET)
    async with app, app.worker():
        first = await registered(app, 1)
        app.schedule("later", "0 * * * *", "report", **SET)
        second = await registered(app, 2)

    assert first == ("shop", ("often",))
    assert second == ("shop", ("later", "often"))


async def registered(app: Outlast, number: int) -> tuple[str, tuple[str, ...]]:
    """Wait until a worker has registered that many schedules."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for worker in await app.store.workers():
                if len(worker.schedules) == number:
                    return worker.app, worker.schedules
            await asyncio.sleep(0.01)


def test_an_app_is_named_after_the_module_that_creates_it(store_url: str) -> None:
    assert Outlast(store_url).name == __name__
    assert Outlast(store_url, name="shop").name == "shop"


@pytest.fixture
def store_url(tmp_path: object) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"
