"""Crash scenarios of recovery: corrupted stores and their repair."""

from collections.abc import Callable
from typing import Any

from outlast.core.event import (
    DetachedJobFound,
    Event,
    Failed,
    Lost,
    Released,
    Skipped,
    Stopped,
    Succeeded,
    SuccessorMissing,
)
from outlast.core.job import Job
from outlast.core.state import Loss
from outlast.testing.conformance.corruption import CorruptionInjector
from support.crash.scenarios_direct import reserving
from support.crash.world import LINKED, ONCE, Scenario, World

Breaks = Callable[[World], CorruptionInjector]


def broken_scenarios(breaks: Breaks) -> dict[str, Scenario]:
    """What recovery repairs, in stores broken by what `breaks` gives."""
    return {
        **{f"resume_{name}": _resuming(breaks, *made) for name, made in ADRIFT.items()},
        "continue_chain": Scenario(_unfollowed(breaks), _continue),
        "remove_orphans": Scenario(_orphaned(breaks), _remove_orphans, sound=False),
        "free_reservations": Scenario(_held_for_nothing(breaks), _free),
    }


def _resuming(breaks: Breaks, event: Event | None, over: dict[str, Any]) -> Scenario:
    """Settle a job adrift whose run ended by that event; None: it has no run."""

    async def prepare(w: World) -> tuple[Job, Event]:
        claim, corrupter = await w.started(**over), breaks(w)
        if event is not None:
            await w.settle(claim, event)
        if len(await w.store.chain(claim.id)) > 1:
            await corrupter.drop_successor(claim.id)
        await corrupter.detach(claim.id)
        runs = await w.store.runs(claim.id)
        last = (
            DetachedJobFound(runs[-1].status, runs[-1].reason) if runs else DetachedJobFound(None)
        )
        return await w.get(claim.id), last

    async def act(w: World, needs: tuple[Job, Event]) -> None:
        await w.settle(*needs)

    return Scenario(prepare, act)


def _unfollowed(breaks: Breaks) -> Callable[[World], Any]:
    async def prepare(w: World) -> Job:
        claim = await w.started(active_key="key", **LINKED)
        await w.settle(claim, Failed("broke"))
        await breaks(w).drop_successor(claim.id)
        return await w.get(claim.id)

    return prepare


async def _continue(w: World, job: Job) -> None:
    await w.settle(job, SuccessorMissing("startup_recovery"))


def _orphaned(breaks: Breaks) -> Callable[[World], Any]:
    async def prepare(w: World) -> None:
        claim = await w.started()
        await w.settle(claim, Succeeded("1"))
        await breaks(w).orphan(claim.id)

    return prepare


async def _remove_orphans(w: World, _: None) -> None:
    await w.store.remove_orphans(limit=10)


def _held_for_nothing(breaks: Breaks) -> Callable[[World], Any]:
    async def prepare(w: World) -> None:
        claim = await w.started()
        await w.settle(claim, Succeeded("1"))
        held = await reserving(w)
        await breaks(w).retarget_reservation(held.id, claim.id)

    return prepare


async def _free(w: World, _: None) -> None:
    assert len(await w.store.release_stale_reservations(limit=10)) == 1


ADRIFT: dict[str, tuple[Event | None, dict[str, Any]]] = {
    "succeeded": (Succeeded("1"), {}),
    "skipped": (Skipped("empty"), {}),
    "stopped": (Stopped("asked"), {}),
    "released": (Released("drain"), {}),
    "retried": (Failed("broke"), {}),
    "dead": (Failed("broke", permanent=True), {}),
    "requeued": (Lost(Loss.OWNER_DEAD), {}),
    "chained": (Failed("broke"), LINKED),
    "closed": (Failed("broke"), ONCE),
    "without_run": (None, {}),
    "without_run_dead": (None, {"max_attempts": 1}),
    "without_run_chained": (None, LINKED),
    "without_run_closed": (None, ONCE),
}
"""Jobs in no place: how their only run ended, and how they were asked for."""
