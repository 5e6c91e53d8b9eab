"""Taking jobs: as many as there is room for, and under backlog some more to have at hand."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from outlast.core.delivery import Delivery
from outlast.core.run import Claim, LeaseHolder
from outlast.errors import OperatorError, StoreClosed, StoreMoved, StoreSealed
from outlast.store.contract.jobs import Jobs
from outlast.store.contract.notifications import Notification
from outlast.telemetry.outage_log import OutageLog
from outlast.worker.prefetch import MAX_PREFETCH_WAIT_S, PrefetchBudget

log = logging.getLogger("outlast.worker")

MAX_PREFETCH_PER_CLAIM = 500
"""How many one claim asks for beyond those that start at once: more would keep all waiting."""

MAX_PREFETCH_ONLY_S = 0.25
"""For how long, in seconds, jobs that must not wait here may be passed over for others."""

EMPTY_POLLS_BEFORE_BACKOFF = 4
EMPTY_POLL_FACTOR = 3
"""After so many looks for nothing the next ones are that much rarer, until there is work again."""

MAX_EMPTY_POLL_S = 1.5
"""In seconds. Who looks more rarely than that anyway looks as often as they were told to."""

PREFETCH_REVIEW_INTERVAL_S = 0.5
"""How often, in seconds, what is at hand is looked at anew while nothing moves."""


class DispatchTarget(Protocol):
    """Where jobs run, as the dispatcher sees it."""

    @property
    def prefetched(self) -> Sequence[Claim]:
        """Those that wait for a place, the next one first."""
        ...

    def running(self) -> Iterable[tuple[str, float]]:
        """The type of each that runs, and since when, by the loop's clock."""
        ...

    def release(self, claims: Sequence[Claim]) -> int:
        """Hand these back to the store, where their delivery allows; how many went."""
        ...


class Dispatcher:
    """Fills `places` from the store; woken by hints, right without them."""

    def __init__(
        self,
        store: Jobs,
        holder: LeaseHolder,
        places: DispatchTarget,
        *,
        queues: Sequence[str],
        types: Collection[str],
        concurrency: int,
        prefetch: int,
        lease: timedelta,
        poll: timedelta,
        took: Callable[[Sequence[Claim]], None],
        room: Callable[[], int],
        is_busy: Callable[[], bool],
    ) -> None:
        self._store = store
        self._holder = holder
        self._places = places
        self._queues = deque(queues)
        self._types = types
        self._concurrency = concurrency
        self._stock = PrefetchBudget(concurrency=concurrency, most=prefetch)
        self._lease = lease
        self._poll = poll.total_seconds()
        self._complaint = OutageLog(log, "take jobs")
        self._took = took
        self._room_to_hold = room
        self._is_busy = is_busy
        self._stopping = False
        self._is_shut = False
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._may_stock = True
        self._empty_looks = 0
        self._low = concurrency  # when fewer than that are in hand it is time to ask for more
        self._fair = self._moved = self._looked = self._loop.time()
        self.claimed_count = 0
        self.idle = asyncio.Event()

    def notify(self, hint: Notification) -> None:
        """A commit may have brought work. Any thread may call it."""
        if hint.queues and not self._wake.is_set():
            with suppress(RuntimeError):  # the loop is closed: nobody works here any more
                self._loop.call_soon_threadsafe(self._wake.set)

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    def run_ended(self, kind: str, started: float, ended: float) -> None:
        """A job of that type has left its place; moments are of the loop's clock."""
        self.claimed_count -= 1
        self._moved = ended
        self._stock.ended(kind, ended - started)
        if self.claimed_count < self._low and not self._wake.is_set():
            self._wake.set()

    def release_prefetched(self) -> None:
        """What waits here for a place goes back to the store, where its delivery allows."""
        if self._places.prefetched:
            self.claimed_count -= self._places.release(list(self._places.prefetched))

    def stop(self) -> None:
        """Take no more. A claim under way still comes in: it must not be forgotten."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            self._return_excess()
            taken = await self._claim_and_log_errors() if self._wants_more() else 0
            if not taken:
                await self._pause()

    async def run_once(self) -> int:
        """Ask every queue in turn until there is no room left; how many jobs were taken."""
        taken = 0
        for queue in tuple(self._queues):
            limit, prefetch = self._room()
            if limit + prefetch:
                taken += await self._claim(queue, limit, prefetch)
        self._queues.rotate(-1)
        return taken

    async def _claim(self, queue: str, limit: int, prefetch: int) -> int:
        claims = await self._store.claim(
            self._holder,
            queue=queue,
            types=self._types,
            limit=limit,
            prefetch=prefetch,
            lease=self._lease,
        )
        if limit:
            # One that must not wait here was next: until none is, take only what can start.
            self._fair = self._loop.time()
            self._may_stock = not any(_starts_at_once(claim) for claim in claims)
        if not claims:
            log.debug("nothing to take queue=%s", queue)
            return 0
        self.claimed_count += len(claims)
        self._moved = self._loop.time()
        self._took(claims)
        return len(claims)

    def _wants_more(self) -> bool:
        # Now and then the stock runs out before it is filled: then any job can be the next.
        is_fair = self._loop.time() - self._fair < MAX_PREFETCH_ONLY_S
        target = self._more() + len(self._places.prefetched) if is_fair else 0
        self._low = self._concurrency + target // 2
        return self.claimed_count < self._low

    def _more(self) -> int:
        """How many jobs beyond those that are ready make up the work to have at hand."""
        if self._is_stuck or not self._may_stock:
            return 0
        return self._stock.room(self._places.prefetched)

    @property
    def _is_stuck(self) -> bool:
        """Whether every place has been taken for so long that nobody should wait for one."""
        is_full = self.claimed_count >= self._concurrency
        return is_full and self._loop.time() - self._moved > MAX_PREFETCH_WAIT_S

    def _room(self) -> tuple[int, int]:
        """How many to take to run at once, and how many to have at hand."""
        most = self._room_to_hold()
        limit = min(most, max(0, self._concurrency - self.claimed_count))
        return limit, min(most - limit, MAX_PREFETCH_PER_CLAIM, self._more())

    def _return_excess(self) -> None:
        """What turns out to be slow is given back: somebody else may be idle."""
        now = self._loop.time()
        if now - self._looked < PREFETCH_REVIEW_INTERVAL_S or not self._places.prefetched:
            return
        self._looked = now
        for kind, since in self._places.running():
            self._stock.still_running(kind, now - since)
        # Those for whom there is a place are about to start.
        free = self._concurrency - self.claimed_count + len(self._places.prefetched)
        waiting = list(self._places.prefetched)[max(0, free) :]
        slow = waiting if self._is_stuck else self._stock.excess(waiting)
        gone = self._places.release(slow) if slow else 0
        self.claimed_count -= gone
        if gone:
            log.info("gave back %d jobs that would have waited here for too long", gone)

    async def _claim_and_log_errors(self) -> int:
        self.idle.clear()
        try:
            taken = await self.run_once()
        except StoreClosed:
            raise
        except StoreMoved as error:
            log.error("no more jobs are taken here: %s", error)  # noqa: TRY400 - one clear line
            self._stopping = True
            self.idle.set()
            return 0
        except StoreSealed as error:
            if not self._is_shut:
                log.warning("no jobs are taken for now: %s", error)
            self._is_shut = True
            return 0
        except OperatorError as error:
            self._complaint.failed(error)
            return 0
        except Exception:
            log.exception("taking jobs failed; it will be tried again")
            return 0
        self._complaint.recovered()
        if self._is_shut:
            log.info("jobs are taken again")
            self._is_shut = False
        self._empty_looks = 0 if taken else self._empty_looks + 1
        if not taken and not self._is_busy():
            self.idle.set()
        return taken

    async def _pause(self) -> None:
        is_resting = not self.claimed_count and self._empty_looks >= EMPTY_POLLS_BEFORE_BACKOFF
        rest = max(self._poll, min(self._poll * EMPTY_POLL_FACTOR, MAX_EMPTY_POLL_S))
        pause = rest if is_resting else self._poll
        with suppress(TimeoutError):
            async with asyncio.timeout(
                min(pause, PREFETCH_REVIEW_INTERVAL_S) if self.claimed_count else pause
            ):
                await self._wake.wait()


def _starts_at_once(claim: Claim) -> bool:
    """Whether a store gives it out only to who can start it: see `Jobs.claim`."""
    return claim.delivery is not Delivery.LEASE or claim.losses > 0
