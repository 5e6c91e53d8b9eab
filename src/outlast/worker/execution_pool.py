"""The execution pool: one task per execution slot, as many as the worker's concurrency."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from outlast.core.decide import Change
from outlast.core.event import Event, Released, Stopped
from outlast.core.run import Claim, Lease
from outlast.jobs.registry import Registry
from outlast.run_context import NO_CONTEXT, Begin
from outlast.worker.attempt_runner import AttemptRunner, Refuse
from outlast.worker.executors.registry import make_executors
from outlast.worker.lease_table import LeaseTable
from outlast.worker.progress_reporter import ProgressReporter, RecordProgress
from outlast.worker.run_outcome import OutcomeJudge, shutdown_event

log = logging.getLogger("outlast.worker")

LOOP_YIELD_INTERVAL_S = 0.005
"""Seconds after which slots yield to the event loop, even if no handler ever awaits."""

EXCESS_PREFETCH_REASON = "prefetched_too_many"
"""Reason on the run of a prefetched job that was released because it waited too long."""

CANCEL_TIMEOUT_S = 1.0
"""Seconds for which a cancelled handler may run on."""


class RunEndCallback(Protocol):
    """Called with the type of a job that left its slot; times are of the event loop."""

    def __call__(self, kind: str, started: float, ended: float) -> None:
        """Record the end of a run."""
        ...


class ExecutionPool:
    """Runs claims and passes their changes to `finish`. `on_run_end` is called after each run."""

    def __init__(
        self,
        registry: Registry,
        judge: OutcomeJudge,
        *,
        concurrency: int,
        begin: Begin | None,
        finish: Callable[[Change], None],
        on_written: Callable[[Sequence[Change], Sequence[bool]], None],
        leases: LeaseTable,
        logs: Path,
        addresses: Mapping[str, str],
        refuse: Refuse,
        record_progress: RecordProgress | None = None,
        context: Any = NO_CONTEXT,
    ) -> None:
        self._judge = judge
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._idle_slots: deque[asyncio.Future[None]] = deque()
        self._stop_requested: dict[Lease, Event | None] = {}
        self._executors = make_executors(
            concurrency=concurrency,
            logs=logs,
            addresses=addresses,
            on_step=leases.on_step,
            on_executor_changed=leases.change_executor,
        )
        self._reporter = None if record_progress is None else ProgressReporter(record_progress)
        self._attempts = AttemptRunner(
            registry,
            judge,
            self._executors,
            begin=begin,
            finish=finish,
            on_written=on_written,
            leases=leases,
            reporter=self._reporter,
            is_torn_down=self._is_torn_down,
            refuse=refuse,
            context=context,
        )
        self.tasks = [
            asyncio.create_task(self._slot(), name=f"outlast-slot-{n}") for n in range(concurrency)
        ]
        # Only the teardown of the whole loop cancels this task: it tells that apart from a
        # cancellation of one slot.
        self._teardown_probe = asyncio.create_task(
            asyncio.Event().wait(), name="outlast-teardown-probe"
        )
        self._last_yield = 0.0
        self._idle_event = asyncio.Event()
        self._wait_timeout: asyncio.Timeout | None = None
        self.prefetched: deque[Claim] = deque()
        self.active = self._attempts.active
        self.on_run_end: RunEndCallback = _ignore_run_end

    def submit(self, claims: Sequence[Claim]) -> None:
        """Queue claims and wake as many idle slots."""
        self.prefetched.extend(claims)
        for _ in range(min(len(claims), len(self._idle_slots))):
            waiter = self._idle_slots.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def running(self) -> list[tuple[str, float]]:
        """Return the type and the start, in time of the loop, of each running job."""
        return [(active.claim.type, active.started) for active in self.active.values()]

    def stop_run(self, lease: Lease, event: Event | None) -> bool:
        """Stop the run of a lease, or keep it from starting.

        Without an event the lease is lost, so a run that has not started is dropped unwritten.
        Returns False if the handler has ended: its change is on the way to the store.
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
        """Release prefetched claims where their delivery allows it; the others will start."""
        self._release(self.prefetched, shutdown_event)

    def release(self, claims: Sequence[Claim]) -> int:
        """Release these prefetched claims where their delivery allows it; return how many."""
        return self._release(claims, lambda _: Released(EXCESS_PREFETCH_REASON))

    def _release(self, claims: Iterable[Claim], event_for: Callable[[Claim], Event]) -> int:
        leaving = {id(claim): claim for claim in claims if claim.delivery.runs_again}
        if leaving:
            staying = [claim for claim in self.prefetched if id(claim) not in leaving]
            self.prefetched.clear()
            self.prefetched.extend(staying)
        for claim in leaving.values():
            self._close_unstarted(claim, event_for(claim))
        return len(leaving)

    def stop_all(self) -> None:
        """Ask every running handler to stop. One that does not comply runs on."""
        for active in tuple(self.active.values()):
            active.interrupt(shutdown_event(active.claim))

    async def shut_down(self, within: float) -> None:
        """Wait for running jobs, then ask them to stop, then abandon those that do not."""
        await self.wait_idle(within)
        self.stop_all()
        await self.wait_idle(CANCEL_TIMEOUT_S if self.active else 0.0)
        killed = any(active.kind.stops == "now" for active in self.active.values())
        for executor in self._executors.values():
            await executor.close()
        await self.wait_idle(CANCEL_TIMEOUT_S if killed else 0.0)
        for active in [each for each in self.active.values() if not each.abandoned]:
            log.warning("handler did not stop job=%s type=%s", active.claim.id, active.kind.name)
            active.abandoned = True
            self._finish(self._judge.abandon(active.claim))

    def shorten_grace(self, within: float) -> None:
        """Let a `wait_idle` under way end after `within` seconds at the latest."""
        latest = self._loop.time() + within
        if self._wait_timeout is not None and (self._wait_timeout.when() or 0) > latest:
            self._wait_timeout.reschedule(latest)

    def close(self) -> None:
        """Cancel the slots and close the executors without waiting."""
        for task in (*self.tasks, self._teardown_probe):
            task.cancel()
        if self._reporter is not None:
            self._reporter.close()
        self._attempts.close()
        for executor in self._executors.values():
            executor.close_now()

    async def wait_idle(self, within: float | None = None) -> None:
        """Wait until nothing runs or is prefetched, for `within` seconds at most."""
        try:
            async with asyncio.timeout(within) as self._wait_timeout:
                while self.active or self.prefetched:
                    self._idle_event.clear()
                    await self._idle_event.wait()
        except TimeoutError:
            pass
        finally:
            self._wait_timeout = None

    async def _slot(self) -> None:
        prefetched, time, begin = self.prefetched, self._loop.time, self._attempts.begin
        task = asyncio.current_task()
        assert task is not None
        while True:
            claim = prefetched.popleft() if prefetched else await self._next()
            started = time()
            try:
                if self._stop_requested and claim.lease in self._stop_requested:
                    self._close_unstarted(claim)
                elif (rest := begin(claim, task, started)) is not None:
                    await rest
            except Exception as error:  # noqa: BLE001 - the slot must survive and close the run
                self._attempts.abandon(claim, error)
            ended = time()
            self.on_run_end(claim.type, started, ended)
            if not self.active:
                self._idle_event.set()
            if ended - self._last_yield > LOOP_YIELD_INTERVAL_S:
                await asyncio.sleep(0)
                self._last_yield = time()

    async def _next(self) -> Claim:
        while not self.prefetched:
            waiter = self._loop.create_future()
            self._idle_slots.append(waiter)
            await waiter
        return self.prefetched.popleft()

    def _close_unstarted(self, claim: Claim, event: Event | None = None) -> None:
        """Close a run that will not start, with the event of its stop request or `event`."""
        if self._stop_requested:
            event = self._stop_requested.pop(claim.lease, event)
        if event is not None:
            self._finish(self._judge.decide(claim, event))

    def _is_torn_down(self) -> bool:
        """Whether the event loop itself is being closed."""
        return self._teardown_probe.done() or bool(self._teardown_probe.cancelling())


def _ignore_run_end(kind: str, started: float, ended: float) -> None:
    """Do nothing: the default of a pool without a dispatcher."""
