"""The steps of the tour; each verifies its claims before it prints them."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final

from outlast.core.decide import succeed
from outlast.core.explain import GateCode
from outlast.core.run import RunRecord
from outlast.core.schedule import SlotOutcome
from outlast.core.state import RunStatus, State
from outlast.demo import jobs
from outlast.demo.jobs import app
from outlast.demo.screen import Screen
from outlast.demo.workers import DemoWorkers
from outlast.jobs.handle import Handle
from outlast.store.contract.jobs import Filter
from outlast.store.contract.schedules import SetSchedule
from outlast.verify import verify

WORKERS: Final = ("worker-1", "worker-2", "worker-3")
SMALL_JOBS: Final = 500
FLAKY_JOBS: Final = 20
SLOTS: Final = 3
OUTCOMES: Final = {
    SlotOutcome.MISSED: "missed  later than the grace of 45 minutes allows",
    SlotOutcome.LATE: "late    within the grace, so it ran",
}
STEP_TIMEOUT_S: Final = 60.0
POLL_INTERVAL_S: Final = 0.05


class ClaimFailed(Exception):
    """A claim of the tour does not hold."""


class Tour:
    """The tour: `await Tour(workers, screen).run()`."""

    def __init__(self, workers: DemoWorkers, screen: Screen) -> None:
        self._workers = workers
        self._screen = screen
        self._stories: dict[str, Handle[str]] = {}

    async def run(self) -> None:
        """Run every step.

        Raises:
            ClaimFailed: A claim does not hold; the steps after it are not run.
        """
        self._screen.intro(
            "Outlast on this machine: three worker processes, one SQLite file, one kill.",
            "Each line marked ✓ was checked against the store before it was printed.",
        )
        async with app:
            for step in (
                self._start_workers, self._run_small_jobs, self._retry_flaky_jobs,
                self._explain_a_job, self._move_a_job, self._run_directly, self._miss_slots,
                self._kill_a_worker, self._verify_history,
            ):  # fmt: skip
                await step()

    async def _start_workers(self) -> None:
        self._screen.heading("Start three workers on one SQLite file")
        for name in WORKERS:
            self._workers.start(name)
        alive = await self._until(
            self._alive, lambda names: names >= set(WORKERS), "three workers are running"
        )
        self._screen.claim(f"{len(alive)} workers are running: {', '.join(sorted(alive))}")

    async def _run_small_jobs(self) -> None:
        self._screen.heading(f"Run {SMALL_JOBS} small jobs")
        handles = await app.enqueue_many(jobs.add.bind(n, n) for n in range(SMALL_JOBS))
        results = [await handle.result(timeout="60s") for handle in handles]
        self._check(results == [2 * n for n in range(SMALL_JOBS)], "every result is correct")
        ended = [await handle.read() for handle in handles]
        took = max(job.finished_at or job.created_at for job in ended) - ended[0].created_at
        self._screen.claim(
            f"all {SMALL_JOBS} results are correct, {_seconds(took)} after the first was stored"
        )
        runs = [await _started_runs(handle) for handle in handles]
        self._check(all(len(each) == 1 for each in runs), "each job ran once")
        self._screen.claim("each job ran once; jobs per worker:")
        shares = Counter(each[0].holder for each in runs)
        self._screen.shares({name: shares[name] for name in WORKERS})

    async def _retry_flaky_jobs(self) -> None:
        self._screen.heading(f"Retry {FLAKY_JOBS} jobs that fail twice")
        handles = await app.enqueue_many(jobs.flaky.bind(n) for n in range(FLAKY_JOBS))
        for handle in handles:
            await handle.result(timeout="60s")
        runs = [await _started_runs(handle) for handle in handles]
        expected = [RunStatus.FAILED, RunStatus.FAILED, RunStatus.SUCCEEDED]
        self._check(
            all([run.status for run in each] == expected for each in runs),
            "each job failed twice, then succeeded",
        )
        self._screen.claim(
            f"all {FLAKY_JOBS} succeeded on the third attempt: {_list_statuses(runs[0])}"
        )

    async def _explain_a_job(self) -> None:
        self._screen.heading("Ask why a job waits: outlast explain")
        await app.queues.pause("reports", reason="database migration")
        handle = await jobs.report.enqueue("November")
        explanation = await app.explain(handle.id)
        stop = explanation.stop
        self._check(stop is not None and stop.code is GateCode.PAUSED, "the pause blocks the job")
        for line in str(explanation).replace(handle.id, handle.id[:8]).splitlines():
            self._screen.detail(line)
        await app.queues.resume("reports")
        self._screen.claim(f"queue resumed; the job ran: {await handle.result(timeout='30s')!r}")

    async def _move_a_job(self) -> None:
        self._screen.heading("Change the order of waiting jobs")
        await app.queues.save("studio", ordering="position", concurrency=1)
        await app.queues.pause("studio", reason="reordering")
        for title in ("Ahab", "Bartleby", "Claggart"):
            is_last = title == "Claggart"
            self._stories[title] = await jobs.story.enqueue(title, until_direct_run=is_last)
        await self._expect_order("Ahab · Bartleby · Claggart")
        self._screen.claim("three jobs wait:             Ahab · Bartleby · Claggart")
        await app.move(self._stories["Claggart"].id, "front")
        await self._expect_order("Claggart · Ahab · Bartleby")
        self._screen.claim("Claggart moved to the front: Claggart · Ahab · Bartleby")

    async def _run_directly(self) -> None:
        self._screen.heading("Run a job now, before those that wait")
        await app.queues.resume("studio")
        first = self._stories["Claggart"]
        await self._until(first.read, lambda job: job.state is State.RUNNING, "the queue runs")
        await self._expect_order("Ahab · Bartleby")
        self._screen.claim("the queue is busy: Claggart runs, Ahab and Bartleby wait")
        self._stories["Direct"] = await jobs.story.options(wait="30s").run_now("Direct")
        ended = {name: await handle.wait("30s") for name, handle in self._stories.items()}
        started = {name: job.started_at or job.created_at for name, job in ended.items()}
        order = " · ".join(sorted(started, key=lambda name: started[name]))
        self._check(order == "Claggart · Direct · Ahab · Bartleby", f"the order was {order}")
        self._screen.claim(f"order of their starts: {order}")

    async def _miss_slots(self) -> None:
        self._screen.heading("Catch up after an outage of two and a half hours")
        await self._simulate_outage()
        rows = await self._until(
            lambda: app.schedules.history("hourly"), lambda rows: len(rows) >= SLOTS, "three slots"
        )
        oldest_first = rows[::-1][:SLOTS]
        outcomes = [row.outcome for row in oldest_first]
        self._check(
            outcomes == [SlotOutcome.MISSED, SlotOutcome.MISSED, SlotOutcome.LATE],
            f"the outcomes follow the policy: {outcomes}",
        )
        latest = await app.wait(str(oldest_first[-1].job_id), timeout="30s")
        self._check(latest.state is State.SUCCEEDED, "the latest slot ran")
        self._screen.claim("an hourly schedule has an outcome for every slot, also missed ones:")
        for row in oldest_first:
            self._screen.detail(f"{row.slot.at:%H:%M} UTC  {OUTCOMES[row.outcome]}")
        handle = await app.schedules.run("hourly", "missed")
        await handle.result(timeout="30s")
        made_up = (await handle.read()).slot_at
        self._check(made_up in {row.slot.at for row in oldest_first[:-1]}, "a missed slot ran")
        self._screen.claim(f"the slot of {made_up:%H:%M} was run by hand and succeeded")

    async def _simulate_outage(self) -> None:
        """Set the next slot of a schedule to two and a half hours ago."""
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

    async def _kill_a_worker(self) -> None:
        self._screen.heading("Kill a worker while it runs a job")
        handle = await jobs.long.enqueue()
        await self._until(handle.read, lambda job: job.state is State.RUNNING, "the job runs")
        first = (await app.runs(handle.id))[0]
        self._screen.claim(f"{first.holder} runs the job; its lease has token {first.token}")
        killed_at = await app.store.now()  # before the signal: the takeover is not underestimated
        self._workers.kill(first.holder)
        self._screen.claim(f"{first.holder} and its child processes are dead (SIGKILL)")
        result = await handle.result(timeout="60s")
        await self._claim_takeover(handle, killed_at)
        late = (await app.store.apply([succeed(handle.id, first.token, '"late"')]))[0]
        self._check(not late and (await handle.result()) == result, "the late write is refused")
        self._screen.claim(f"a late result with the old token {first.token} is refused")

    async def _claim_takeover(self, handle: Handle[str], killed_at: datetime) -> None:
        lost, second = await app.runs(handle.id)
        self._check(lost.status is RunStatus.LOST, "the first run is lost")
        self._check(second.status is RunStatus.SUCCEEDED, "the second run succeeded")
        self._check(second.holder != lost.holder, "another worker took over")
        lease = app.settings.lease.total_seconds()
        self._screen.claim(
            f"{second.holder} restarted the job {_seconds(second.started_at - killed_at)} after "
            f"the kill (lease: {lease:g} s)"
        )
        self._screen.claim(f"two runs are stored: {_list_statuses([lost, second])}")

    async def _verify_history(self) -> None:
        self._screen.heading("Check every job, run and event: outlast verify")
        codes = self._workers.stop()
        self._check(set(codes) == {0}, "the workers stopped cleanly")
        self._screen.claim("the two other workers ended cleanly after SIGTERM")
        left = await app.store.find(
            Filter(states=frozenset({State.RUNNING, State.QUEUED})), limit=1
        )
        self._check(not left, "no job is queued or running")
        report = await verify(app.store)
        self._check(not report.violations, f"no violation: {report.violations[:3]}")
        self._screen.claim(
            f"{report.jobs:,} jobs, {report.runs:,} runs, {report.events:,} events: 0 violations"
        )

    async def _alive(self) -> set[str]:
        return {worker.instance_id for worker in await app.store.workers() if worker.is_alive}

    async def _expect_order(self, expected: str) -> None:
        waiting = await app.queues.next_jobs("studio", 10)
        order = " · ".join(json.loads(job.params)["title"] for job in waiting)
        self._check(order == expected, f"the order is {order}, not {expected}")

    async def _until(
        self, read: Callable[[], Awaitable[Any]], is_expected: Callable[[Any], bool], claim: str
    ) -> Any:
        """Poll until the value is as expected and return it; ClaimFailed after the timeout."""
        deadline = monotonic() + STEP_TIMEOUT_S
        while monotonic() < deadline:
            if is_expected(value := await read()):
                return value
            await asyncio.sleep(POLL_INTERVAL_S)
        raise ClaimFailed(f"{claim}: not within {STEP_TIMEOUT_S:.0f} s")

    def _check(self, is_true: bool, claim: str) -> None:
        if not is_true:
            raise ClaimFailed(claim)


async def _started_runs(handle: Handle[Any]) -> list[RunRecord]:
    """Return the runs of a job, without prefetched ones that a worker released unstarted."""
    return [run for run in await app.runs(handle.id) if run.status is not RunStatus.RELEASED]


def _list_statuses(runs: list[RunRecord]) -> str:
    return " → ".join(run.status for run in runs)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.2f} s"
