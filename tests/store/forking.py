"""A process that opens a store, forks, and tells what became of both (`python forking.py path`)."""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from outlast.clock import SystemClock
from outlast.core.ids import Ids
from outlast.errors import OutlastError
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import make_job, take_many

IDS = Ids(SystemClock().now, secrets.randbits)
Report = dict[str, Any]


async def add(store: SqliteStore) -> str:
    job = make_job(id=IDS.job())
    await store.add([job])
    return job.id


async def outcome(work: Awaitable[Any]) -> str:
    try:
        await work
    except OutlastError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


async def uses_inherited(store: SqliteStore, _: Callable[[], None]) -> Report:
    """The child uses the store it inherited, in every way, and closes it."""
    return {
        "add": await outcome(store.add([make_job(id=IDS.job())])),
        "claim": await outcome(take_many(store)),
        "counts": await outcome(store.counts()),
        "find": await outcome(store.find(Filter(), limit=1)),
        "begin": await outcome(store.begin(within=timedelta(seconds=1))),
        "close": await outcome(store.close()),
    }


async def opens_own(store: SqliteStore, parent_closes: Callable[[], None]) -> Report:
    """The child opens a store of its own, and goes on after its parent has closed."""
    own = SqliteStore(store.path)
    opened = await outcome(own.open())
    if opened != "done":
        parent_closes()
        return {"open": opened, "stored": []}
    stored = [await add(own)]
    parent_closes()
    stored += [await add(own) for _ in range(5)]
    await own.close()
    return {"open": opened, "stored": stored}


PARTS = {"uses_inherited": uses_inherited, "opens_own": opens_own}


def child(store: SqliteStore, part: str, report: int, turn: tuple[int, int]) -> None:
    def parent_closes() -> None:
        os.write(turn[1], b"?")
        os.read(turn[0], 1)

    reported: Report = {"crashed": True}
    try:
        reported = asyncio.run(PARTS[part](store, parent_closes))
    finally:
        os.write(report, json.dumps(reported).encode())
        os._exit(0)


def main(path: Path, part: str) -> None:
    loop = asyncio.new_event_loop()
    store = SqliteStore(path)
    loop.run_until_complete(store.open())
    stored = [loop.run_until_complete(add(store))]
    loop.run_until_complete(store.counts())
    to_child, from_child, report = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        child(store, part, report[1], (to_child[0], from_child[1]))
    os.close(report[1])
    os.close(from_child[1])
    stored.append(loop.run_until_complete(add(store)))
    if os.read(from_child[0], 1):
        loop.run_until_complete(store.close())
        os.write(to_child[1], b"!")
    reported = json.loads(os.read(report[0], 1 << 16))
    os.waitpid(pid, 0)
    loop.run_until_complete(store.open())
    stored.append(loop.run_until_complete(add(store)))
    found = loop.run_until_complete(store.find(Filter(), limit=100))
    loop.run_until_complete(store.close())
    loop.close()
    sys.stdout.write(
        json.dumps({"child": reported, "stored": stored, "found": [job.id for job in found]})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
