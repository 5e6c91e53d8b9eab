"""Kills each scenario before its statements: its world is made once, then copied."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from outlast.core.decide import Change, Guard, Transition, succeed
from outlast.core.event import Abandoned, Abandonment, CancelRequested, Failed, FellDue, Lost
from outlast.core.ids import Ids, JobId
from outlast.core.job import DedupeKey, Job
from outlast.core.run import Claim
from outlast.core.state import Loss, State
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes
from support.crash.runner import ACT_IDS, Probe
from support.crash.scenarios import _blocked, _retrying
from support.crash.scenarios_direct import reserving
from support.crash.scenarios_positions import PLACES, STATES
from support.crash.scenarios_transfer import MOVING
from support.crash.sqlite_target import BENCH, dump
from support.crash.world import (
    LEASE,
    LINKED,
    ONCE,
    SECOND,
    Scenario,
    World,
    deciding,
    nothing,
    settling,
)

from .child_process import Child

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
    await w.store.add([w.job(key=DedupeKey(key="summary#u1", bucket="2026-01-05"))])


async def _one_waiting(w: World) -> None:
    await w.add()


async def _run_whole(w: World, _: None) -> None:
    """Claim, an effect outside that may be repeated, finish."""
    [claim] = await w.claim()
    effect(w.path, claim)
    await w.store.apply([succeed(claim.job_id, claim.token, None)])


def effect(path: Path, claim: Claim) -> None:
    """What an idempotent handler does: the same file however often it is made."""
    path.with_suffix(f".{claim.id}.effect").write_text(claim.id, encoding="ascii")


async def _direct(w: World, **over: Any) -> JobId:
    """A direct job in the default queue, which it holds, and a caller who falls silent."""
    await w.store.set_queue(Queue(name="default", concurrency=1))
    return (await reserving(w, **over)).job_id


async def _direct_scheduled(w: World) -> JobId:
    job_id = await _direct(w, delay=4 * LEASE)
    w.clock.advance(LEASE)
    return job_id


async def _direct_retrying(w: World) -> JobId:
    job_id = await _direct(w, max_attempts=2)
    [claim] = await w.claim()
    await w.settle(claim, Failed("broke", 4 * LEASE))
    w.clock.advance(LEASE)
    return job_id


async def _direct_blocked(w: World) -> JobId:
    job_id = await _direct(w)
    block = Transition(guard=Guard.STATE, to=State.BLOCKED)
    await w.store.apply([Change(job_id, 0, block, was=State.QUEUED)])
    w.clock.advance(LEASE)
    return job_id


DIRECT: Final = {
    "scheduled": _direct_scheduled,
    "retrying": _direct_retrying,
    "blocked": _direct_blocked,
}

MORE: Final = {
    **{
        f"abandon_{name}_{why}": deciding(prepare, Abandoned(why))
        for name, prepare in DIRECT.items()
        for why in Abandonment
    },
    "fall_due": deciding(_scheduled, FellDue()),
    "fall_due_again": deciding(_retrying, FellDue()),
    "cancel_scheduled": deciding(_scheduled, CancelRequested()),
    "cancel_retrying": deciding(_retrying, CancelRequested()),
    "cancel_blocked": deciding(_blocked, CancelRequested()),
    "reclaim_linked": _reclaiming(**LINKED),
    "reclaim_once": _reclaiming(**ONCE),
    "reclaim_dead": _reclaiming(max_attempts=1),
    "lose_dead": settling(Lost(Loss.OWNER_DEAD), max_attempts=1),
    "add_keyed": Scenario(nothing, _add_keyed),
    "run_whole": Scenario(_one_waiting, _run_whole),
    **STATES,
}
"""What the shipped scenarios leave out, and what only the seeds ask."""

NO_TRANSITIONS: Final = {
    "set_queue",
    "pause",
    "resume",
    "renew",
    "renew_direct",
    "keep",
    "reserve_in_vain",
    "free_reservations",
    "attach_open",
    "attach_closed",
    "late_write",
    "finish_too_late_with_effect",
    "run_whole",
    *PLACES,  # of which `STATES` has one from each state
}
"""They change no job's state, or several times: only what they leave is of use."""

SCENARIOS: Final = {
    name: each for name, each in (BENCH.scenarios | MORE).items() if name not in MOVING
}
TRANSITIONS: Final = [
    name
    for name in sorted(SCENARIOS.keys() - NO_TRANSITIONS)
    if not name.startswith(("open_", "read_"))
]


@dataclass(frozen=True, slots=True)
class Wreck:
    """A file whose process was killed right before a statement of an act.

    `changes` are those that the act, played to its end, has applied.
    """

    statement: str
    changes: tuple[Change, ...]
    path: Path
    before: Tables
    after: Tables
    found: Tables


@dataclass(frozen=True, slots=True)
class Stage:
    """The world of a scenario, made and closed: where it is, what its act needs, its clock."""

    name: str
    path: Path
    needs: Any
    reading: Any


def wrecks(name: str, folder: Path, *, every: bool = False) -> list[Wreck]:
    """Wrecks of that scenario, of `every` statement or the telling ones; the last one answered."""
    stage = asyncio.run(_prepare(name, folder / f"{name}.db"))
    sound = SCENARIOS[name].sound
    before = dump(stage.path, sound=sound)
    names, changes = _rehearse(stage, folder / f"{name}.after.db")
    after = dump(folder / f"{name}.after.db")
    deaths = {
        nth: (n, folder / f"{name}.{nth}.db")
        for nth, n in enumerate([*names, "the end"])
        if every or sizes.SIZES.crash_on_either_side or _is_chosen(nth, names)
    }
    for _, path in deaths.values():
        shutil.copy(stage.path, path)
    with Child(_die_in_turn, stage, {nth: path for nth, (_, path) in deaths.items()}) as child:
        assert child.hear() == [-signal.SIGKILL] * len(deaths), f"{name} outlived its statements"
    return [
        Wreck(n, changes, path, before, after, dump(path, sound=sound))
        for n, path in deaths.values()
    ]


def _is_chosen(nth: int, names: Sequence[str]) -> bool:
    """The first, the middle, and all from the last commit on; the store's own test takes each."""
    commit = (
        len(names) - 1 - names[::-1].index("unit_of_work.commit")
        if "unit_of_work.commit" in names
        else 0
    )
    return nth in (0, len(names) // 2) or nth >= commit


async def _prepare(name: str, path: Path) -> Stage:
    clock, chosen = FakeClock(), SCENARIOS[name]
    store = _store(path, clock, 7, None)
    if chosen.opened:
        await store.open()
    needs = await chosen.prepare(World(store, path, clock, count(1)))
    await store.close()
    return Stage(name, path, needs, clock._reading)


def _rehearse(stage: Stage, path: Path) -> tuple[list[str], tuple[Change, ...]]:
    """Play it to the end on a copy: the statements it runs, and the changes it applies."""
    seen: list[str] = []
    shutil.copy(stage.path, path)
    store = _act(replace(stage, path=path), lambda name, after: after or seen.append(name))
    return seen, tuple(asyncio.run(store).applied)


def _die_in_turn(mouth: Any, stage: Stage, paths: dict[int, Path]) -> None:
    """Fork for every death: a process without threads may, and it costs milliseconds."""
    codes = []
    for nth, path in paths.items():
        pid = os.fork()
        if pid == 0:
            _die(replace(stage, path=path), nth)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    mouth.send(codes)


def _die(stage: Stage, nth: int) -> None:
    """Act, and kill this process right before its `nth` statement, or right after its answer."""
    left = nth

    def probe(_name: str, after: bool) -> None:
        nonlocal left
        if not after:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    try:
        asyncio.run(_act(stage, probe, last=lambda: os.kill(os.getpid(), signal.SIGKILL)))
    finally:
        os._exit(1)


async def _act(stage: Stage, probe: Probe, last: Callable[[], None] = lambda: None) -> "_Watched":
    clock, chosen = FakeClock(), SCENARIOS[stage.name]
    clock._reading = stage.reading
    armed = not chosen.opened
    store = _store(stage.path, clock, 8, lambda n, after: probe(n, after) if armed else None)
    if chosen.opened:
        await store.open()
    armed = True
    await chosen.act(World(store, stage.path, clock, count(ACT_IDS)), stage.needs)
    armed = False
    last()
    await store.close()
    return store


def _store(path: Path, clock: FakeClock, seed: int, probe: Probe | None) -> "_Watched":
    return _Watched(path, clock=clock, ids=Ids(clock.now, Random(seed).getrandbits), probe=probe)


class _Watched(SqliteStore):
    """Notes the changes it has applied."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.applied: list[Change] = []

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        answers = await super().apply(changes)
        self.applied += [change for change, ok in zip(changes, answers, strict=True) if ok]
        return answers
