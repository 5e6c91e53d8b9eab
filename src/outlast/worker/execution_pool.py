"""The places where handlers run: as many at a time as the worker's concurrency."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from outlast.core.decide import Change
from outlast.core.event import Event, Released, Stopped
from outlast.core.run import Claim, Lease
from outlast.jobs.registry import Registry
from outlast.run_context import Begin
from outlast.worker.attempt_runner import AttemptRunner
from outlast.worker.executors.registry import make_executors
from outlast.worker.lease_table import LeaseTable
from outlast.worker.progress_reporter import ProgressReporter, RecordProgress
from outlast.worker.run_outcome import OutcomeJudge, shutdown_event

log = logging.getLogger("outlast.worker")

LOOP_YIELD_INTERVAL_S = 0.005
"""Handlers that never wait still let the event loop turn this often, in seconds."""

EXCESS_PREFETCH_REASON = "prefetched_too_many"

CANCEL_TIMEOUT_S = 1.0
"""How long a handler that was cancelled may still take, in seconds."""


class RunEndCallback(Protocol):
    """Told that a job of that type has left its slot; moments are of the loop's clock."""

    def __call__(self, kind: str, started: float, ended: float) -> None: ...


class ExecutionPool:
    """Runs claims, and hands what became of them to `finish`; who fills them is told by `left`."""

    def __init__(
        self,
        registry: Registry,
        judge: OutcomeJudge,
        *,
        concurrency: int,
        begin: Begin | None,
        finish: Callable[[Change], None],
        settled: Callable[[Sequence[Change], Sequence[bool]], None],
        held: LeaseTable,
        logs: Path,
        addresses: Mapping[str, str],
        report: RecordProgress | None = None,
    ) -> None:
        self._judge = judge
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._stop_requested: dict[Lease, Event | None] = {}
        self._executors = make_executors(
            concurrency=concurrency,
            logs=logs,
            addresses=addresses,
            stepping=held.on_step,
            moved=held.change_executor,
        )
        self._reporter = None if report is None else ProgressReporter(report)
        self._attempts = AttemptRunner(
            registry,
            judge,
            self._executors,
            begin=begin,
            finish=finish,
            settled=settled,
            held=held,
            reporter=self._reporter,
            is_torn_down=self._is_torn_down,
        )
        self._tasks = [
            asyncio.create_task(self._slot(), name=f"outlast-slot-{n}") for n in range(concurrency)
        ]
        # Nobody cancels this one but whoever tears down the whole loop.
        self._canary = asyncio.create_task(asyncio.Event().wait(), name="outlast-canary")
        self._breathed = 0.0
        self._idle_event = asyncio.Event()
        self._patience: asyncio.Timeout | None = None
        self.prefetched: deque[Claim] = deque()
        self.active = self._attempts.active
        self.on_run_end: RunEndCallback = _nobody

    def submit(self, claims: Sequence[Claim]) -> None:
        self.prefetched.extend(claims)
        for _ in range(min(len(claims), len(self._idle))):
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def running(self) -> list[tuple[str, float]]:
        """The type of each that runs, and since when, by the loop's clock."""
        return [(active.claim.type, active.started) for active in self.active.values()]

    def stop_run(self, lease: Lease, event: Event | None) -> bool:
        """Stop that run. One that has not started never will; without an event, without a word.

        False if its handler is done with: then its end is on the way to the store, or there.
        """
        active = self.active.get((lease.job_id, lease.token))
        if active is not None:
            if event is None:
                active.run.lose_lease()
            active.interrupt(event or Stopped("lease_lost"))
            return True
        if any(claim.lease == lease for claim in self.prefetched):
            self._stop_requested[lease] = event
            return True
        return False

    def release_all(self) -> None:
        """Give back what has not started, where its delivery allows; the rest will start."""
        self._let_go(self.prefetched, shutdown_event)

    def release(self, claims: Sequence[Claim]) -> int:
        """Hand these, which wait here, to whoever is idle, where they may; how many went."""
        return self._let_go(claims, lambda _: Released(EXCESS_PREFETCH_REASON))

    def _let_go(self, claims: Iterable[Claim], why: Callable[[Claim], Event]) -> int:
        leaving = {id(claim): claim for claim in claims if claim.delivery.runs_again}
        if leaving:
            staying = [claim for claim in self.prefetched if id(claim) not in leaving]
            self.prefetched.clear()
            self.prefetched.extend(staying)
        for claim in leaving.values():
            self._drop(claim, why(claim))
        return len(leaving)

    def stop_all(self) -> None:
        """Ask all that runs to stop, as when the worker does; what does not stop goes on."""
        for active in tuple(self.active.values()):
            active.interrupt(shutdown_event(active.claim))

    async def shut_down(self, within: float) -> None:
        """Wait for what runs, then ask it to stop, then let go of what does not."""
        await self.wait_idle(within)
        for active in tuple(self.active.values()):
            active.interrupt(shutdown_event(active.claim))
        await self.wait_idle(CANCEL_TIMEOUT_S if self.active else 0.0)
        killed = any(active.kind.stops == "now" for active in self.active.values())
        for executor in self._executors.values():
            await executor.close()
        await self.wait_idle(CANCEL_TIMEOUT_S if killed else 0.0)
        for active in self.active.values():
            log.warning("handler did not stop job=%s type=%s", active.claim.id, active.kind.name)
            active.abandoned = True
            self._finish(self._judge.abandon(active.claim))

    def shorten_grace(self, within: float) -> None:
        """Whatever it waits for now, it waits no longer than that."""
        latest = self._loop.time() + within
        if self._patience is not None and (self._patience.when() or 0) > latest:
            self._patience.reschedule(latest)

    def close(self) -> None:
        for task in (*self._tasks, self._canary):
            task.cancel()
        if self._reporter is not None:
            self._reporter.close()
        self._attempts.close()
        for executor in self._executors.values():
            executor.close_now()

    async def wait_idle(self, within: float | None = None) -> None:
        """Wait until nothing runs here and nothing is about to; no longer than that."""
        try:
            async with asyncio.timeout(within) as self._patience:
                while self.active or self.prefetched:
                    self._idle_event.clear()
                    await self._idle_event.wait()
        except TimeoutError:
            pass
        finally:
            self._patience = None

    async def _slot(self) -> None:
        ready, time, begin = self.prefetched, self._loop.time, self._attempts.begin
        task = asyncio.current_task()
        assert task is not None
        while True:
            claim = ready.popleft() if ready else await self._next()
            started = time()
            try:
                if self._stop_requested and claim.lease in self._stop_requested:
                    self._drop(claim)
                elif (rest := begin(claim, task, started)) is not None:
                    await rest
            except Exception as error:  # noqa: BLE001 - or the slot is dead and its job runs for ever
                self._attempts.abandon(claim, error)
            ended = time()
            self.on_run_end(claim.type, started, ended)
            if not self.active:
                self._idle_event.set()
            if ended - self._breathed > LOOP_YIELD_INTERVAL_S:
                await asyncio.sleep(0)
                self._breathed = time()

    async def _next(self) -> Claim:
        while not self.prefetched:
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter
        return self.prefetched.popleft()

    def _drop(self, claim: Claim, event: Event | None = None) -> None:
        """It will not start here, for that reason, or for the one for which it was given up."""
        if self._stop_requested:
            event = self._stop_requested.pop(claim.lease, event)
        if event is not None:
            self._finish(self._judge.decide(claim, event))

    def _is_torn_down(self) -> bool:
        """Whether the loop itself is being ended."""
        return self._canary.done() or bool(self._canary.cancelling())


def _nobody(kind: str, started: float, ended: float) -> None:
    """For slots that nobody fills."""
