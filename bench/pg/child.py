"""One task in a separate process: `python -m bench.pg.child pgqueuer one URL 1000`."""

import asyncio
import json
import os
import sys
import time
from threading import Thread

from bench.pg.loop import run
from bench.pg.sides import Client, side

WARM = 10
GAP = 0.025
"""One job each 25 ms when pick-up is measured: long enough for the worker to be idle again."""


def main() -> None:
    name, what, url, *rest = sys.argv[1:]
    here = side(name)
    if what == "install":
        here.install(url)
    elif what == "work":
        _wait_for_go()
        here.work(url)
    else:
        print(json.dumps({"seconds": run(_timed(name, what, url, int(rest[0])))}))


def _wait_for_go() -> None:
    """Everything is imported: workers that start together work together."""
    print("ready", flush=True)
    sys.stdin.readline()
    Thread(target=_end_with_whoever_measures, daemon=True).start()


def _end_with_whoever_measures() -> None:
    sys.stdin.read()
    os._exit(1)


async def _timed(name: str, what: str, url: str, jobs: int) -> float:
    async with side(name).client(url) as client:
        if what == "bulk":
            since = time.perf_counter()
            await client.bulk(jobs)
            return time.perf_counter() - since
        for _ in range(WARM):
            await client.one(time.time())
        since = time.perf_counter()
        await (_paced(client, jobs) if what == "paced" else _one_by_one(client, jobs))
        return time.perf_counter() - since


async def _one_by_one(client: Client, jobs: int) -> None:
    for _ in range(jobs):
        await client.one(0.0)


async def _paced(client: Client, jobs: int) -> None:
    since = time.perf_counter()
    for number in range(jobs):
        await asyncio.sleep(max(0.0, since + number * GAP - time.perf_counter()))
        await client.one(time.time())


if __name__ == "__main__":
    main()
