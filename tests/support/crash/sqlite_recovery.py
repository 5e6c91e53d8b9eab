"""A SQLite file with one of everything that recovery repairs, to be killed half-way through it."""

from pathlib import Path
from typing import Any

from outlast.core.decide import Change, Guard, Transition
from outlast.core.event import Event, EventKind, Failed, Succeeded
from outlast.core.ids import Ids
from outlast.core.run import Claim, LeaseHolder
from outlast.core.state import RunStatus, State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.worker.maintenance.history_inspector import HistoryInspector, HistoryRepairs
from outlast.worker.maintenance.recovery import Recovery, RecoveryResult
from support.corruption.sqlite import SqliteCorrupter
from support.crash.runner import Probe
from support.crash.world import HOLDER, LINKED, ONCE, SECOND, Scenario, World

NEXT_BOOT = LeaseHolder(instance_id=HOLDER.instance_id, boot_id="boot-2")
PRESETS: dict[str, dict[str, Any]] = {"lease": {}, "linked": LINKED, "once": ONCE}
Repaired = tuple[RecoveryResult, HistoryRepairs]
EXPECTED: Repaired = (
    RecoveryResult(lost=3, promoted=2),
    HistoryRepairs(finished=6, without_run=3, continued=1, given_up=1, orphans=1),
)
"""What the first recovery of that file does; a job that failed is due again at once."""

Reported = dict[str, list[tuple[Any, ...]]]


async def break_everything(w: World) -> None:
    """Each job has a name that says what is wrong with it; two are as they should be."""
    corrupter = SqliteCorrupter(w.path)
    for preset, over in PRESETS.items():
        for ending, event in (("ended", Succeeded("1")), ("failed", Failed("broke"))):
            claim = await _settled(w, event, name=f"{ending}-{preset}", **over)
            if (preset, ending) == ("linked", "failed"):
                await corrupter.drop_successor(claim.id)
            await corrupter.detach(claim.id)
    await corrupter.drop_successor(
        (await _settled(w, Failed("broke"), name="unfollowed", **LINKED)).id
    )
    await close_unfollowed(w.store, await w.started(name="spent", max_attempts=1, **LINKED))
    orphaned = await _settled(w, Succeeded("1"), name="orphaned")
    for preset, over in PRESETS.items():
        await w.started(name=f"held-{preset}", **over)
    for preset, over in PRESETS.items():
        await corrupter.detach(await w.add(name=f"runless-{preset}", **over))
    await w.add(name="healthy")
    await w.add(name="due", delay=SECOND)
    await corrupter.orphan(orphaned.id)
    w.clock.advance(SECOND)


async def close_unfollowed(store: Store, claim: Claim) -> None:
    """End a run `failed` without the successor that a chain owes, whatever its attempts."""
    move = Transition(
        guard=Guard.OPEN, to=State.FAILED, run=RunStatus.FAILED, kind=EventKind.CLOSED
    )
    failures = claim.failures + 1
    await store.apply([Change(claim.job_id, claim.token, move, error="broke", failures=failures)])


async def recover(w: World, _: None = None) -> Repaired:
    """What `outlast verify --repair` does, and then the next boot of the same worker."""
    repairs = await HistoryInspector(w.store, w.new_id).inspect()
    recovery = Recovery(w.store, NEXT_BOOT, scope="instance", new_id=w.new_id)
    return await recovery.run_once(), repairs


async def reported(store: Store) -> Reported:
    """How everything stands, by name, without the ids and moments that differ each time."""
    found: Reported = {"": [(event.kind, event.reason) for event in await store.events(None)]}
    for job in reversed(await store.find(Filter(), limit=1000)):
        runs = [(run.token, run.status, run.reason) for run in await store.runs(job.id)]
        kinds = [(event.kind, event.reason) for event in await store.events(job.id)]
        counts = (job.token, job.failures, job.losses)
        found.setdefault(job.name, []).append((job.state, job.reason, *counts, *runs, *kinds))
    return found


async def _settled(w: World, event: Event, **over: Any) -> Claim:
    claim = await w.started(**over)
    await w.settle(claim, event)
    return claim


class RecoveryBench:
    """Plays one recovery of all that."""

    scenarios = {"recover": Scenario(break_everything, recover, sound=False)}  # noqa: RUF012 - as every bench has them

    def store(self, path: Path, clock: FakeClock, ids: Ids, probe: Probe | None) -> SqliteStore:
        return SqliteStore(path, clock=clock, ids=ids, probe=probe)


BENCH = RecoveryBench()
