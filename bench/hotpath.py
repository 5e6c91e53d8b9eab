"""Cost of the worker per job, measured with a store that has all answers prepared.

Claims are made before the clock starts and nothing is written, so that what is left is the way of
a job through the worker. CPU time is what counts: waiting costs others nothing. The second figure
is the rate over a store that takes its time: it shows whether claiming, running and finishing go
on side by side.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter, process_time
from typing import Any

from bench.figures import Series
from bench.progress import tell
from bench.report import spread
from outlast import Outlast
from outlast.clock import SystemClock
from outlast.core.decide import Change
from outlast.core.delivery import Delivery
from outlast.core.ids import JobId, RunId
from outlast.core.run import Claim, Lease, LeaseHolder
from outlast.store.contract.jobs import Renewal
from outlast.worker.supervisor.shared_lease_table import SharedLeaseTable, SharedLeaseWriter

STATEMENT_S = 0.006
"""Seconds that a statement over a few hundred jobs takes on a server."""

MAX_CLAIM = 500
"""How many jobs one claim gives out at most."""

LIMIT = 120.0
HELD = Renewal(held=True)


def measure(*, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds of CPU per job, and jobs per second over a slow store, round by round."""
    found: dict[str, list[float]] = {}
    for number in range(1, rounds + 1):
        for name, drain in (("embedded", _embedded), ("supervised", _supervised)):
            tell(f"hotpath, round {number} of {rounds}, {name}")
            cost, _ = asyncio.run(drain(jobs, 0.0))
            _, rate = asyncio.run(drain(jobs, STATEMENT_S))
            found.setdefault(f"{name}, us of CPU per job", []).append(cost)
            found.setdefault(f"{name}, jobs/s over a slow store", []).append(rate)
    tell()
    return found


def lines(found: dict[str, list[float]]) -> list[str]:
    """The median of each, the least and the most."""
    return [f"{name}: {spread(Series(values), 1)}" for name, values in found.items()]


class Prepared:
    """A store that gives out claims made beforehand and takes every change."""

    capabilities = frozenset[Any]()

    def __init__(self, jobs: int, *, pause: float) -> None:
        self._claims = deque([_claim(number) for number in range(jobs)])
        self._jobs = self._left = jobs
        self._pause = pause
        self._since: tuple[float, float] | None = None
        self._done: asyncio.Future[tuple[float, float]] = asyncio.Future()

    async def claim(self, *_: object, limit: int, prefetch: int, **__: object) -> list[Claim]:
        if self._since is None:
            self._since = process_time(), perf_counter()
        await asyncio.sleep(self._pause)
        many = min(MAX_CLAIM, limit + prefetch, len(self._claims))
        return [self._claims.popleft() for _ in range(many)]

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        await asyncio.sleep(self._pause)
        self._left -= len(changes)
        if not self._left and self._since is not None:
            cpu, wall = process_time() - self._since[0], perf_counter() - self._since[1]
            self._done.set_result((cpu / self._jobs * 1e6, self._jobs / wall))
        return [True] * len(changes)

    async def renew(self, leases: Sequence[Lease], **_: object) -> list[Renewal]:
        return [HELD] * len(leases)

    async def figures(self) -> tuple[float, float]:
        """Microseconds of CPU per job, and jobs per second, when all have ended."""
        async with asyncio.timeout(LIMIT):
            return await self._done

    def subscribe(self, *_: object, **__: object) -> Callable[[], None]:
        return lambda: None

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, list[Any]]]:
        """Answer every other request of the worker with an empty list."""
        return _nothing


async def _nothing(*_: object, **__: object) -> list[Any]:
    return []


async def _embedded(jobs: int, pause: float) -> tuple[float, float]:
    store: Any = Prepared(jobs, pause=pause)
    async with _app(store).worker():
        return await store.figures()  # type: ignore[no-any-return]  # made above


async def _supervised(jobs: int, pause: float) -> tuple[float, float]:
    """Drain with the engine of a child process, which writes to the shared lease table."""
    store: Any = Prepared(jobs, pause=pause)
    app, board = _app(store), SharedLeaseTable.new()
    held = SharedLeaseWriter(board, SystemClock().monotonic)
    engine = app.engine(held, queues=None, types=None, concurrency=None, app_address="bench:app")
    engine.start(LeaseHolder(instance_id="bench", boot_id="bench"))
    try:
        return await store.figures()  # type: ignore[no-any-return]  # made above
    finally:
        await engine.stop(app.settings.grace)
        engine.close()
        board.close()


def _app(store: Any) -> Outlast:
    app = Outlast(store)

    @app.job
    async def noop(n: int) -> None:
        """Do nothing, so that only the worker is measured."""

    return app


def _claim(number: int) -> Claim:
    return Claim(
        JobId(f"00000000-0000-7000-8000-{number:012x}"),
        1,
        RunId(f"00000000-0000-7000-9000-{number:012x}"),
        type="noop",
        params=f'{{"n":{number}}}',
        delivery=Delivery.LEASE,
        failures=0,
        losses=0,
        max_attempts=5,
    )
