"""What the probes say of a worker: whether it is live and ready, and how many jobs wait."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from outlast.clock import Clock
from outlast.core.duration import MICROSECOND
from outlast.core.event import ZERO
from outlast.errors import OutlastError
from outlast.store.contract import Store
from outlast.worker.supervisor.child_process import ChildProcess
from outlast.worker.supervisor.watchdog import ChildWatchdog

MIN_COUNT_PAUSE: Final = timedelta(seconds=2)
"""Time for which a count of waiting jobs is answered again without reading the store."""

COUNT_PAUSE_FACTOR: Final = 10
"""A count is also answered again for this many times the duration of its reads."""


class Unready(StrEnum):
    """Why a worker is not ready."""

    STARTING = "the worker is starting"
    DRAINING = "the worker is draining"
    STORE_AWAY = "the store does not answer"
    NO_CHILD = "no child process claims jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a worker's health is judged by, once it has its identity."""

    store: Store
    lease: timedelta
    watchdog: ChildWatchdog
    working: Callable[[], Collection[ChildProcess]]
    queues: Collection[str]


class WorkerHealth:
    """The supervisor reports here; the probes and the service manager are answered from it."""

    def __init__(self, clock: Clock, notify: Callable[[str], None] = lambda _: None) -> None:
        """Create the health of a worker that starts; `notify` informs the service manager."""
        self._clock = clock
        self._notify = notify
        self._watched: Watched | None = None
        self._has_claimed = False
        self._is_stopping = False
        self._answered_at: int | None = None
        self._counting: asyncio.Task[Counter[str] | None] | None = None
        self._count_again_at = 0

    def watch(self, watched: Watched) -> None:
        """Judge the worker by these parts from now on; its store has just answered."""
        self._watched = watched
        self._answered_at = self._clock.monotonic()

    def claims(self) -> None:
        """A child claims jobs."""
        if not self._has_claimed and not self._is_stopping:
            self._has_claimed = True
            self._notify("READY=1")

    def stops(self) -> None:
        """The worker claims no more."""
        if not self._is_stopping:
            self._is_stopping = True
            self._notify("STOPPING=1")

    @contextmanager
    def asking_store(self) -> Iterator[None]:
        """Record whether the store answers what is asked in this block."""
        try:
            yield
        except OutlastError:
            self._answered_at = None
            raise
        self._answered_at = self._clock.monotonic()

    @property
    def is_live(self) -> bool:
        """Whether every child answers its watchdog."""
        return self._watched is None or not self._watched.watchdog.has_silent_child()

    @property
    def unready(self) -> Unready | None:
        """Why the worker is not ready; None if it is."""
        if self._is_stopping:
            return Unready.DRAINING
        if self._watched is None or not self._has_claimed:
            return Unready.STARTING
        if self._is_store_away(self._watched.lease):
            return Unready.STORE_AWAY
        is_claiming = any(child.is_claiming for child in self._watched.working())
        return None if is_claiming else Unready.NO_CHILD

    async def backlog(self) -> Mapping[str, int] | None:
        """Return the number of due and waiting jobs by queue; None if it cannot be told now.

        One count at a time reads the store, for at most about a tenth of the time.
        """
        if self._watched is None:
            return None
        is_fresh = self._clock.monotonic() < self._count_again_at
        if self._counting is None or (self._counting.done() and not is_fresh):
            self._counting = asyncio.create_task(self._count(self._watched))
        return await asyncio.shield(self._counting)

    def _is_store_away(self, lease: timedelta) -> bool:
        """Whether the last heartbeat failed, or no answer came for the time of a lease."""
        now, answered = self._clock.monotonic(), self._answered_at
        return answered is None or now - answered > lease // MICROSECOND

    async def _count(self, watched: Watched) -> Counter[str] | None:
        began = self._clock.monotonic()
        try:
            overview = await watched.store.overview(span=ZERO)
        except OutlastError:
            return None
        finally:
            ended = self._clock.monotonic()
            pause = max(MIN_COUNT_PAUSE // MICROSECOND, COUNT_PAUSE_FACTOR * (ended - began))
            self._count_again_at = ended + pause
        due = Counter(dict.fromkeys(watched.queues, 0))
        for row in overview.backlog:
            if row.queue in due:
                due[row.queue] += row.due
        return due
