"""The pool of child processes: spawns, supervises, replaces and stops them."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from outlast.clock import Clock
from outlast.core.run import LeaseHolder
from outlast.core.state import Loss
from outlast.telemetry.events import TelemetryEvent
from outlast.worker.supervisor.child_process import ChildProcess, ChildRole

log = logging.getLogger("outlast.worker")

SECOND_US: Final = 1_000_000

DEATH_WINDOW_US: Final = 10 * SECOND_US
"""Microseconds for which the death of a child counts towards the backoff."""

DEATHS_BEFORE_BACKOFF: Final = 3
"""Recent deaths without a pause: a job that always crashes soon runs out of attempts."""

MAX_RESPAWN_PAUSE_S: Final = 5.0
"""Seconds between two spawns at most."""

MAX_PENDING_EVENTS: Final = 1000
"""Events kept while no child can forward them to the app."""

MESSAGE_DRAIN_TIMEOUT_S: Final = 0.5
"""Seconds for reading the last messages of a child that has ended."""


class AppUnusable(Exception):
    """No worker can run for the app; the message says why."""


class ChildPool:
    """Keeps `size` children working. `on_exit` closes the runs of a child that has ended."""

    def __init__(
        self,
        spawn: Callable[[], Awaitable[ChildProcess]],
        *,
        size: int,
        clock: Clock,
        on_exit: Callable[[ChildProcess], Awaitable[None]],
        on_schedules_written: Callable[[], None] = lambda: None,
        on_claiming: Callable[[], None] = lambda: None,
        on_unusable: Callable[[AppUnusable], None] = lambda _: None,
    ) -> None:
        self._on_unusable = on_unusable
        self._has_worked = False
        self._on_schedules_written = on_schedules_written
        self._on_claiming = on_claiming
        self._spawn = spawn
        self._size = size
        self._clock = clock
        self._on_exit = on_exit
        self._children: list[ChildProcess] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._deaths: deque[int] = deque()
        self._pending_events: deque[TelemetryEvent] = deque(maxlen=MAX_PENDING_EVENTS)
        self._holder: LeaseHolder | None = None
        self._spares = 0
        self._spawning = 0
        self._stopping = asyncio.Event()
        self._hello: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def start(self) -> dict[str, Any]:
        """Spawn the children; return the hello message of the first.

        Raises AppUnusable if that child cannot load the app.
        """
        self._fill()
        return await self._hello

    def start_work(self, holder: LeaseHolder) -> None:
        """Let the children claim jobs for that lease holder."""
        self._holder = holder
        self._assign()
        self._fill()  # a child may have died before the work started

    @property
    def members(self) -> list[ChildProcess]:
        """Children that are alive and may hold leases."""
        return [child for child in self._children if child.is_alive]

    @property
    def working(self) -> list[ChildProcess]:
        """Children that claim jobs."""
        return [child for child in self.members if child.role is ChildRole.WORKING]

    @property
    def running_jobs(self) -> list[ChildProcess]:
        """Children that may run jobs: a stopping child first ends its own."""
        roles = (ChildRole.WORKING, ChildRole.STOPPING)
        return [child for child in self.members if child.role in roles]

    def forward_event(self, event: TelemetryEvent) -> None:
        """Send an event of the supervisor to a child, where the sinks of the app are loaded."""
        self._pending_events.append(event)
        receivers = [
            child for child in self.members if child.wants_events and not child.channel.is_backed_up
        ]
        if not receivers:
            return
        for each in self._pending_events:
            receivers[0].channel.send("event", event=each.event, fields=dict(each.fields))
        self._pending_events.clear()

    def wake(self) -> None:
        """Let the children claim now: some stores send no notification to other processes."""
        for child in self.working:
            child.channel.send("wake")

    def replace(self, child: ChildProcess, why: str) -> None:
        """Spawn another child; once it works, this one ends its jobs and exits."""
        log.info("child recycled pid=%d why=%s", child.pid, why)
        child.role = ChildRole.STOPPING
        self._assign()
        self._fill()

    def stop(self, grace: float) -> None:
        """Ask all children to stop within `grace` seconds, and spawn no more."""
        self._stopping.set()
        for child in self.members:
            if child.role in (ChildRole.STARTING, ChildRole.SPARE):
                child.kill(Loss.SHUTDOWN)  # it runs no jobs
            else:
                child.channel.send("stop", grace=grace)

    async def wait_gone(self, within: float) -> None:
        """Wait until all children have ended and their runs are closed.

        Kills the children that are alive after `within` seconds.
        """
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within)
        for child in self.members:
            child.kill(Loss.SHUTDOWN)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _spawn_child(self, pause: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._stopping.wait()
        if self._stopping.is_set():
            return
        try:
            child = await self._spawn()
        except OSError as error:
            self._spawning -= 1
            self._on_spawn_error(error)
            return
        self._spawning -= 1
        self._children.append(child)
        if self._stopping.is_set():
            child.kill(Loss.SHUTDOWN)
        await self._supervise(child)

    async def _supervise(self, child: ChildProcess) -> None:
        """Handle the messages of a child until it ends, then close its runs."""
        receiver = asyncio.create_task(self._receive(child))
        await child.process.wait()
        # With a timeout: a process that the child forked may hold its end of the channel open.
        await asyncio.wait([receiver], timeout=MESSAGE_DRAIN_TIMEOUT_S)
        receiver.cancel()
        self._children.remove(child)
        last_role, child.role = child.role, ChildRole.GONE
        if not self._stopping.is_set() and last_role is not ChildRole.STOPPING:
            self._on_unexpected_exit(child)
        await self._on_exit(child)
        child.close()

    async def _receive(self, child: ChildProcess) -> None:
        async for message in child.channel.messages():
            self._handle_message(child, message)

    def _handle_message(self, child: ChildProcess, message: dict[str, Any]) -> None:
        match message:
            case {"is": "hello"}:
                child.hello, child.role = message, ChildRole.SPARE
                if not self._hello.done():
                    self._hello.set_result(message)
                self._assign()
            case {"is": "unusable", "why": why}:
                child.startup_error = why
            case {"is": "started"}:
                self._has_worked = True
                log.info("child started pid=%d", child.pid)
                child.is_claiming = True
                self._on_claiming()
            case {"is": "schedules_written"}:
                self._on_schedules_written()
            case {"is": "settled", "settled": settled}:
                child.settled = settled
            case {"is": "drained", "settled": settled}:
                child.record_settled(settled)
            case {"is": "stopped", "settled": settled}:
                child.record_settled(settled)
                # A thread of the app may keep the process from ending.
                asyncio.get_running_loop().call_later(
                    MESSAGE_DRAIN_TIMEOUT_S, child.kill, Loss.SHUTDOWN
                )
            case _:
                log.warning("unknown message from child pid=%d message=%s", child.pid, message)

    def _assign(self) -> None:
        """Put spares to work, and stop replaced children once enough others work."""
        if self._holder is None or self._stopping.is_set():
            return
        spares = [child for child in self.members if child.role is ChildRole.SPARE]
        for child in spares[: self._size - len(self.working)]:
            child.role = ChildRole.WORKING
            child.channel.send(
                "start", instance_id=self._holder.instance_id, boot_id=self._holder.boot_id
            )
        if len(self.working) == self._size:
            for child in self.members:
                if child.role is ChildRole.STOPPING:
                    child.channel.send("stop", grace=None)

    def _on_unexpected_exit(self, child: ChildProcess) -> None:
        """Replace a child that died by a spare, and spawn another spare."""
        why = child.startup_error or child.exit_description()
        if not self._hello.done():
            self._hello.set_exception(AppUnusable(why))
        if self._holder is None:
            return
        if child.startup_error is not None and not self._has_worked:
            self._on_unusable(AppUnusable(why))  # nothing has worked yet, so stop and say why
            return
        log.error("child died pid=%d %s", child.pid, why)
        self._deaths.append(self._clock.monotonic())
        self._spares = 1  # the next death is likely, and starting a child takes a while
        self._assign()
        self._fill()

    def _on_spawn_error(self, error: OSError) -> None:
        """Give up if no child was ever started; otherwise retry, since the cause may pass."""
        why = f"cannot start a child process: {error}"
        if not self._hello.done():
            self._hello.set_exception(AppUnusable(why))
            return
        log.error("%s; will try again", why)
        self._deaths.append(self._clock.monotonic())
        self._fill()

    def _fill(self) -> None:
        available = [child for child in self.members if child.role is not ChildRole.STOPPING]
        for _ in range(self._size + self._spares - len(available) - self._spawning):
            self._spawning += 1
            self._create_task(self._spawn_child(self._respawn_pause()))

    def _respawn_pause(self) -> float:
        """Return the seconds before the next spawn: none at first, then doubled per death."""
        while self._deaths and self._clock.monotonic() - self._deaths[0] > DEATH_WINDOW_US:
            self._deaths.popleft()
        excess = len(self._deaths) - DEATHS_BEFORE_BACKOFF
        return 0.0 if excess <= 0 else min(MAX_RESPAWN_PAUSE_S, 0.1 * 2.0 ** min(excess, 10))

    def _create_task(self, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
