"""Kills each scenario before each of its statements: its world is made once, then copied."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from holdfast.core.event import CancelRequested, FellDue, Lost
from holdfast.core.ids import Ids, JobId
from holdfast.core.job import Job, Key
from holdfast.core.run import Claim
from holdfast.core.state import Loss
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.crash import ACT_IDS, Probe
from holdfast.testing.scenarios import (
    CHAIN,
    LEASE,
    ONCE,
    SECOND,
    Scenario,
    World,
    deciding,
    nothing,
    settling,
)
from holdfast.testing.sqlite_bench import BENCH, dump

from .kit import Child, copy_of

Tables = dict[str, list[Any]]


async def _scheduled(w: World) -> JobId:
    return await w.add(delay=SECOND)


async def _lapsed(w: World, **over: Any) -> Job:
    claim = await w.started(**over)
    w.clock.advance(2 * LEASE)
    return await w.get(claim.id)


def _reclaiming(**over: Any) -> Scenario:
    async def act(w: World, job: Job) -> None:
        await w.settle(job, Lost(Loss.LEASE_EXPIRED))

    return Scenario(lambda w: _lapsed(w, **over), act)


async def _add_keyed(w: World, _: None) -> None:
    await w.store.add([w.job(key=Key(key="summary#u1", bucket="2026-01-05"))])


async def _one_waiting(w: World) -> None:
    await w.add()


async def _run_whole(w: World, _: None) -> None:
    """Claim, an effect outside that may be repeated, finish."""
    [claim] = await w.claim()
    effect(w.path, claim)
    await w.store.apply([finish(claim)])


def effect(path: Path, claim: Claim) -> None:
    """What an idempotent handler does: the same file however often it is made."""
    path.with_suffix(f".{claim.id}.effect").write_text(claim.id, encoding="ascii")


def finish(claim: Claim) -> Any:
    from holdfast.core.decide import succeed  # noqa: PLC0415 - beside its one use

    return succeed(claim.job_id, claim.token, None)


MORE: Final = {
    "fall_due": deciding(_scheduled, FellDue()),
    "cancel_scheduled": deciding(_scheduled, CancelRequested()),
    "reclaim_chain": _reclaiming(**CHAIN),
    "reclaim_once": _reclaiming(**ONCE),
    "reclaim_dead": _reclaiming(max_attempts=1),
    "lose_dead": settling(Lost(Loss.OWNER_DEAD), max_attempts=1),
    "add_keyed": Scenario(nothing, _add_keyed),
    "run_whole": Scenario(_one_waiting, _run_whole),
}
"""What the shipped scenarios leave out, and what only the seeds ask."""

WRITING: Final = {
    name: each for name, each in (BENCH.scenarios | MORE).items() if name != "read_everything"
}


@dataclass(frozen=True, slots=True)
class Wreck:
    """A file whose process was killed right before a statement of an act."""

    statement: str
    path: Path
    before: Tables
    after: Tables
    found: Tables


@dataclass(frozen=True, slots=True)
class Stage:
    """The world of a scenario, made and closed: where it is, what the act needs, what time it is."""

    name: str
    path: Path
    needs: Any
    reading: Any


def wrecks(name: str, folder: Path) -> Iterator[Wreck]:
    """Every wreck of that scenario; the last one was killed after its last statement."""
    stage = asyncio.run(_prepare(name, folder / f"{name}.db"))
    before = dump(stage.path)
    names = _statements(stage, folder / f"{name}.after.db")
    after = dump(folder / f"{name}.after.db")
    for nth, statement in enumerate([*names, "the end"]):
        path = copy_of(stage.path, folder / f"{name}.{nth}.db")
        with Child(_die, replace(stage, path=path), nth) as child:
            assert child.end() == -signal.SIGKILL, f"{name} outlived {statement}"
        yield Wreck(statement, path, before, after, dump(path))


async def _prepare(name: str, path: Path) -> Stage:
    clock, chosen = FakeClock(), WRITING[name]
    store = _store(path, clock, 7, None)
    if chosen.opened:
        await store.open()
    needs = await chosen.prepare(World(store, path, clock, count(1)))
    await store.close()
    return Stage(name, path, needs, clock._reading)


def _statements(stage: Stage, path: Path) -> list[str]:
    """Play it to the end on a copy: which statements it runs."""
    seen: list[str] = []
    copy_of(stage.path, path)
    asyncio.run(_act(replace(stage, path=path), lambda name, after: after or seen.append(name)))
    return seen


def _die(_mouth: Any, stage: Stage, nth: int) -> None:
    left = nth

    def probe(_name: str, after: bool) -> None:
        nonlocal left
        if not after:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    asyncio.run(_act(stage, probe))
    os.kill(os.getpid(), signal.SIGKILL)  # after the answer, before anybody could hear it


async def _act(stage: Stage, probe: Probe) -> None:
    clock, chosen = FakeClock(), WRITING[stage.name]
    clock._reading = stage.reading
    armed = not chosen.opened
    store = _store(stage.path, clock, 8, lambda n, after: probe(n, after) if armed else None)
    if chosen.opened:
        await store.open()
    armed = True
    await chosen.act(World(store, stage.path, clock, count(ACT_IDS)), stage.needs)
    armed = False
    await store.close()


def _store(path: Path, clock: FakeClock, seed: int, probe: Probe | None) -> SqliteStore:
    return SqliteStore(path, clock=clock, ids=Ids(clock.now, Random(seed).getrandbits), probe=probe)
