"""Runs scenarios in processes that kill themselves at a chosen statement.

`python -m support.crash.runner` answers requests on its standard input, one JSON line each. It
has no threads and forks once for every case, so that a case costs milliseconds.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self

from outlast.core.ids import Ids
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes
from support.crash.world import Scenario, World

Probe = Callable[[str, bool], None]
ACT_IDS = 1000
"""Acts number their jobs from here, so that they never meet those of the world."""


class Bench(Protocol):
    """What a store brings to be crash-tested; named as `module:attribute` in a request."""

    def store(self, path: Path, clock: FakeClock, ids: Ids, probe: Probe | None) -> Store:
        """The store at `path`, which calls `probe` around every statement."""
        ...

    @property
    def scenarios(self) -> dict[str, Scenario]:
        """What to kill: the shipped scenarios, and those of this store alone."""
        ...


@dataclass(frozen=True, slots=True)
class Point:
    """One place to die: before or after the statement of that name, the `nth` call of the probe."""

    nth: int
    name: str
    after: bool


def chosen(points: list[Point], killed: set[str], *, writes: bool) -> list[Point]:
    """At full size all. Else before each statement once, and at the end.

    `killed` remembers from one scenario to the next. A read-only one is killed at its end.
    """
    if sizes.SIZES.crash_on_either_side:
        return points
    before = [point for point in points if not point.after]
    fresh = [point for point in before if point.name not in killed]
    killed.update(point.name for point in fresh)
    last = points[-1:]
    return [*fresh, *(point for point in last if point not in fresh)] if writes else last


def brings_nothing_new(points: list[Point], killed: set[str]) -> bool:
    """Whether earlier scenarios were killed at all its statements; False at full size."""
    return not sizes.SIZES.crash_on_either_side and killed >= {point.name for point in points}


def clocked() -> tuple[FakeClock, Ids]:
    """The same clock and the same random ids, every time."""
    clock = FakeClock()
    return clock, Ids(clock.now, Random(7).getrandbits)


async def play(bench: Bench, path: Path, name: str, probe: Probe, *, act: bool) -> None:
    """Make the world of a scenario and, if asked, act in it; only the act is probed."""
    clock, ids = clocked()
    armed = False
    store = bench.store(path, clock, ids, lambda n, after: probe(n, after) if armed else None)
    chosen = bench.scenarios[name]
    if chosen.opened:
        await store.open()
    needs = await chosen.prepare(World(store, path, clock, count(1)))
    if act:
        armed = True
        await chosen.act(World(store, path, clock, count(ACT_IDS)), needs)
        armed = False
    await store.close()


TESTS = Path(__file__).parents[2]
"""The folder from which a helper process imports `support`."""


class Crasher:
    """Asks the helper process to play cases; use it as a context manager."""

    def __init__(self, bench: str) -> None:
        self._bench = bench

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "support.crash.runner", self._bench]
        self._helper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TESTS
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        self._helper.stdin.close()
        self._helper.wait()
        self._helper.stdout.close()

    def points(self, path: Path, name: str) -> list[Point]:
        """Play it to the end and list every place where it could have died."""
        answer = self._ask(path=str(path), name=name, nth=None)
        return [Point(nth, n, after) for nth, (n, after) in enumerate(answer["seen"])]

    def kill(self, path: Path, name: str, point: Point) -> None:
        """Play it until it dies at that place, for real."""
        answer = self._ask(path=str(path), name=name, nth=point.nth)
        assert answer["signal"] == signal.SIGKILL, f"{name} outlived {point}: {answer}"

    def _ask(self, **request: Any) -> Any:
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        print(json.dumps(request), file=self._helper.stdin, flush=True)
        return json.loads(self._helper.stdout.readline())


def serve(bench: Bench) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_case(bench, **request)), flush=True)


def _case(bench: Bench, *, path: str, name: str, nth: int | None) -> dict[str, Any]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _die(bench, Path(path), name, nth, write)
    os.close(write)
    with os.fdopen(read) as pipe:
        seen = pipe.read()
    _, status = os.waitpid(child, 0)
    return {"signal": os.WTERMSIG(status), "seen": json.loads(seen) if seen else []}


def _die(bench: Bench, path: Path, name: str, nth: int | None, write: int) -> None:
    seen: list[tuple[str, bool]] = []

    def probe(statement: str, after: bool) -> None:
        if len(seen) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append((statement, after))

    code = 1
    try:
        asyncio.run(play(bench, path, name, probe, act=True))
        os.write(write, json.dumps(seen).encode())
        code = 0
    finally:
        os._exit(code)


def load(bench: str) -> Bench:
    module, _, attribute = bench.partition(":")
    found: Bench = getattr(import_module(module), attribute)
    return found


def main(arguments: Sequence[str]) -> None:
    serve(load(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
