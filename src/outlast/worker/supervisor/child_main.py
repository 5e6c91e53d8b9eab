"""A child: takes and runs jobs, while its supervisor renews their leases and watches over it."""

import asyncio
import logging
import os
import resource
import sys
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

from outlast.config import Settings
from outlast.core.event import ZERO
from outlast.core.ids import JobId
from outlast.core.run import Lease, LeaseHolder
from outlast.core.state import State
from outlast.errors import OperatorError
from outlast.store.contract import Store
from outlast.store.contract.jobs import Renewal
from outlast.store.contract.notifications import Topic
from outlast.telemetry.events import TelemetryEvent, forward
from outlast.worker.engine import WorkerEngine
from outlast.worker.supervisor.control_channel import ControlChannel
from outlast.worker.supervisor.identity import join_identity
from outlast.worker.supervisor.shared_lease_table import SharedLeaseWriter

log = logging.getLogger("outlast.worker")

HEARTBEATS_PER_SILENCE: Final = 4
MAX_HEARTBEAT_INTERVAL_S: Final = 1.0
FAILED_STATES: Final = frozenset({State.FAILED, State.DEAD_LETTER})
UNLIMITED_GRACE: Final = timedelta(days=36_500)
MAX_ORPHAN_TIMEOUT: Final = timedelta(seconds=2)


class WorkerChild:
    """Waits for the word to start, works until told to stop, or until its supervisor is gone."""

    def __init__(
        self,
        store: Store,
        engine: WorkerEngine,
        settings: Settings,
        *,
        held: SharedLeaseWriter,
        line: ControlChannel,
        ready: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`ready` is begun when the store is open."""
        self._ready = ready
        self._store = store
        self._engine = engine
        self._settings = settings
        self._held = held
        self._line = line
        self._deaf: Callable[[], None] | None = None
        self._grace: asyncio.Future[timedelta] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_work = asyncio.Event()
        engine.on_settled = self._settled

    async def run(self) -> None:
        """From the first word of the supervisor to the last run's end."""
        self._go(self._listen())
        self._go(self._beat())
        grace = await self._grace
        if self._deaf is not None:
            await self._engine.stop(grace)
            self._deaf()
            self._engine.close()
        self._line.send("stopped", settled=self._tally())
        for task in tuple(self._tasks):
            task.cancel()
        await self._store.close()
        self._line.close()

    def on_supervisor_lost(self) -> None:
        """The supervisor is dead: its next start will run these jobs, so they stop here first."""
        self._stop(ZERO)

    async def _listen(self) -> None:
        async for message in self._line.messages():
            self._handle_message(message)
        self.on_supervisor_lost()

    def _handle_message(self, message: dict[str, Any]) -> None:
        match message:
            case {"is": "start", "instance_id": instance, "boot_id": boot}:
                self._go(self._start(LeaseHolder(instance_id=instance, boot_id=boot)))
            case {"is": "found", "job": job, "token": token, "held": held, "cancel": cancel}:
                self._engine.on_renewal(Lease(JobId(job), token), Renewal(held, cancel))
            case {"is": "told", "event": event, "facts": facts}:
                forward(TelemetryEvent(event, facts))
            case {"is": "drain"}:
                self._go(self._drain())
            case {"is": "stop", "grace": grace}:
                self._stop(UNLIMITED_GRACE if grace is None else timedelta(seconds=grace))
            case _:
                log.warning("the supervisor said %s, which is not understood", message.get("is"))

    async def _start(self, holder: LeaseHolder) -> None:
        await self._open(holder)
        if self._ready is not None:
            self._go(self._ready())
        self._engine.start(holder)
        self._deaf = self._store.subscribe(self._engine.notify, topics=[Topic.WORK])
        self._at_work.set()
        self._line.send("started")

    async def _open(self, holder: LeaseHolder) -> None:
        while True:
            try:
                await self._store.open()
                await join_identity(
                    self._store, holder
                )  # until the store is closed, or this process dies
            except OperatorError as error:
                log.warning("cannot open the store, will try again: %s", error)
                await asyncio.sleep(1)
            else:
                return

    async def _drain(self) -> None:
        await self._at_work.wait()  # asked right after the word to start, which takes a while
        await self._engine.drained()
        self._line.send("drained", settled=self._tally())

    def _settled(self, state: State) -> None:
        """A bad end is told at once: this process may not live to tell it with the rest."""
        if state in FAILED_STATES:
            self._line.send("settled", settled=self._tally())

    def _stop(self, grace: timedelta) -> None:
        if not self._grace.done():
            self._grace.set_result(grace)
        elif self._deaf is not None:  # it was about to leave in its own time
            self._engine.shorten_grace(grace)

    def _go(self, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """A child that lacks a part must not stay: it would hold its place and do nothing."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a part of this child failed; it ends, to be replaced", exc_info=error)
            self._stop(self._settings.grace)

    def _tally(self) -> dict[str, int]:
        return {str(state): count for state, count in self._engine.settled.items()}

    async def _beat(self) -> None:
        silence = self._settings.max_silence.total_seconds()
        while True:
            self._held.heartbeat(memory_in_use())
            await asyncio.sleep(min(MAX_HEARTBEAT_INTERVAL_S, silence / HEARTBEATS_PER_SILENCE))


def orphan_timeout(settings: Settings) -> timedelta:
    """How long a child may outlive its supervisor; well before the first of its leases lapses."""
    return min(MAX_ORPHAN_TIMEOUT, (settings.lease - settings.renew) / 2)


def watch_lifeline(fd: int, child: WorkerChild, patience: timedelta) -> None:
    """End this process when its supervisor has died, in order if possible, soon in any case.

    The other end of `fd` is the supervisor's: reading ends when that process does. A thread waits
    for it, so that a handler which blocks the event loop cannot hide the news.
    """
    loop = asyncio.get_running_loop()

    def wait() -> None:
        os.read(fd, 1)
        log.error("the supervisor is gone; stopping")
        loop.call_soon_threadsafe(child.on_supervisor_lost)
        threading.Event().wait(patience.total_seconds())
        os._exit(1)

    threading.Thread(target=wait, name="outlast-lifeline", daemon=True).start()


def memory_in_use() -> int:
    """Bytes this process has in memory now; where the system does not say, the most it ever had."""
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - once a second, no detour
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
