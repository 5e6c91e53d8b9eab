"""The dispatcher: claims jobs for free execution slots, and prefetches some under backlog."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from typing import Protocol

from outlast.core.run import Claim, Claims, LeaseHolder
from outlast.core.transition import may_be_prefetched
from outlast.errors import OperatorError, StoreClosed, StoreMoved, StoreSealed
from outlast.store.contract.jobs import Jobs
from outlast.store.contract.notifications import Notification
from outlast.store.contract.workers import Workers
from outlast.telemetry.outage_log import OutageLog
from outlast.worker.fair_share import FairShare
from outlast.worker.prefetch import MAX_PREFETCH_WAIT_S, PrefetchBudget

log = logging.getLogger("outlast.worker")

MAX_PREFETCH_PER_CLAIM = 500
"""Jobs one claim prefetches at most; a larger claim delays the jobs that can start."""

MAX_STARTS_PER_CLAIM = 500
"""Jobs for free slots in one claim at most, so that its reply stays small."""

MAX_PREFETCH_ONLY_S = 0.25
"""Seconds for which claims may prefetch only, which passes over jobs that must start at once."""

EMPTY_POLLS_BEFORE_BACKOFF = 4
"""Empty polls in a row after which an idle worker polls more slowly."""

EMPTY_POLL_FACTOR = 3
"""Factor by which an idle worker lengthens its poll interval."""

MAX_EMPTY_POLL_S = 1.5
"""Longest poll interval, in seconds, that the factor produces; a longer `poll` stays as it is."""

PREFETCH_REVIEW_INTERVAL_S = 0.5
"""Seconds between two reviews of the prefetched jobs."""

DUE_MARGIN_S = 0.001
"""Seconds that a look at the next due time comes late, rather than a moment early."""

FIRST_DUE_BACKOFF_S = 0.02
"""Seconds between two looks at due times after one in vain; doubled for each, up to `poll`."""


class DispatchStore(Jobs, Workers, Protocol):
    """The part of a store that the dispatcher uses."""


class DispatchTarget(Protocol):
    """The execution pool as the dispatcher sees it."""

    @property
    def prefetched(self) -> Sequence[Claim]:
        """Claims that wait for an execution slot, the next one first."""
        ...

    def running(self) -> Iterable[tuple[str, float]]:
        """Return the type and the start, in time of the loop, of each running job."""
        ...

    def release(self, claims: Sequence[Claim]) -> int:
        """Release these claims to the store where their delivery allows it; return how many."""
        ...


class Dispatcher:
    """Fills the execution pool from the store.

    Notifications and the next due time wake it early. Polling alone is sufficient for correctness.
    """

    def __init__(
        self,
        store: DispatchStore,
        holder: LeaseHolder,
        pool: DispatchTarget,
        *,
        queues: Sequence[str],
        types: Collection[str],
        concurrency: int,
        prefetch: int,
        lease: timedelta,
        poll: timedelta,
        on_claimed: Callable[[Sequence[Claim]], None],
        lease_capacity: Callable[[], int],
        is_busy: Callable[[], bool],
    ) -> None:
        self._store = store
        self._holder = holder
        self._pool = pool
        self._queues = deque(queues)
        self._types = types
        self._concurrency = concurrency
        self._budget = PrefetchBudget(concurrency=concurrency, limit=prefetch)
        self._may_share = prefetch > 0
        self._lease = lease
        self._poll = poll.total_seconds()
        self._outage = OutageLog(log, "claim jobs")
        self._on_claimed = on_claimed
        self._lease_capacity = lease_capacity
        self._is_busy = is_busy
        self._stopping = False
        self._is_sealed = False
        self._loop = asyncio.get_running_loop()
        self._fair = FairShare(store, holder, concurrency=concurrency, time=self._loop.time)
        self._due_at = inf  # time of the loop at which the next job becomes due, if one is known
        self._is_due_look = False  # a due time, not a poll or a notification, causes this claim
        self._vain_due_looks = 0
        self._wake = asyncio.Event()
        self._may_prefetch = True
        self._empty_polls = 0
        self._refill_below = concurrency  # claim more when fewer jobs than this are claimed
        self._last_full_claim = self._last_change = self._last_review = self._loop.time()
        self.claimed_count = 0
        self.idle = asyncio.Event()

    def notify(self, notification: Notification) -> None:
        """Wake the dispatcher after a commit that may have added work. Thread-safe."""
        if notification.queues and not self._wake.is_set():
            with suppress(RuntimeError):  # the loop is closed, so the worker has stopped
                self._loop.call_soon_threadsafe(self._wake.set)

    def serve(self, queues: Sequence[str], types: Collection[str]) -> None:
        """Claim jobs of these queues and types from now on."""
        self._queues, self._types = deque(queues), types
        self._wake.set()

    def wake(self) -> None:
        """Claim now instead of at the next poll."""
        self._wake.set()

    def run_ended(self, kind: str, started: float, ended: float) -> None:
        """Record that a job of that type left its execution slot; times are of the loop."""
        self.claimed_count -= 1
        self._last_change = ended
        self._budget.ended(kind, ended - started)
        if self.claimed_count < self._refill_below and not self._wake.is_set():
            self._wake.set()

    def release_prefetched(self) -> None:
        """Release all prefetched claims to the store where their delivery allows it."""
        if self._pool.prefetched:
            self.claimed_count -= self._pool.release(list(self._pool.prefetched))

    def stop(self) -> None:
        """Start no further claim. A claim under way still delivers its jobs."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Claim jobs until `stop`."""
        try:
            while not self._stopping:
                self._wake.clear()
                self._due_at = inf
                self._return_excess()
                claimed = await self._claim_and_log_errors() if self._wants_more() else 0
                if not claimed:
                    await self._pause()
        finally:
            await self._fair.close()

    async def run_once(self) -> int:
        """Claim from each queue in turn while there is capacity; return the number of jobs."""
        claimed = 0
        for queue in tuple(self._queues):
            limit, prefetch = self._capacity(queue)
            if limit + prefetch:
                claimed += await self._claim(queue, limit, prefetch)
        self._queues.rotate(-1)
        return claimed

    async def _claim(self, queue: str, limit: int, prefetch: int) -> int:
        claims = await self._store.claim(
            self._holder,
            queue=queue,
            types=self._types,
            limit=limit,
            prefetch=prefetch,
            lease=self._lease,
            count=self._to_count(queue),
        )
        self._learn(queue, claims, is_full=len(claims) >= limit + prefetch)
        if limit:
            # A job that must start at once was next: until none is, claim only what can start.
            self._last_full_claim = self._loop.time()
            self._may_prefetch = not any(_must_start_at_once(claim) for claim in claims)
        if not claims:
            log.debug("nothing to claim queue=%s", queue)
            return 0
        self._budget.claimed(claims)
        self.claimed_count += len(claims)
        self._last_change = self._loop.time()
        self._on_claimed(claims)
        return len(claims)

    def _learn(self, queue: str, claims: Claims, *, is_full: bool) -> None:
        """Record what a claim said beside its jobs; a full one means that more may wait."""
        self._fair.claimed(queue, claims.waiting)
        if is_full and self._may_share:
            self._fair.refresh(self._queues, self._types)
        if claims.due_in is not None:
            self._due_at = min(self._due_at, self._loop.time() + claims.due_in.total_seconds())

    def _wants_more(self) -> bool:
        # From time to time the prefetched jobs run out before the refill. The next claim then has
        # free slots and accepts any job.
        is_fair = self._loop.time() - self._last_full_claim < MAX_PREFETCH_ONLY_S
        most = max((self._prefetch_capacity(queue) for queue in self._queues), default=0)
        target = most + len(self._pool.prefetched) if is_fair else 0
        self._refill_below = self._concurrency + target // 2
        return self.claimed_count < self._refill_below

    def _prefetch_capacity(self, queue: str) -> int:
        """Return how many more jobs to prefetch from the queue."""
        if self._is_stuck or not self._may_prefetch:
            return 0
        room = self._budget.room(self._pool.prefetched)
        return self._fair.room(queue, self._held, room)

    def _to_count(self, queue: str) -> int:
        """Return how many jobs a claim is to count, for the share of the next one."""
        room = min(MAX_PREFETCH_PER_CLAIM, self._budget.room(self._pool.prefetched))
        return self._fair.to_count(queue, self._held, max(room, self._concurrency))

    @property
    def _held(self) -> int:
        """How many claimed jobs wait for a slot; prefetched jobs with a free slot do not."""
        return max(0, self.claimed_count - self._concurrency)

    @property
    def _is_stuck(self) -> bool:
        """Whether all slots have been busy for so long that no job should wait for one."""
        is_full = self.claimed_count >= self._concurrency
        return is_full and self._loop.time() - self._last_change > MAX_PREFETCH_WAIT_S

    def _capacity(self, queue: str) -> tuple[int, int]:
        """Return how many jobs to claim for free slots, and how many to prefetch."""
        most = self._lease_capacity()
        free = max(0, self._concurrency - self.claimed_count)
        limit = min(most, MAX_STARTS_PER_CLAIM, free)
        return limit, min(most - limit, MAX_PREFETCH_PER_CLAIM, self._prefetch_capacity(queue))

    def _return_excess(self) -> None:
        """Release prefetched jobs that would wait too long; another worker may be idle."""
        now = self._loop.time()
        if now - self._last_review < PREFETCH_REVIEW_INTERVAL_S or not self._pool.prefetched:
            return
        self._last_review = now
        for kind, since in self._pool.running():
            self._budget.still_running(kind, now - since)
        # Jobs for which a slot is free are about to start.
        free = self._concurrency - self.claimed_count + len(self._pool.prefetched)
        waiting = list(self._pool.prefetched)[max(0, free) :]
        slow = waiting if self._is_stuck else self._budget.excess(waiting)
        released = self._pool.release(slow) if slow else 0
        self.claimed_count -= released
        if released:
            log.info("prefetched jobs released count=%d reason=excess", released)

    async def _claim_and_log_errors(self) -> int:
        self.idle.clear()
        try:
            claimed = await self.run_once()
        except StoreClosed:
            raise
        except StoreMoved as error:
            log.error("claiming stopped: %s", error)  # noqa: TRY400 - the message is complete
            self._stopping = True
            self.idle.set()
            return 0
        except StoreSealed as error:
            if not self._is_sealed:
                log.warning("claiming paused: %s", error)
            self._is_sealed = True
            return 0
        except OperatorError as error:
            self._outage.failed(error)
            return 0
        except Exception:
            log.exception("claim failed; the worker retries")
            return 0
        self._outage.recovered()
        if self._is_sealed:
            log.info("claiming resumed")
            self._is_sealed = False
        self._empty_polls = 0 if claimed else self._empty_polls + 1
        self._vain_due_looks = 0 if claimed else self._vain_due_looks + self._is_due_look
        self._is_due_look = False
        if not claimed and not self._is_busy():
            self.idle.set()
        return claimed

    async def _pause(self) -> None:
        is_idle = not self.claimed_count and self._empty_polls >= EMPTY_POLLS_BEFORE_BACKOFF
        longest = max(self._poll, min(self._poll * EMPTY_POLL_FACTOR, MAX_EMPTY_POLL_S))
        pause = longest if is_idle else self._poll
        if self.claimed_count:
            pause = min(pause, PREFETCH_REVIEW_INTERVAL_S)
        until_due = self._until_due()
        self._is_due_look = until_due < pause
        with suppress(TimeoutError):
            async with asyncio.timeout(min(pause, until_due)):
                await self._wake.wait()
                self._is_due_look = False

    def _until_due(self) -> float:
        """Return the seconds until the next job becomes due, more after looks in vain.

        Another worker claimed the job, or its queue is closed: then due times come too often.
        """
        vain = min(self._vain_due_looks, 10)
        backoff = FIRST_DUE_BACKOFF_S * 2**vain if vain else 0.0
        until_due = self._due_at - self._loop.time() + DUE_MARGIN_S
        return max(0.0, until_due, min(backoff, self._poll))


def _must_start_at_once(claim: Claim) -> bool:
    """Whether a store hands the job out only for a free slot: see `Jobs.claim`."""
    return not may_be_prefetched(claim)
