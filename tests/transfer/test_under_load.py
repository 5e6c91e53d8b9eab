"""A move under load, between each two kinds of store: every acknowledged job is there once.

Producers are processes, one of which is stopped (SIGSTOP) throughout; a schedule fires; the first
process that copies is killed under the seal. Then one more copy succeeds at the first try.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import permutations
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.core.state import State
from outlast.errors import StoreMoved
from outlast.store.contract.jobs import Filter
from outlast.store.contract.transfer import TransferStage
from outlast.testing.conformance import sizes
from outlast.testing.servers import dynamodb as local
from outlast.verify import verify

from .store_pairs import move
from .test_at_work import PROGRAM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KINDS = ("sqlite", "postgres", "etcd", "dynamodb")
PAIRS = list(permutations(KINDS, 2))
FEW = [("etcd", "sqlite")]
"""At the default size: from a store whose transactions compare the seal."""

ENOUGH = 5
"""Jobs acknowledged before the transfer begins."""

PRODUCER = """
import asyncio, sys
from outlast import Outlast
from outlast.errors import OperatorError, StoreMoved

app = Outlast(sys.argv[1])

@app.job(name="count")
async def count(number: int) -> None: ...

async def main(number):
    async with app:
        while True:
            try:
                job = await count.enqueue(number=number)
            except StoreMoved:
                print("moved", flush=True)
                return
            except OperatorError:
                await asyncio.sleep(0.05)
                continue
            print(number, job.id, flush=True)
            number += 1
            await asyncio.sleep(0.1)  # more would only be more of the same

asyncio.run(main(int(sys.argv[2])))
"""


class Producer:
    """A process that enqueues numbers from `first` on, and says which were acknowledged."""

    def __init__(self, url: str, first: int, folder: Path) -> None:
        self._said = folder / f"producer-{first}"
        with self._said.open("w") as out:
            words = [sys.executable, "-c", PRODUCER, url, str(first)]
            self.process = subprocess.Popen(words, stdout=out, env=os.environ)

    def acknowledged(self) -> dict[int, str]:
        lines = self._said.read_text().splitlines()
        return {int(n): job for n, _, job in (line.partition(" ") for line in lines) if job}

    def was_told_of_the_move(self) -> bool:
        return "moved" in self._said.read_text()


@contextmanager
def producing(url: str, folder: Path) -> Iterator[list[Producer]]:
    found = [Producer(url, first, folder) for first in (0, 1_000_000)]
    try:
        yield found
    finally:
        for each in found:
            each.process.kill()  # also one that is stopped
            each.process.wait()


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - other processes set no event
        await asyncio.sleep(0.02)


def app_on(url: str, done: Counter[int], slots: list[str]) -> Outlast:
    app = Outlast(url, poll="100ms")

    @app.job(name="count")
    async def count(number: int) -> None:
        done[number] += 1

    @app.job(name="tick", delivery="once")
    async def tick() -> None:
        slots.append(url)

    app.schedule("tick", None, tick, every="1s", coalesce=True, misfire_grace="5m")
    return app


@pytest.fixture
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], str]:
    """The address of a new store of a kind."""

    def url(kind: str, name: str) -> str:
        own = f"{name}-{secrets.token_hex(6)}"
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / own}.db"
        if kind == "postgres":
            return str(next(request.getfixturevalue("postgres_places")))
        if kind == "etcd":
            return str(request.getfixturevalue("etcd").url(own))
        return local.url(request.getfixturevalue("dynamodb"), own)

    return url


@pytest.mark.parametrize(("source", "target"), PAIRS if sizes.SIZES.every_case_on_servers else FEW)
async def test_every_acknowledged_job_is_there_once(
    source: str, target: str, url_of: Callable[[str, str], str], tmp_path: Path
) -> None:
    one, other = url_of(source, "one"), url_of(target, "other")
    done: Counter[int] = Counter()
    slots: list[str] = []
    app, later = app_on(one, done, slots), app_on(other, done, slots)
    async with app, app.worker(concurrency=4):
        with producing(one, tmp_path) as producers:
            stopped, busy = producers
            for each in producers:
                await until(lambda each=each: len(each.acknowledged()) >= ENOUGH)
            await until(lambda: one in slots)
            stopped.process.send_signal(signal.SIGSTOP)
            await _killed_copy(one, other)
            async with later:
                copied = await move(
                    app.store, later.store, grace=timedelta(minutes=1), from_url=one, to_url=other
                )
                stopped.process.send_signal(signal.SIGCONT)
                await until(lambda: all(each.was_told_of_the_move() for each in producers))
                acknowledged = stopped.acknowledged() | busy.acknowledged()
                async with later.worker(concurrency=4) as worker:
                    await _drained(worker.drained, later, acknowledged)
                jobs = await later.store.find(Filter(type="count"), limit=100_000)
                reports = [await verify(store) for store in (app.store, later.store)]
        with pytest.raises(StoreMoved):
            await app.registry.get("count").enqueue(number=-1)

    assert copied is not None
    ids = Counter(job.id for job in jobs)
    assert {number: ids[job] for number, job in acknowledged.items()} == dict.fromkeys(
        acknowledged, 1
    )
    assert {number: done[number] for number in acknowledged} == dict.fromkeys(acknowledged, 1)
    assert max(done.values()) == 1, "what was not acknowledged is not done twice, either"
    assert [report.violations for report in reports] == [(), ()]


async def _killed_copy(one: str, other: str) -> None:
    """A process that copies, and is killed as soon as the source is sealed."""
    words = [sys.executable, "-c", PROGRAM, one, other, TransferStage.SEALED]
    killed = await asyncio.to_thread(subprocess.run, words, env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL


async def _drained(
    drained: Callable[[], Awaitable[None]], app: Outlast, acknowledged: dict[int, str]
) -> None:
    """Until each of the acknowledged jobs has ended."""
    while True:
        await drained()
        found = await app.store.get(list(acknowledged.values()))  # type: ignore[arg-type]
        if all(job is None or job.state is State.SUCCEEDED for job in found):
            return
