"""The main loop of a child process: runs jobs while its supervisor renews their leases."""

import asyncio
import logging
import os
import resource
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

from outlast.config import Settings
from outlast.core.event import ZERO
from outlast.core.ids import JobId
from outlast.core.run import Lease, LeaseHolder
from outlast.core.state import State
from outlast.errors import ConfigurationError, OperatorError
from outlast.jobs.lifespan import NO_LIFESPAN, Lifespan
from outlast.store.contract import Store
from outlast.store.contract.jobs import Renewal
from outlast.store.contract.notifications import Topic
from outlast.telemetry.events import TelemetryEvent, forward
from outlast.telemetry.outage_log import OutageLog
from outlast.worker.engine import WorkerEngine
from outlast.worker.supervisor.control_channel import ControlChannel
from outlast.worker.supervisor.identity import join_identity
from outlast.worker.supervisor.shared_lease_table import SharedLeaseWriter

log = logging.getLogger("outlast.worker")

HEARTBEATS_PER_SILENCE: Final = 4
"""Heartbeats a child sends within `max_silence`."""

MAX_HEARTBEAT_INTERVAL_S: Final = 1.0
"""Seconds between two heartbeats at most."""

FAILED_STATES: Final = frozenset({State.FAILED, State.DEAD_LETTER})
UNLIMITED_GRACE: Final = timedelta(days=36_500)

MAX_ORPHAN_TIMEOUT: Final = timedelta(seconds=2)
"""Time for which a child outlives its supervisor at most."""


class WorkerChild:
    """Works from the supervisor's start message until its stop message or its death."""

    def __init__(
        self,
        store: Store,
        engine: WorkerEngine,
        settings: Settings,
        *,
        leases: SharedLeaseWriter,
        channel: ControlChannel,
        is_orphan: Callable[[], bool],
        crash: Callable[[], None],
        write_schedules: Callable[[], Coroutine[Any, Any, None]] | None = None,
        write_queues: Callable[[], Awaitable[None]] | None = None,
        lifespan: Lifespan = NO_LIFESPAN,
    ) -> None:
        """Create a child.

        `is_orphan` returns whether the supervisor is gone. `crash` ends the process at once and
        leaves its runs to the supervisor. `write_schedules` is started as a task when the store is
        open; `write_queues` ends before the first claim.
        """
        self._is_orphan = is_orphan
        self._crash = crash
        self._write_schedules = write_schedules
        self._write_queues = write_queues
        self._lifespan = lifespan
        self._store = store
        self._engine = engine
        self._settings = settings
        self._leases = leases
        self._channel = channel
        self._unsubscribe: Callable[[], None] | None = None
        self._grace: asyncio.Future[timedelta] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_started = asyncio.Event()
        engine.on_settled = self._on_settled
        engine.on_broken = crash

    async def run(self) -> None:
        """Handle the supervisor's messages until this child has stopped."""
        self._create_task(self._receive())
        self._create_task(self._send_heartbeats())
        grace = await self._grace
        if self._unsubscribe is not None:
            await self._engine.stop(grace)
            self._unsubscribe()
            self._engine.close()
        await self._lifespan.stop()
        self._channel.send("stopped", settled=self._settled_counts())
        for task in tuple(self._tasks):
            task.cancel()
        await self._store.close()
        self._channel.close()

    def on_supervisor_lost(self) -> None:
        """Stop at once: the next start of the supervisor runs these jobs again."""
        self._stop(ZERO)

    async def _receive(self) -> None:
        async for message in self._channel.messages():
            self._handle_message(message)
        if not self._is_orphan():
            raise ConnectionError("a handler closed the control channel of its process")
        self.on_supervisor_lost()

    def _handle_message(self, message: dict[str, Any]) -> None:
        match message:
            case {"is": "start", "instance_id": instance, "boot_id": boot}:
                self._create_task(self._start(LeaseHolder(instance_id=instance, boot_id=boot)))
            case {"is": "renewal", "job": job, "token": token, "held": held, "cancel": cancel}:
                self._engine.on_renewal(Lease(JobId(job), token), Renewal(held, cancel))
            case {"is": "event", "event": event, "fields": fields}:
                forward(TelemetryEvent(event, fields))
            case {"is": "wake"} if self._has_started.is_set():
                self._engine.wake()
            case {"is": "wake"}:
                pass  # its first claim is about to come
            case {"is": "drain"}:
                self._create_task(self._drain())
            case {"is": "stop", "grace": grace}:
                self._stop(UNLIMITED_GRACE if grace is None else timedelta(seconds=grace))
            case _:
                log.warning("unknown message from the supervisor kind=%s", message.get("is"))

    async def _start(self, holder: LeaseHolder) -> None:
        await self._open(holder)
        try:
            self._engine.context = await self._lifespan.start()
        except ConfigurationError as error:
            if not self._grace.done():
                self._channel.send("unusable", why=str(error))
                self._stop(ZERO)
        if self._write_queues is not None and not self._grace.done():
            await self._write_queues()
        if self._grace.done():
            return
        self._create_task(self._declare_schedules())
        self._engine.start(holder)
        self._unsubscribe = self._store.subscribe(self._engine.notify, topics=[Topic.WORK])
        self._has_started.set()
        self._channel.send("started")

    async def _declare_schedules(self) -> None:
        """Write the declared schedules and tell the supervisor, which triggers them."""
        if self._write_schedules is not None:
            await self._write_schedules()
            self._channel.send("schedules_written")

    async def _open(self, holder: LeaseHolder) -> None:
        outage = OutageLog(log, "open the store")
        while True:
            try:
                await self._store.open()
                # The lock is held until the store is closed or this process dies.
                await join_identity(self._store, holder)
            except OperatorError as error:
                outage.failed(error)
                await asyncio.sleep(1)
            else:
                outage.recovered()
                return

    async def _drain(self) -> None:
        await self._has_started.wait()  # the request may arrive while the store is being opened
        await self._engine.drained()
        self._channel.send("drained", settled=self._settled_counts())

    def _on_settled(self, state: State) -> None:
        """Report a failure at once: this process may die before its next report."""
        if state in FAILED_STATES:
            self._channel.send("settled", settled=self._settled_counts())

    def _stop(self, grace: timedelta) -> None:
        if not self._grace.done():
            self._grace.set_result(grace)
        elif self._unsubscribe is not None:  # it is stopping already, with a longer grace
            self._engine.shorten_grace(grace)

    def _create_task(self, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """End this process if one of its tasks failed; the supervisor replaces it.

        A handler may be the cause, for example because it uses up the memory. An orderly stop
        would release its run uncounted, and the job would run for ever.
        """
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        try:
            log.error("a task of this child failed; it exits and is replaced", exc_info=error)
        finally:
            self._crash()

    def _settled_counts(self) -> dict[str, int]:
        return {str(state): count for state, count in self._engine.settled.items()}

    async def _send_heartbeats(self) -> None:
        silence = self._settings.max_silence.total_seconds()
        interval = min(MAX_HEARTBEAT_INTERVAL_S, silence / HEARTBEATS_PER_SILENCE)
        while True:
            self._leases.heartbeat(memory_in_use())
            await asyncio.sleep(interval)


def orphan_timeout(settings: Settings) -> timedelta:
    """Return how long a child may outlive its supervisor: less than its leases last."""
    return min(MAX_ORPHAN_TIMEOUT, (settings.lease - settings.renew) / 2)


def watch_lifeline(fd: int, child: WorkerChild, timeout: timedelta) -> None:
    """Stop the child when its supervisor dies, and end the process after `timeout` at the latest.

    The supervisor holds the other end of the pipe `fd`, so reading ends when it dies. A thread
    reads it, because a handler may block the event loop. Needed where `die_with_supervisor` has no
    effect.
    """
    loop = asyncio.get_running_loop()

    def wait() -> None:
        os.read(fd, 1)
        log.error("the supervisor is gone; stopping")
        loop.call_soon_threadsafe(child.on_supervisor_lost)
        threading.Event().wait(timeout.total_seconds())
        os._exit(1)

    threading.Thread(target=wait, name="outlast-lifeline", daemon=True).start()


def memory_in_use() -> int:
    """Return the resident memory of this process in bytes; its peak where /proc is missing."""
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - once a second, keep it cheap
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
