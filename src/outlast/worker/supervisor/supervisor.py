"""The supervisor: identity, recovery, children and shutdown. It runs no user code."""

import asyncio
import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from itertools import count
from typing import Any, Final

from outlast.clock import Clock
from outlast.config import Settings
from outlast.core.ids import Ids
from outlast.core.run import LeaseHolder
from outlast.errors import IdentityInUse, OperatorError, OutlastError, StoreClosed, StoreMoved
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.contract.transfer import TransferStage, closed_error
from outlast.store.transfer_completion import complete_transfer
from outlast.telemetry.events import subscribe
from outlast.worker.maintenance.loop import Maintenance, run_maintenance
from outlast.worker.maintenance.pruner import load_retentions
from outlast.worker.maintenance.recovery import Recovery, RecoveryScope
from outlast.worker.periodic import run_periodically
from outlast.worker.supervisor.child_main import FAILED_STATES, orphan_timeout
from outlast.worker.supervisor.child_pool import AppUnusable, ChildPool
from outlast.worker.supervisor.child_process import ChildProcess
from outlast.worker.supervisor.crash_attribution import attribute_crash, close_runs
from outlast.worker.supervisor.health import Watched, WorkerHealth
from outlast.worker.supervisor.identity import (
    WorkerIdentity,
    identify,
    new_boot,
    remove_boot_lock,
    start_banner,
    worker_info,
)
from outlast.worker.supervisor.options import WorkerExit, WorkerOptions
from outlast.worker.supervisor.start_steps import first, retry_transient
from outlast.worker.supervisor.watchdog import ChildWatchdog

log = logging.getLogger("outlast.worker")

EXIT_TIMEOUT_S: Final = 0.5
"""Seconds after the grace within which a child must exit."""

FINAL_WRITE_TIMEOUT_S: Final = 5.0
"""Seconds for the last writes of the supervisor after that."""

CHECK_INTERVAL: Final = timedelta(milliseconds=500)
"""Interval of the watchdog and of the check for children to recycle."""

MAX_CLOSE_ATTEMPTS: Final = 5
"""Attempts of a stopping supervisor to close the runs of a dead child."""

BackgroundServices = Callable[[Store, Settings, asyncio.Event], Coroutine[Any, Any, None]]


class Supervisor:
    """Runs a worker: starts children, takes an identity, recovers, works and stops."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        program: list[str],
        open_store: Callable[[str], Store],
        clock: Clock,
        ids: Ids,
        random: Callable[[], float],
        exit_now: Callable[[], None],
        health: WorkerHealth,
        report: Callable[[str], None] = log.error,
        background_services: BackgroundServices | None = None,
    ) -> None:
        """Create a supervisor.

        `exit_now` ends the process if the store blocks an orderly stop. `health` is informed for
        the probes. `report` receives why the worker cannot run. `background_services` run next to
        the children after recovery, without user code; their event is set when a child has written
        the schedules that the app declares.
        """
        self._report = report
        self._background_services = background_services
        self._options = options
        self._program = program
        self._open_store = open_store
        self._clock = clock
        self._ids = ids
        self._random = random
        self._exit_now = exit_now
        self._health = health
        self._grace = 0.0
        self._fatal_error: StoreMoved | AppUnusable | None = None
        self._stop_requested = asyncio.Event()
        self._force_requested = asyncio.Event()
        self._announce_stop = asyncio.Event()  # the next heartbeat is due now
        self._settled: Counter[str] = Counter()
        self._schedules_written = asyncio.Event()
        self._pool = ChildPool(
            self._spawn,
            size=options.processes,
            clock=clock,
            on_exit=self._on_child_exit,
            on_schedules_written=self._schedules_written.set,
            on_claiming=health.claims,
            on_unusable=self._stop_for,
        )

    async def run(self) -> WorkerExit:
        """Run the worker until a signal, the end of a burst or a fatal error."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(each) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                loop.add_signal_handler(each, self._on_signal)
        unsubscribe = subscribe(self._pool.forward_event)
        self._boot = new_boot()
        try:
            return await self._start()
        except (AppUnusable, OutlastError) as error:
            is_refused = isinstance(error, StoreMoved | IdentityInUse)
            (log.error if is_refused else self._report)(str(error))
            if isinstance(error, StoreMoved):
                return WorkerExit.MOVED
            if isinstance(error, IdentityInUse):
                return WorkerExit.IDENTITY_IN_USE
            return WorkerExit.UNUSABLE
        finally:
            unsubscribe()
            self._pool.stop(0.0)
            await self._pool.wait_gone(EXIT_TIMEOUT_S)
            self._boot.close()

    def _on_signal(self) -> None:
        """Stop in order on the first signal, and by force on the second."""
        self._health.stops()
        is_second = self._stop_requested.is_set()
        (self._force_requested if is_second else self._stop_requested).set()
        grace = 0.0 if is_second else self._grace
        timer = threading.Timer(grace + EXIT_TIMEOUT_S + FINAL_WRITE_TIMEOUT_S, self._exit_now)
        timer.daemon = True  # a thread, since the store may block the event loop
        timer.start()

    async def _start(self) -> WorkerExit:
        hello = await first(self._pool.start(), self._stop_requested)
        if hello is None:
            return WorkerExit.OK
        self._hello = hello
        self._settings = Settings.load(hello["settings"])
        self._options = self._options.with_app(self._settings)
        self._grace = self._settings.grace.total_seconds()
        for warning in hello["warnings"]:
            log.warning(warning)
        self._store = self._open_store(hello["url"])
        try:
            await first(retry_transient(self._store.open), self._stop_requested)
            if not self._stop_requested.is_set():
                await first(retry_transient(self._complete_transfer), self._stop_requested)
            return WorkerExit.OK if self._stop_requested.is_set() else await self._serve(hello)
        finally:
            await self._store.close()

    async def _serve(self, hello: dict[str, Any]) -> WorkerExit:
        identity = await first(
            retry_transient(lambda: identify(self._store, self._options, self._boot.name)),
            self._stop_requested,
        )
        if identity is None:
            return WorkerExit.OK
        holder = identity.holder
        info = worker_info(self._options, holder, hello)
        recovery = self._recovery(holder, hello["queues"])
        try:
            await first(retry_transient(self._require_not_moved), self._stop_requested)
            await first(
                retry_transient(lambda: self._store.register_worker(info)), self._stop_requested
            )
            await first(
                retry_transient(lambda: self._wait_for_old_children(holder)), self._stop_requested
            )
            await first(retry_transient(recovery.run_once), self._stop_requested)
            return WorkerExit.OK if self._stop_requested.is_set() else await self._work(identity)
        finally:
            with suppress(OperatorError):
                await self._store.deregister_worker(holder)
            await identity.release()
            with suppress(OperatorError):
                await remove_boot_lock(self._store, holder)

    async def _complete_transfer(self) -> None:
        await complete_transfer(self._store, self._open_store)

    async def _require_not_moved(self) -> None:
        status = await self._store.transfer_status()
        if status.stage is TransferStage.MOVED:
            raise closed_error(status)

    async def _check_moved(self) -> None:
        """Stop in order if the store was moved: it will have no more work."""
        try:
            await self._require_not_moved()
        except StoreMoved as error:
            self._stop_for(error)

    def _stop_for(self, error: StoreMoved | AppUnusable) -> None:
        self._fatal_error = error
        self._stop_requested.set()

    async def _wait_for_old_children(self, holder: LeaseHolder) -> None:
        """Wait if an earlier boot left runs: its orphaned children may still be running."""
        name, boot = holder.instance_id, holder.boot_id
        if await self._store.running_under_other_boots(instance_id=name, besides=boot, limit=1):
            await asyncio.sleep(orphan_timeout(self._settings).total_seconds())

    async def _work(self, identity: WorkerIdentity) -> WorkerExit:
        holder = identity.holder
        watchdog = ChildWatchdog(
            self._store, self._settings, clock=self._clock, members=lambda: self._pool.members
        )
        loops = [asyncio.create_task(loop) for loop in self._loops(identity, watchdog)]
        self._health.watch(
            Watched(
                store=self._store,
                lease=self._settings.lease,
                watchdog=watchdog,
                working=lambda: self._pool.working,
                queues=self._hello["queues"],
            )
        )
        self._pool.start_work(holder)
        for warning in self._store.connection_warnings():
            log.warning("%s", warning)
        log.info("worker started %s", start_banner(self._options, holder, self._hello))
        try:
            work = self._drained() if self._options.burst else asyncio.Event().wait()
            await first(work, self._stop_requested)
            ended = await self._stop()
            if self._fatal_error is not None:
                raise self._fatal_error
            return WorkerExit.IDENTITY_IN_USE if identity.is_lost else ended
        finally:
            for task in loops:
                task.cancel()
            await asyncio.wait(loops)
            log.info("worker stopped instance=%s", holder.instance_id)

    def _loops(
        self, identity: WorkerIdentity, watchdog: ChildWatchdog
    ) -> Iterable[Coroutine[Any, Any, None]]:
        settings, random = self._settings, self._random
        wake = asyncio.Event()
        running = asyncio.get_running_loop()

        def notify(notification: Notification) -> None:
            if notification.cancelled:
                running.call_soon_threadsafe(wake.set)

        async def heartbeat() -> None:
            is_stopping = self._stop_requested.is_set()
            with self._health.asking_store():
                await self._store.heartbeat(
                    identity.holder, span=settings.lease, is_stopping=is_stopping
                )
            await self._check_moved()
            if identity.is_lost and not self._stop_requested.is_set():
                log.error(
                    "another worker has the name %s; this one stops",
                    identity.holder.instance_id,
                )
                self._stop_requested.set()

        self._store.subscribe(notify, topics=[Topic.CANCELLED])
        renew, alive = "renew leases", "send the heartbeat"
        yield run_periodically(
            settings.renew,
            watchdog.renew_once,
            what=renew,
            random=random,
            wake=wake,
            error_backoff=1,
        )
        yield run_periodically(
            settings.renew,
            heartbeat,
            what=alive,
            random=random,
            wake=self._announce_stop,
            error_backoff=1,
        )
        yield run_periodically(
            min(CHECK_INTERVAL, settings.max_silence / 4), watchdog.check_once, random=random
        )
        yield run_periodically(CHECK_INTERVAL, self._recycle_once, random=random)
        own = load_retentions(self._hello["retentions"])
        maintenance = Maintenance(
            self._store, self._ids.job, retentions=lambda: own, on_reclaimed=self._pool.wake
        )
        yield run_maintenance(maintenance, settings, random=random)
        if self._background_services is not None:
            yield self._background_services(self._store, settings, self._schedules_written)

    def _recovery(self, holder: LeaseHolder, queues: list[str]) -> Recovery:
        """Return the recovery to run before the first claim, under the identity lock."""
        is_single, policy = self._options.topology == "single", self._settings.unknown_owner
        scope: RecoveryScope = "all" if is_single and policy in {None, "fail"} else "instance"
        return Recovery(
            self._store,
            holder,
            scope=scope,
            new_id=self._ids.job,
            unknown=policy or "threshold",
            known=lambda name: not is_single or name == holder.instance_id,
            queues=queues,
        )

    async def _stop(self) -> WorkerExit:
        """Stop in order within the grace, then by force; a second signal skips the grace."""
        self._health.stops()
        self._stop_requested.set()
        self._announce_stop.set()
        self._pool.stop(self._grace)
        await first(self._pool.wait_gone(self._grace + EXIT_TIMEOUT_S), self._force_requested)
        await self._pool.wait_gone(0.0)
        failed = self._options.burst and any(self._settled[str(state)] for state in FAILED_STATES)
        return WorkerExit.FAILED if failed or self._force_requested.is_set() else WorkerExit.OK

    async def _drained(self) -> None:
        """Wait until two rounds of drain requests find no work, and no job ended in between."""
        before = -1
        while True:
            working = self._pool.running_jobs
            await asyncio.gather(*(child.request_drain() for child in working))
            done = self._settled.total() + sum(sum(child.settled.values()) for child in working)
            if done == before and working and working == self._pool.running_jobs:
                return
            before = done
            if not working:
                await asyncio.sleep(0.05)  # the next child is starting

    async def _recycle_once(self) -> None:
        for child in self._pool.working:
            memory, ended = child.lease_table.memory_in_use, child.lease_table.ended
            if self._options.max_memory and ended and memory > self._options.max_memory:
                self._pool.replace(child, f"it uses {memory:,} bytes")
            elif self._options.max_jobs and ended >= self._options.max_jobs:
                self._pool.replace(child, f"it has run {ended:,} jobs")

    async def _spawn(self) -> ChildProcess:
        return await ChildProcess.spawn(
            self._program,
            asdict(self._options),
            mark=self._boot.fileno(),
            started_at=self._clock.monotonic(),
        )

    async def _on_child_exit(self, child: ChildProcess) -> None:
        """Close the runs of a dead child, however long the store takes.

        Only this supervisor knows which runs are charged.
        """
        self._settled.update(child.settled)
        entries = list(child.lease_table.entries())
        if not entries:
            return
        report = attribute_crash(child, entries, now=self._clock.monotonic())
        leases = [entry.lease for entry in entries]
        for attempt in count(1):
            try:
                states = await close_runs(self._store, leases, report, new_id=self._ids.job)
            except OperatorError as error:
                log.warning("cannot close runs, will try again pid=%d: %s", child.pid, error)
                if isinstance(error, StoreClosed) or (
                    self._stop_requested.is_set() and attempt > MAX_CLOSE_ATTEMPTS
                ):
                    return  # their leases expire and another worker reclaims them
                await asyncio.sleep(0.2)
            else:
                self._settled.update({str(state): number for state, number in states.items()})
                log.warning(
                    "runs of a dead child closed pid=%d runs=%d states=%s",
                    child.pid,
                    len(leases),
                    dict(states),
                )
                return
