"""The children of a supervisor: as many as wanted at work, replaced when they die or leave."""

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

SECOND: Final = 1_000_000
DEATH_WINDOW_US: Final = 10 * SECOND
DEATHS_BEFORE_BACKOFF: Final = 3
"""So many deaths lately cost no pause: a job that always kills its process ends soon."""

MAX_RESPAWN_PAUSE_S: Final = 5.0
MAX_PENDING_EVENTS: Final = 1000
"""So many events wait for a child that listens to them, if none is there just then."""

MESSAGE_DRAIN_TIMEOUT_S: Final = 0.5
"""How long after a child's end what it said before may take to be heard, in seconds."""


class AppUnusable(Exception):
    """The app cannot be worked for; the message says why."""


class ChildPool:
    """Spawns, minds and replaces children. `died` settles what a dead one left behind."""

    def __init__(
        self,
        spawn: Callable[[], Awaitable[ChildProcess]],
        *,
        size: int,
        clock: Clock,
        died: Callable[[ChildProcess], Awaitable[None]],
    ) -> None:
        self._spawn = spawn
        self._size = size
        self._clock = clock
        self._died = died
        self._kin: list[ChildProcess] = []
        self._minding: set[asyncio.Task[None]] = set()
        self._deaths: deque[int] = deque()
        self._untold: deque[TelemetryEvent] = deque(maxlen=MAX_PENDING_EVENTS)
        self._holder: LeaseHolder | None = None
        self._spares = 0
        self._coming = 0
        self._stopping = asyncio.Event()
        self._hello: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def start(self) -> dict[str, Any]:
        """Start the children; what the first of them says of itself. Unfit if it cannot work."""
        self._fill()
        return await self._hello

    def start_work(self, holder: LeaseHolder) -> None:
        """Let them work, in that name."""
        self._holder = holder
        self._place()
        self._fill()  # one may have died while nobody was at work yet

    @property
    def members(self) -> list[ChildProcess]:
        """Those that live, and may hold runs."""
        return [kin for kin in self._kin if kin.is_alive]

    @property
    def working(self) -> list[ChildProcess]:
        return [kin for kin in self.members if kin.role is ChildRole.WORKING]

    @property
    def running_jobs(self) -> list[ChildProcess]:
        """Those that may run jobs: also who is about to leave ends its own first."""
        return [kin for kin in self.members if kin.role in (ChildRole.WORKING, ChildRole.STOPPING)]

    def forward_event(self, told: TelemetryEvent) -> None:
        """Let a child tell its app what happened here, where none of the app's code is loaded."""
        self._untold.append(told)
        listening = [
            kin for kin in self.members if kin.wants_events and not kin.channel.is_backed_up
        ]
        if not listening:
            return
        for each in self._untold:
            listening[0].channel.send("told", event=each.event, facts=dict(each.fields))
        self._untold.clear()

    def replace(self, kin: ChildProcess, why: str) -> None:
        """Start another one; when that is ready this one ends its jobs, and then itself."""
        log.info("child recycled pid=%d why=%s", kin.pid, why)
        kin.role = ChildRole.STOPPING
        self._place()
        self._fill()

    def stop(self, grace: float) -> None:
        """Tell all to stop within `grace` seconds; none is replaced any more."""
        self._stopping.set()
        for kin in self.members:
            if kin.role in (ChildRole.STARTING, ChildRole.SPARE):
                kin.kill(Loss.SHUTDOWN)  # it has nothing to finish
            else:
                kin.channel.send("stop", grace=grace)

    async def wait_gone(self, within: float) -> None:
        """Wait until all have ended and what they left is settled; kill those that have not."""
        if self._minding:
            await asyncio.wait(self._minding, timeout=within)
        for kin in self.members:
            kin.kill(Loss.SHUTDOWN)
        if self._minding:
            await asyncio.wait(self._minding)

    async def _spawn_child(self, pause: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._stopping.wait()
        if self._stopping.is_set():
            return
        try:
            kin = await self._spawn()
        except OSError as error:
            self._coming -= 1
            self._on_spawn_error(error)
            return
        self._coming -= 1
        self._kin.append(kin)
        if self._stopping.is_set():
            kin.kill(Loss.SHUTDOWN)
        await self._supervise(kin)

    async def _supervise(self, kin: ChildProcess) -> None:
        """From its first word to what is left of it."""
        hearing = asyncio.create_task(self._listen(kin))
        await kin.process.wait()
        # Not for long: a process it forked may hold its end of the line open for ever.
        await asyncio.wait([hearing], timeout=MESSAGE_DRAIN_TIMEOUT_S)
        hearing.cancel()
        self._kin.remove(kin)
        was, kin.role = kin.role, ChildRole.GONE
        if not self._stopping.is_set() and was is not ChildRole.STOPPING:
            self._on_unexpected_exit(kin)
        await self._died(kin)
        kin.close()

    async def _listen(self, kin: ChildProcess) -> None:
        async for message in kin.channel.messages():
            self._hear(kin, message)

    def _hear(self, kin: ChildProcess, message: dict[str, Any]) -> None:
        match message:
            case {"is": "hello"}:
                kin.hello, kin.role = message, ChildRole.SPARE
                if not self._hello.done():
                    self._hello.set_result(message)
                self._place()
            case {"is": "unfit", "why": why}:
                kin.startup_error = why
            case {"is": "started"}:
                log.info("child started pid=%d", kin.pid)
            case {"is": "settled", "settled": settled}:
                kin.settled = settled
            case {"is": "drained", "settled": settled}:
                kin.record_settled(settled)
            case {"is": "stopped", "settled": settled}:
                kin.record_settled(settled)
                # It is done, but a thread of the app's may keep its process from ending.
                asyncio.get_running_loop().call_later(
                    MESSAGE_DRAIN_TIMEOUT_S, kin.kill, Loss.SHUTDOWN
                )
            case _:
                log.warning("child %d said %s, which is not understood", kin.pid, message)

    def _place(self) -> None:
        """Put those that are ready to work, and let those go that have been replaced."""
        if self._holder is None or self._stopping.is_set():
            return
        spares = [kin for kin in self.members if kin.role is ChildRole.SPARE]
        for kin in spares[: self._size - len(self.working)]:
            kin.role = ChildRole.WORKING
            kin.channel.send(
                "start", instance_id=self._holder.instance_id, boot_id=self._holder.boot_id
            )
        if len(self.working) == self._size:
            for kin in self.members:
                if kin.role is ChildRole.STOPPING:
                    kin.channel.send("stop", grace=None)

    def _on_unexpected_exit(self, kin: ChildProcess) -> None:
        """One has died that should not have: put a spare in its place, and bear another."""
        why = kin.startup_error or kin.exit_description()
        if not self._hello.done():
            self._hello.set_exception(AppUnusable(why))
        if self._holder is None:
            return
        log.error("child died pid=%d %s", kin.pid, why)
        self._deaths.append(self._clock.monotonic())
        self._spares = 1  # where one has died another may, and starting one takes a while
        self._place()
        self._fill()

    def _on_spawn_error(self, error: OSError) -> None:
        """One could not be started: at first that is the end, later it may pass."""
        why = f"cannot start a child process: {error}"
        if not self._hello.done():
            self._hello.set_exception(AppUnusable(why))
            return
        log.error("%s; will try again", why)
        self._deaths.append(self._clock.monotonic())
        self._fill()

    def _fill(self) -> None:
        ready = [kin for kin in self.members if kin.role is not ChildRole.STOPPING]
        for _ in range(self._size + self._spares - len(ready) - self._coming):
            self._coming += 1
            self._go(self._spawn_child(self._pause()))

    def _pause(self) -> float:
        """Nothing for the first few deaths, then longer and longer while they go on."""
        while self._deaths and self._clock.monotonic() - self._deaths[0] > DEATH_WINDOW_US:
            self._deaths.popleft()
        many = len(self._deaths) - DEATHS_BEFORE_BACKOFF
        return 0.0 if many <= 0 else min(MAX_RESPAWN_PAUSE_S, 0.1 * 2.0 ** min(many, 10))

    def _go(self, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(step)
        self._minding.add(task)
        task.add_done_callback(self._minding.discard)
