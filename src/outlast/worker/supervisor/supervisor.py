"""The supervisor: runs no user code, so that nothing a handler does can stop it."""

import asyncio
import logging
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from itertools import count
from typing import Any, Final, TypeVar

from outlast.clock import Clock
from outlast.config import Settings
from outlast.core.ids import Ids
from outlast.core.run import LeaseHolder
from outlast.errors import (
    OperatorError,
    OutlastError,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreMoved,
    StoreSealed,
    StoreUnavailable,
)
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.contract.transfer import TransferStage, closed_error
from outlast.store.transfer_completion import complete_transfer
from outlast.telemetry.events import subscribe
from outlast.worker.maintenance.loop import Maintenance, run_maintenance
from outlast.worker.maintenance.recovery import Recovery, RecoveryScope
from outlast.worker.periodic import run_periodically
from outlast.worker.supervisor.child_main import FAILED_STATES, orphan_timeout
from outlast.worker.supervisor.child_pool import AppUnusable, ChildPool
from outlast.worker.supervisor.child_process import ChildProcess
from outlast.worker.supervisor.crash_attribution import attribute_crash, close_runs
from outlast.worker.supervisor.identity import (
    IdentityInUse,
    WorkerIdentity,
    identify,
    remove_boot_lock,
    worker_info,
)
from outlast.worker.supervisor.options import WorkerExit, WorkerOptions
from outlast.worker.supervisor.watchdog import ChildWatchdog

log = logging.getLogger("outlast.worker")

T = TypeVar("T")

EXIT_TIMEOUT_S: Final = 0.5
"""How long after the grace a child may take to leave, in seconds."""

FINAL_WRITE_TIMEOUT_S: Final = 5.0
"""How long the store may then take for the last of it, in seconds."""

CHECK_INTERVAL: Final = timedelta(milliseconds=500)
MAX_CLOSE_ATTEMPTS: Final = 5
TRANSIENT_ERRORS: Final = (StoreBusy, StoreFull, StoreSealed, StoreUnavailable)


class Supervisor:
    """`run` is the whole life of a worker: children, identity, recovery, work, and the end."""

    def __init__(
        self,
        plan: WorkerOptions,
        *,
        program: list[str],
        open_store: Callable[[str], Store],
        clock: Clock,
        ids: Ids,
        random: Callable[[], float],
        leave: Callable[[], None],
        beside: Callable[[Store, Settings], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`leave` ends the process, for when it was asked to stop and the store does not let it.

        `beside` is kept going beside the children, once recovery is over; it runs no user code.
        """
        self._beside = beside
        self._plan = plan
        self._program = program
        self._open_store = open_store
        self._clock = clock
        self._ids = ids
        self._random = random
        self._leave = leave
        self._grace = 0.0
        self._moved: StoreMoved | None = None
        self._asked = asyncio.Event()
        self._hurry = asyncio.Event()
        self._settled: Counter[str] = Counter()
        self._family = ChildPool(self._spawn, size=plan.processes, clock=clock, died=self._died)

    async def run(self) -> WorkerExit:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(each) is not signal.SIG_IGN:  # as `nohup` wants it
                loop.add_signal_handler(each, self._signalled)
        deaf = subscribe(self._family.forward_event)
        try:
            return await self._live()
        except (AppUnusable, OutlastError) as error:
            log.error("%s", error)  # noqa: TRY400 - one clear line, for whoever can put it right
            if isinstance(error, StoreMoved):
                return WorkerExit.MOVED
            return (
                WorkerExit.IDENTITY_IN_USE
                if isinstance(error, IdentityInUse)
                else WorkerExit.UNUSABLE
            )
        finally:
            deaf()
            self._family.stop(0.0)
            await self._family.wait_gone(EXIT_TIMEOUT_S)

    def _signalled(self) -> None:
        """The first asks for an end in order, the second for one now."""
        is_second = self._asked.is_set()
        (self._hurry if is_second else self._asked).set()
        grace = 0.0 if is_second else self._grace
        late = threading.Timer(grace + EXIT_TIMEOUT_S + FINAL_WRITE_TIMEOUT_S, self._leave)
        late.daemon = True  # a thread, since the loop itself may wait for one of the store's
        late.start()

    async def _live(self) -> WorkerExit:
        hello = await first(self._family.start(), self._asked)
        if hello is None:
            return WorkerExit.OK
        self._settings = Settings.load(hello["settings"])
        self._grace = self._settings.grace.total_seconds()
        if unused := hello.get("unused"):
            log.warning("no type of this app goes to %s unless told to", ", ".join(unused))
        self._store = self._open_store(hello["url"])
        try:
            await first(retry_transient(self._store.open, (StoreBusy, StoreFull)), self._asked)
            if not self._asked.is_set():
                await first(retry_transient(self._take_over), self._asked)
            return WorkerExit.OK if self._asked.is_set() else await self._serve(hello)
        finally:
            await self._store.close()

    async def _serve(self, hello: dict[str, Any]) -> WorkerExit:
        identity = await identify(self._store, self._plan)
        holder = identity.holder
        info = worker_info(self._plan, holder, hello)
        recovery = self._recovery(holder, hello["queues"])
        try:
            await first(retry_transient(self._require_here), self._asked)
            await first(retry_transient(lambda: self._store.register_worker(info)), self._asked)
            await first(retry_transient(lambda: self._wait_for_old_children(holder)), self._asked)
            await first(retry_transient(recovery.run_once), self._asked)
            return WorkerExit.OK if self._asked.is_set() else await self._work(identity)
        finally:
            with suppress(OperatorError):
                await self._store.deregister_worker(holder)
            await identity.release()
            with suppress(OperatorError):
                await remove_boot_lock(self._store, holder)

    async def _take_over(self) -> None:
        await complete_transfer(self._store, self._open_store)

    async def _require_here(self) -> None:
        footing = await self._store.transfer_status()
        if footing.stage is TransferStage.MOVED:
            raise closed_error(footing)

    async def _look_whether_moved(self) -> None:
        """A store that was moved has no work for anybody, ever again: stop in order."""
        try:
            await self._require_here()
        except StoreMoved as error:
            self._moved = error
            self._asked.set()

    async def _wait_for_old_children(self, holder: LeaseHolder) -> None:
        """An earlier boot left runs: its supervisor is dead, its children may still be ending."""
        name, boot = holder.instance_id, holder.boot_id
        if await self._store.running_under_other_boots(instance_id=name, besides=boot, limit=1):
            await asyncio.sleep(orphan_timeout(self._settings).total_seconds())

    async def _work(self, identity: WorkerIdentity) -> WorkerExit:
        holder = identity.holder
        care = ChildWatchdog(
            self._store, self._settings, clock=self._clock, members=lambda: self._family.members
        )
        loops = [asyncio.create_task(loop) for loop in self._loops(identity, care)]
        self._family.start_work(holder)
        log.info("worker started instance=%s boot=%s", holder.instance_id, holder.boot_id)
        try:
            work = self._drained() if self._plan.burst else asyncio.Event().wait()
            await first(work, self._asked)
            ended = await self._stop()
            if self._moved is not None:
                log.error("%s", self._moved)
                return WorkerExit.MOVED
            return WorkerExit.IDENTITY_IN_USE if identity.is_lost else ended
        finally:
            for task in loops:
                task.cancel()
            await asyncio.wait(loops)
            log.info("worker stopped instance=%s", holder.instance_id)

    def _loops(
        self, identity: WorkerIdentity, care: ChildWatchdog
    ) -> Iterable[Coroutine[Any, Any, None]]:
        settings, random = self._settings, self._random
        poke = asyncio.Event()
        running = asyncio.get_running_loop()

        def hint(hint: Notification) -> None:
            if hint.cancelled:
                running.call_soon_threadsafe(poke.set)

        async def beat() -> None:
            await self._store.heartbeat(identity.holder, span=settings.lease)
            await self._look_whether_moved()
            if identity.is_lost and not self._asked.is_set():
                log.error(
                    "another worker has the name %s; this one takes no more jobs and stops",
                    identity.holder.instance_id,
                )
                self._asked.set()

        self._store.subscribe(hint, topics=[Topic.CANCELLED])
        renew, alive = "renew leases", "show signs of life"
        yield run_periodically(
            settings.renew, care.renew_once, what=renew, random=random, poke=poke, patience=1
        )
        yield run_periodically(settings.renew, beat, what=alive, random=random, patience=1)
        yield run_periodically(
            min(CHECK_INTERVAL, settings.max_silence / 4), care.check_once, random=random
        )
        yield run_periodically(CHECK_INTERVAL, self._recycle_once, random=random)
        yield run_maintenance(Maintenance(self._store, self._ids.job), settings, random=random)
        if self._beside is not None:
            yield self._beside(self._store, settings)

    def _recovery(self, holder: LeaseHolder, queues: list[str]) -> Recovery:
        """For before anything new is taken; the identity is held, so earlier boots are dead."""
        scope: RecoveryScope = "all" if self._plan.topology == "single" else "instance"
        return Recovery(self._store, holder, scope=scope, new_id=self._ids.job, queues=queues)

    async def _stop(self) -> WorkerExit:
        """Within the grace in order, then by force; a second signal goes straight to force."""
        self._asked.set()
        self._family.stop(self._grace)
        await first(self._family.wait_gone(self._grace + EXIT_TIMEOUT_S), self._hurry)
        await self._family.wait_gone(0.0)
        failed = self._plan.burst and any(self._settled[str(state)] for state in FAILED_STATES)
        return WorkerExit.FAILED if failed or self._hurry.is_set() else WorkerExit.OK

    async def _drained(self) -> None:
        """Until two rounds of asking find no child with work, and nothing done in between."""
        before = -1
        while True:
            working = self._family.running_jobs
            await asyncio.gather(*(kin.request_drain() for kin in working))
            done = self._settled.total() + sum(sum(kin.settled.values()) for kin in working)
            if done == before and working and working == self._family.running_jobs:
                return
            before = done
            if not working:
                await asyncio.sleep(0.05)  # the next child is on its way

    async def _recycle_once(self) -> None:
        for kin in self._family.working:
            memory, ended = kin.lease_table.memory_in_use, kin.lease_table.ended
            if self._plan.max_memory and ended and memory > self._plan.max_memory:
                self._family.replace(kin, f"it uses {memory:,} bytes")
            elif self._plan.max_jobs and ended >= self._plan.max_jobs:
                self._family.replace(kin, f"it has run {ended:,} jobs")

    async def _spawn(self) -> ChildProcess:
        return await ChildProcess.spawn(
            self._program, asdict(self._plan), born=self._clock.monotonic()
        )

    async def _died(self, kin: ChildProcess) -> None:
        """Settle what it left, however long the store takes: nobody else knows who is to blame."""
        self._settled.update(kin.settled)
        entries = list(kin.lease_table.entries())
        if not entries:
            return
        found = attribute_crash(kin, entries, now=self._clock.monotonic())
        leases = [entry.lease for entry in entries]
        for tries in count(1):
            try:
                went = await close_runs(self._store, leases, found, new_id=self._ids.job)
            except OperatorError as error:
                log.warning("cannot settle the runs of child %d yet: %s", kin.pid, error)
                if isinstance(error, StoreClosed) or (
                    self._asked.is_set() and tries > MAX_CLOSE_ATTEMPTS
                ):
                    return  # their leases lapse, and another worker takes them over
                await asyncio.sleep(0.2)
            else:
                self._settled.update({str(state): number for state, number in went.items()})
                log.warning("child %d left %d runs: %s", kin.pid, len(leases), dict(went))
                return


async def retry_transient(
    step: Callable[[], Awaitable[object]],
    passing: tuple[type[OperatorError], ...] = TRANSIENT_ERRORS,
) -> None:
    """Do it, again and again while the store is busy, full or away: these pass."""
    while True:
        try:
            await step()
        except passing as error:
            log.warning("cannot start yet, will try again: %s", error)
            await asyncio.sleep(0.5)
        else:
            return


async def first(step: Awaitable[T], event: asyncio.Event) -> T | None:
    """What `step` gives; None if the event comes first, and then the step is cancelled."""
    doing = asyncio.ensure_future(step)
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({doing, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if doing.done():
        return doing.result()
    doing.cancel()
    with suppress(asyncio.CancelledError):
        await doing
    return None
