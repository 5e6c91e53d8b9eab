"""Some transactions of a key-value store fail: no job pays for it, and no event is false."""

import secrets
from collections import Counter

import pytest
from worker_helpers import SOON, until

from outlast import Backoff, Outlast, State
from outlast.core.event import EventKind
from outlast.errors import OperatorError
from outlast.store.keyvalue.engine import Engine
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.open import open_store
from outlast.testing.conformance import sizes
from outlast.testing.servers import dynamodb as local
from outlast.verify import verify
from outlast.worker import finisher
from support.engines.faulty import ALL, Chooser, FaultyEngine, at_random, fine
from support.engines.memory import MemoryEngine

JOBS = 200
CONCURRENCY = 50
MOST_WRITES = {0.1: 100, 0.3: 10}
"""Most writes of a transaction in memory, by the share of them that fails."""

ENGINES = ["memory", "etcd", "dynamodb"] if sizes.SIZES.every_case_on_servers else ["memory"]
"""On servers at full size: a request takes milliseconds."""


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "pause_after", lambda _: 0.0)


async def _every_job_runs_once(inner: Engine, share: float) -> None:
    """No lease ends: a run that was opened and forgotten would never end."""
    engine, calls = FaultyEngine(inner), Counter[int]()
    app = Outlast(KeyValueStore(engine), lease="10h", renew="50ms", poll="5ms", tick="50ms")

    @app.job(retry=Backoff(max_attempts=1, base="1s"))
    async def work(n: int) -> int:
        calls[n] += 1
        return n

    async with app:
        handles = await app.enqueue_many(work.bind(n) for n in range(JOBS))
        async with app.worker(concurrency=CONCURRENCY) as worker:
            engine.choose = _each_fault_then(at_random(18, share))
            await until(lambda: _all_ended(app), within=300)
            await worker.drained()
            engine.choose = fine
            refused = worker.refused
        jobs = [await handle.wait(SOON) for handle in handles]
        events = [event for handle in handles for event in await app.events(handle.id)]
        violations = (await verify(app.store)).violations

    assert Counter(job.state for job in jobs) == {State.SUCCEEDED: JOBS}
    assert calls == dict.fromkeys(range(JOBS), 1)
    assert [event for event in events if event.kind is EventKind.LATE_WRITE_REFUSED] == []
    assert (refused, violations) == (0, ())
    assert set(engine.failed) == set(ALL)


def _each_fault_then(choose: Chooser) -> Chooser:
    """However few transactions the worker makes, each fault happens."""
    first = iter(ALL)
    return lambda writes: next(first, None) or choose(writes)


async def _all_ended(app: Outlast) -> bool:
    try:
        counts = await app.store.counts()
    except OperatorError:
        return False
    return counts == {("default", State.SUCCEEDED): JOBS}


def _engine(name: str, share: float, request: pytest.FixtureRequest) -> Engine:
    if name == "memory":
        return MemoryEngine(most_writes=MOST_WRITES[share])
    own = f"partial-{secrets.token_hex(4)}"
    server = request.getfixturevalue(name)
    url = server.url(own) if name == "etcd" else f"{local.url(server, 'tests')}&prefix={own}:"
    return open_store(url).engine


@pytest.mark.parametrize("share", MOST_WRITES)
@pytest.mark.parametrize("name", ENGINES)
async def test_every_job_succeeds_though_transactions_fail_in_every_way(
    name: str, share: float, request: pytest.FixtureRequest
) -> None:
    await _every_job_runs_once(_engine(name, share, request), share)
