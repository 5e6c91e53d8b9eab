"""Taking jobs: as many as there is room for, and under backlog some more to have at hand."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta

from holdfast.core.delivery import Delivery
from holdfast.core.run import Claim, Holder
from holdfast.errors import OperatorError, StoreClosed
from holdfast.store.around import Hint
from holdfast.store.base import Jobs

log = logging.getLogger("holdfast.worker")

AT_HAND = timedelta(seconds=1)
"""How much work to hold ready at most: a job must not wait here while another worker is idle."""

FAIR = 0.25
"""For how long, in seconds, jobs that must not wait here may be passed over for others."""


class Dispatcher:
    """Fills `ready` from the store; woken by hints, right without them."""

    def __init__(
        self,
        store: Jobs,
        holder: Holder,
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
        self._queues = deque(queues)
        self._types = types
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._lease = lease
        self._poll = poll.total_seconds()
        self._took = took
        self._room_to_hold = room
        self._is_busy = is_busy
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._per_job = 0.0
        self._may_stock = True
        self._fair = self._loop.time()
        self.in_hand = 0
        self.idle = asyncio.Event()

    def hint(self, hint: Hint) -> None:
        """A commit may have brought work. Any thread may call it."""
        if hint.queues and not self._wake.is_set():
            with suppress(RuntimeError):  # the loop is closed: nobody works here any more
                self._loop.call_soon_threadsafe(self._wake.set)

    def poke(self) -> None:
        """Look now."""
        self._wake.set()

    def done(self, seconds: float) -> None:
        """A job has left a slot after that long."""
        self.in_hand -= 1
        self._per_job += (seconds - self._per_job) * 0.05
        if self._wants_more and not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        """Take no more. A claim under way still comes in: it must not be forgotten."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            taken = await self._take_safely() if self._wants_more else 0
            if not taken:
                await self._pause()

    async def run_once(self) -> int:
        """Ask every queue in turn until there is no room left; how many jobs were taken."""
        taken = 0
        for queue in tuple(self._queues):
            limit, prefetch = self._room
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
        self.in_hand += len(claims)
        self._took(claims)
        return len(claims)

    @property
    def _wants_more(self) -> bool:
        # Now and then the stock runs out before it is filled: then any job can be the next.
        is_fair = self._loop.time() - self._fair < FAIR
        stock = self._stock // 2 if is_fair else 0
        return self.in_hand < self._concurrency + stock or not self.in_hand

    @property
    def _stock(self) -> int:
        """How many jobs beyond the running ones make up the work to have at hand."""
        if not self._per_job or not self._may_stock:
            return 0
        worth = AT_HAND.total_seconds() / self._per_job * self._concurrency
        return int(min(self._prefetch, worth))

    @property
    def _room(self) -> tuple[int, int]:
        """How many to take to run at once, and how many to have at hand."""
        most = self._room_to_hold()
        limit = min(most, max(0, self._concurrency - self.in_hand))
        held = max(0, self.in_hand - self._concurrency)
        return limit, min(most - limit, max(0, self._stock - held))

    async def _take_safely(self) -> int:
        self.idle.clear()
        try:
            taken = await self.run_once()
        except StoreClosed:
            raise
        except OperatorError as error:
            log.warning("cannot take jobs, will try again: %s", error)
            return 0
        except Exception:
            log.exception("taking jobs failed; it will be tried again")
            return 0
        if not taken and not self._is_busy():
            self.idle.set()
        return taken

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await self._wake.wait()


def _starts_at_once(claim: Claim) -> bool:
    """Whether a store gives it out only to who can start it: see `Jobs.claim`."""
    return claim.delivery is not Delivery.LEASE or claim.losses > 0
