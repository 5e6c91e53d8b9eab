"""The steps of the tour; each verifies its claims before it prints them."""

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

Print = Callable[[str], None]
WORKERS: Final = ("worker-1", "worker-2", "worker-3")
SMALL_JOBS: Final = 500
FLAKY_JOBS: Final = 20
SLOTS: Final = 3
STEP_TIMEOUT_S: Final = 60.0
POLL_INTERVAL_S: Final = 0.05


class ClaimFailed(Exception):
    """A claim of the tour does not hold."""


class Tour:
    """The tour: `await Tour(workers, print).run()`."""

    def __init__(self, workers: DemoWorkers, print_line: Print) -> None:
        self._workers = workers
        self._print = print_line
        self._began = monotonic()

    async def run(self) -> None:
        """Run every step.

        Raises:
            ClaimFailed: A claim does not hold; the steps after it are not run.
        """
        async with app:
            for step in (
                self._start_workers, self._run_small_jobs, self._retry_flaky_jobs,
                self._explain_a_job, self._move_a_job, self._run_directly, self._miss_slots,
                self._kill_a_worker, self._verify_history,
            ):  # fmt: skip
                self._print("")
                await step()

    async def _start_workers(self) -> None:
        self._heading("Start three workers on one SQLite file")
        for name in WORKERS:
            self._workers.start(name)
        alive = await self._until(
            self._alive, lambda names: names >= set(WORKERS), "three workers are running"
        )
        self._claim(f"{len(alive)} workers are running: {', '.join(sorted(alive))}")

    async def _run_small_jobs(self) -> None:
        self._heading(f"Run {SMALL_JOBS} small jobs")
        began = monotonic()
        handles = await app.enqueue_many(jobs.add.bind(n, n) for n in range(SMALL_JOBS))
        stored = monotonic() - began
        results = [await handle.result(timeout="60s") for handle in handles]
        took = monotonic() - began
        self._check(results == [2 * n for n in range(SMALL_JOBS)], "every result is correct")
        self._claim(
            f"stored in {stored:.2f} s; all {SMALL_JOBS} results are correct after {took:.2f} s"
        )
        runs = [await _started_runs(handle) for handle in handles]
        self._check(all(len(each) == 1 for each in runs), "each job ran once")
        shares = Counter(each[0].holder for each in runs)
        self._claim(f"each job ran once; jobs per worker: {_list_counts(shares)}")

    async def _retry_flaky_jobs(self) -> None:
        self._heading(f"Retry {FLAKY_JOBS} jobs that fail twice")
        handles = await app.enqueue_many(jobs.flaky.bind(n) for n in range(FLAKY_JOBS))
        for handle in handles:
            await handle.result(timeout="60s")
        runs = [await _started_runs(handle) for handle in handles]
        expected = [RunStatus.FAILED, RunStatus.FAILED, RunStatus.SUCCEEDED]
        self._check(
            all([run.status for run in each] == expected for each in runs),
            "each job failed twice, then succeeded",
        )
        self._claim(f"all {FLAKY_JOBS} succeeded on the third attempt: {_list_statuses(runs[0])}")

    async def _explain_a_job(self) -> None:
        self._heading("Explain why a job waits")
        await app.queues.pause("reports", reason="database migration")
        handle = await jobs.report.enqueue("November")
        explanation = await app.explain(handle.id)
        stop = explanation.stop
        self._check(stop is not None and stop.code is GateCode.PAUSED, "the pause blocks the job")
        for line in str(explanation).splitlines():
            self._print(f"    {line}" if line else "")
        await app.queues.resume("reports")
        self._claim(f"queue resumed; the job ran: {await handle.result(timeout='30s')!r}")

    async def _move_a_job(self) -> None:
        self._heading("Change the order of waiting jobs")
        await app.queues.save("studio", ordering="position", concurrency=1)
        await app.queues.pause("studio", reason="reordering")
        handles = [await jobs.story.enqueue(title) for title in ("Ahab", "Bartleby", "Claggart")]
        self._claim(f"before: {await self._order('studio')}")
        await app.move(handles[2].id, "front")
        order = await self._order("studio")
        self._claim(f"Claggart moved to the front: {order}")
        await app.queues.resume("studio")
        ended = [await handle.wait(timeout="30s") for handle in handles]
        ran = [
            job.params for job in sorted(ended, key=lambda job: job.started_at or job.created_at)
        ]
        self._check("Claggart" in ran[0] and "Ahab" in ran[1], "the jobs ran in that order")
        self._claim("queue resumed; the jobs ran in that order")

    async def _run_directly(self) -> None:
        self._heading("Run a job now, ahead of the waiting line")
        handle = await jobs.story.options(wait="30s").run_now("Direct")
        self._claim(f"a worker claimed it at once: {await handle.result(timeout='30s')!r}")
        reservation = (await app.store.reservations(limit=1))[0]
        self._check(reservation.status == "released", "its reservation is released")
        self._claim("its reservation of the queue is released")

    async def _miss_slots(self) -> None:
        self._heading("Record the slots that a schedule missed during an outage")
        await self._simulate_outage()
        rows = await self._until(
            lambda: app.schedules.history("hourly"), lambda rows: len(rows) >= SLOTS, "three slots"
        )
        outcomes = [row.outcome for row in rows[::-1]][:SLOTS]
        self._check(
            outcomes == [SlotOutcome.MISSED, SlotOutcome.MISSED, SlotOutcome.LATE],
            f"the outcomes follow the policy: {outcomes}",
        )
        for row in rows[::-1]:
            self._print(f"    {row.slot.at:%H:%M} UTC  {row.outcome}")
        latest = await app.wait(str(rows[-SLOTS].job_id), timeout="30s")
        self._check(latest.state is State.SUCCEEDED, "the latest slot ran")
        self._claim(
            "two slots exceeded the grace of 45 minutes and are missed; the latest ran late"
        )
        handle = await app.schedules.run("hourly", "missed")
        await handle.result(timeout="30s")
        self._claim("a manual run of a missed slot succeeded")

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
        self._heading("Kill a worker with SIGKILL while it runs a job")
        handle = await jobs.long.enqueue()
        job = await self._until(handle.read, lambda job: job.state is State.RUNNING, "the job runs")
        first = (await app.runs(handle.id))[0]
        self._claim(f"{first.holder} runs the job with token {first.token}")
        code = self._workers.kill(first.holder)
        began = monotonic()
        self._claim(f"{first.holder} and its child processes were killed (exit {code})")
        result = await handle.result(timeout="60s")
        runs = await app.runs(job.id)
        self._check(
            [run.status for run in runs] == [RunStatus.LOST, RunStatus.SUCCEEDED],
            "the first run is lost, the second succeeded",
        )
        self._check(runs[1].holder != first.holder, "another worker took over")
        self._claim(
            f"{runs[1].holder} took over and {result}, {monotonic() - began:.1f} s after the "
            f"kill (lease {app.settings.lease.total_seconds():.0f} s)"
        )
        late = (await app.store.apply([succeed(job.id, first.token, '"late"')]))[0]
        self._check(not late and (await handle.result()) == result, "the late write is refused")
        self._claim(f"a late result with the old token {first.token} is refused")

    async def _verify_history(self) -> None:
        self._heading("Verify every job, run and event")
        codes = self._workers.stop()
        self._check(set(codes) == {0}, "the workers stopped cleanly")
        self._claim(f"the other workers stopped cleanly after SIGTERM: exit {codes}")
        left = await app.store.find(
            Filter(states=frozenset({State.RUNNING, State.QUEUED})), limit=1
        )
        self._check(not left, "no job is queued or running")
        report = await verify(app.store)
        self._check(not report.violations, f"no violation: {report.violations[:3]}")
        self._claim(
            f"{report.jobs:,} jobs, {report.runs:,} runs, {report.events:,} events: 0 violations"
        )
        self._claim(f"the tour took {monotonic() - self._began:.0f} s")

    async def _alive(self) -> set[str]:
        return {worker.instance_id for worker in await app.store.workers() if worker.is_alive}

    async def _order(self, queue: str) -> str:
        waiting = await app.queues.next_jobs(queue, 10)
        return " · ".join(job.params.split('"')[3] for job in waiting)

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

    def _heading(self, text: str) -> None:
        self._print(f"— {text}")

    def _claim(self, text: str) -> None:
        self._print(f"  ✓ {text}")


async def _started_runs(handle: Handle[Any]) -> list[RunRecord]:
    """Return the runs of a job, without prefetched ones that a worker released unstarted."""
    return [run for run in await app.runs(handle.id) if run.status is not RunStatus.RELEASED]


def _list_counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counter.items()))


def _list_statuses(runs: list[RunRecord]) -> str:
    return " → ".join(run.status for run in runs)
