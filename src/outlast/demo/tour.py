"""The steps of the tour. Each says only what it has checked; a claim that fails ends it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import Any, Final

from outlast.core.decide import succeed
from outlast.core.explain import GateCode
from outlast.core.run import RunRecord
from outlast.core.schedule import SlotOutcome
from outlast.core.state import RunStatus, State
from outlast.demo import jobs
from outlast.demo.jobs import app
from outlast.demo.workers import DemoWorkers
from outlast.jobs.handle import Handle
from outlast.store.contract.jobs import Filter
from outlast.store.contract.schedules import SetSchedule
from outlast.verify import verify

Say = Callable[[str], None]
NAMES: Final = ("worker-1", "worker-2", "worker-3")
SMALL: Final = 500
FLAKY: Final = 20
SLOTS: Final = 3
PATIENCE: Final = 60.0
LOOK: Final = 0.05


class ClaimFailed(Exception):
    """Something the tour was about to say is not so."""


class Tour:
    """`await Tour(crew, say).run()`."""

    def __init__(self, crew: DemoWorkers, say: Say) -> None:
        self._crew = crew
        self._say = say
        self._began = monotonic()

    async def run(self) -> None:
        async with app:
            for step in (
                self._workers, self._small, self._flaky, self._explained, self._moved, self._direct,
                self._scheduled, self._killed, self._verified,
            ):  # fmt: skip
                self._say("")
                await step()

    async def _workers(self) -> None:
        self._head("Three workers on one file, no server")
        for name in NAMES:
            self._crew.start(name)
        alive = await self._until(self._alive, lambda names: names >= set(NAMES), "three workers")
        self._fact(f"{len(alive)} workers are up: {', '.join(sorted(alive))}")

    async def _small(self) -> None:
        self._head(f"{SMALL} small jobs")
        began = monotonic()
        handles = await app.enqueue_many(jobs.add.bind(n, n) for n in range(SMALL))
        stored = monotonic() - began
        results = [await handle.result(timeout="60s") for handle in handles]
        took = monotonic() - began
        self._check(results == [2 * n for n in range(SMALL)], "every result is right")
        self._fact(f"stored in {stored:.2f} s, all {SMALL} results right after {took:.2f} s")
        runs = [await _begun(handle) for handle in handles]
        self._check(all(len(each) == 1 for each in runs), "each ran once")
        shares = Counter(each[0].holder for each in runs)
        self._fact(f"each ran once; shared out: {_counted(shares)}")

    async def _flaky(self) -> None:
        self._head(f"{FLAKY} jobs whose other side hangs up twice")
        handles = await app.enqueue_many(jobs.flaky.bind(n) for n in range(FLAKY))
        for handle in handles:
            await handle.result(timeout="60s")
        runs = [await _begun(handle) for handle in handles]
        expected = [RunStatus.FAILED, RunStatus.FAILED, RunStatus.SUCCEEDED]
        self._check(
            all([run.status for run in each] == expected for each in runs), "two failures each"
        )
        self._fact(f"all {FLAKY} succeeded on their third attempt: {_drawn(runs[0])}")

    async def _explained(self) -> None:
        self._head("Why does a job wait? Ask it")
        await app.queues.pause("reports", reason="the database moves")
        handle = await jobs.report.enqueue("November")
        told = await app.explain(handle.id)
        self._check(
            told.stop is not None and told.stop.code is GateCode.PAUSED, "the pause stops it"
        )
        for line in told.lines():
            self._say(f"    {line}" if line else "")
        await app.queues.resume("reports")
        self._fact(f"resumed, and it ran: {await handle.result(timeout='30s')!r}")

    async def _moved(self) -> None:
        self._head("The order can be changed while jobs wait")
        await app.queues.save("studio", ordering="position", concurrency=1)
        await app.queues.pause("studio", reason="while we look at the order")
        handles = [await jobs.story.enqueue(title) for title in ("Ahab", "Bartleby", "Claggart")]
        self._fact(f"before: {await self._order('studio')}")
        await app.move(handles[2].id, "front")
        order = await self._order("studio")
        self._fact(f"Claggart moved to the front: {order}")
        await app.queues.resume("studio")
        ended = [await handle.wait(timeout="30s") for handle in handles]
        ran = [
            job.params for job in sorted(ended, key=lambda job: job.started_at or job.created_at)
        ]
        self._check("Claggart" in ran[0] and "Ahab" in ran[1], "they ran in that order")
        self._fact("resumed, and they ran in that order")

    async def _direct(self) -> None:
        self._head("A direct run takes the queue's next slot, and leaves the queue as it was")
        handle = await jobs.story.options(wait="30s").run_now("Direct")
        self._fact(f"a worker took it at once: {await handle.result(timeout='30s')!r}")
        reservation = (await app.store.reservations(limit=1))[0]
        self._check(reservation.status == "released", "its reservation is released")
        self._fact("its reservation is released")

    async def _scheduled(self) -> None:
        self._head("A schedule that nobody was there for: what was missed is on record")
        await self._outage()
        rows = await self._until(
            lambda: app.schedules.history("hourly"), lambda rows: len(rows) >= SLOTS, "three slots"
        )
        outcomes = [row.outcome for row in rows[::-1]][:SLOTS]
        self._check(
            outcomes == [SlotOutcome.MISSED, SlotOutcome.MISSED, SlotOutcome.LATE],
            f"by policy: {outcomes}",
        )
        for row in rows[::-1]:
            self._say(f"    {row.slot.at:%H:%M} UTC  {row.outcome}")
        caught_up = await app.wait(str(rows[-SLOTS].job_id), timeout="30s")
        self._check(caught_up.state is State.SUCCEEDED, "the latest ran")
        self._fact("two were over their grace of 45 minutes and are missed; the latest ran late")
        handle = await app.schedules.run("hourly", "missed")
        await handle.result(timeout="30s")
        self._fact("one of the missed was then run by hand, through the same claim")

    async def _outage(self) -> None:
        """As if no worker had been up for the last two and a half hours."""
        now = await app.store.now()
        saved = await app.schedules.save(
            "hourly",
            None,
            jobs.add,
            every="1h",
            start=now - timedelta(minutes=150),
            params={"left": 1, "right": 2},
            coalesce=True,
            misfire_grace="45m",
        )
        first = saved.plan.rule.start
        value = SetSchedule(plan=saved.plan, next_slot=first, next_trigger_at=first)
        await app.store.set_schedule(saved.id, expected=saved.version, value=value)

    async def _killed(self) -> None:
        self._head("A worker is killed with SIGKILL in the middle of a job")
        handle = await jobs.long.enqueue()
        job = await self._until(handle.read, lambda job: job.state is State.RUNNING, "it runs")
        first = (await app.runs(handle.id))[0]
        self._fact(f"{first.holder} runs it under token {first.token}")
        code = self._crew.kill(first.holder)
        began = monotonic()
        self._fact(f"{first.holder} and all its children are dead (exit {code})")
        result = await handle.result(timeout="60s")
        runs = await app.runs(job.id)
        self._check(
            [run.status for run in runs] == [RunStatus.LOST, RunStatus.SUCCEEDED], "taken over"
        )
        self._check(runs[1].holder != first.holder, "by somebody else")
        self._fact(
            f"{runs[1].holder} took it over and {result}, {monotonic() - began:.1f} s after the "
            f"kill (lease {app.settings.lease.total_seconds():.0f} s)"
        )
        late = (await app.store.apply([succeed(job.id, first.token, '"late"')]))[0]
        self._check(not late and (await handle.result()) == result, "the late write is refused")
        self._fact(f"a late write in the dead one's name, under token {first.token}: refused")

    async def _verified(self) -> None:
        self._head("The store proves its own history")
        codes = self._crew.stop()
        self._check(set(codes) == {0}, "the workers left in order")
        self._fact(f"the other workers were asked to stop and left in order: exit {codes}")
        left = await app.store.find(
            Filter(states=frozenset({State.RUNNING, State.QUEUED})), limit=1
        )
        self._check(not left, "nothing is left over")
        report = await verify(app.store)
        self._check(not report.violations, f"no violation: {report.violations[:3]}")
        self._fact(
            f"{report.jobs:,} jobs, {report.runs:,} runs, {report.events:,} events: 0 violations"
        )
        self._fact(f"the tour took {monotonic() - self._began:.0f} s")

    async def _alive(self) -> set[str]:
        return {worker.instance_id for worker in await app.store.workers() if worker.is_alive}

    async def _order(self, queue: str) -> str:
        waiting = await app.queues.next_jobs(queue, 10)
        return " · ".join(job.params.split('"')[3] for job in waiting)

    async def _until(
        self, look: Callable[[], Awaitable[Any]], wanted: Callable[[Any], bool], what: str
    ) -> Any:
        until = monotonic() + PATIENCE
        while monotonic() < until:
            if wanted(seen := await look()):
                return seen
            await asyncio.sleep(LOOK)
        raise ClaimFailed(f"{what}: not within {PATIENCE:.0f} s")

    def _check(self, is_so: bool, what: str) -> None:
        if not is_so:
            raise ClaimFailed(what)

    def _head(self, text: str) -> None:
        self._say(f"— {text}")

    def _fact(self, text: str) -> None:
        self._say(f"  ✓ {text}")


async def _begun(handle: Handle[Any]) -> list[RunRecord]:
    """Its runs; what a worker had at hand and gave back for others to take is none."""
    return [run for run in await app.runs(handle.id) if run.status is not RunStatus.RELEASED]


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counter.items()))


def _drawn(runs: list[RunRecord]) -> str:
    return " → ".join(run.status for run in runs)
