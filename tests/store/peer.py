"""The other process: a store of its own, and orders on its standard input, a JSON line each."""

import asyncio
import json
import os
import queue
import secrets
import sqlite3
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from outlast.clock import SystemClock
from outlast.core.decide import succeed
from outlast.core.ids import Ids
from outlast.errors import OutlastError
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import make_job, take_many

IDS = Ids(SystemClock().now, secrets.randbits)


class Orders:
    """Each method is an order; what it answers is sent back."""

    store: SqliteStore
    lock: sqlite3.Connection

    async def open(self, path: str) -> None:
        self.store = SqliteStore(Path(path))
        await self.store.open()

    async def close(self) -> None:
        await self.store.close()

    async def open_and_close(self, path: str) -> None:
        await self.open(path)
        await self.close()

    async def add(self, count: int) -> list[str]:
        added = await self.store.add([make_job(id=IDS.job()) for _ in range(count)])
        return [answer.id for answer in added if answer.created]

    async def finish(self, count: int) -> list[str]:
        claims = await take_many(self.store, limit=count)
        await self.store.apply([succeed(claim.id, claim.token, None) for claim in claims])
        return [claim.id for claim in claims]

    async def subscribe(self, topics: list[str]) -> None:
        self.heard_hints: queue.SimpleQueue[Notification] = queue.SimpleQueue()
        self.store.subscribe(self.heard_hints.put, topics=[Topic(topic) for topic in topics])

    async def received(self) -> list[str]:
        """What the next hint is about; it comes, or the test is over."""
        return sorted(self.heard_hints.get(timeout=120).topics)

    async def heard_more(self) -> int:
        return self.heard_hints.qsize()

    async def lock_file(self, path: str) -> None:
        self.lock = sqlite3.connect(path, isolation_level=None)
        self.lock.execute("BEGIN IMMEDIATE")

    async def unlock_file(self) -> None:
        self.lock.execute("ROLLBACK")
        self.lock.close()

    async def transactions(self, count: int, folder: str) -> None:
        """Handler transactions without a pause; the n-th of all processes ends at `end-n`."""
        for _ in range(count):
            transaction = await self.store.begin(within=timedelta(hours=1))
            [seen] = transaction.connection.execute("SELECT count(*) FROM outlast_jobs").fetchone()
            number = _note(Path(folder, "log"), str(seen))
            while not os.path.exists(f"{folder}/end-{number}"):  # noqa: ASYNC110, ASYNC240, PTH110 - another process
                await asyncio.sleep(0.005)
            await transaction.rollback()


def _note(log: Path, line: str) -> int:
    """Append the line; return how many were there before."""
    before = log.read_text(encoding="ascii").splitlines() if log.exists() else []
    log.write_text("\n".join([*before, line]), encoding="ascii")
    return len(before)


async def main() -> None:
    orders = Orders()
    for line in sys.stdin:
        order, *given = json.loads(line)
        answer: Any
        try:
            answer = await getattr(orders, order)(*given)
        except OutlastError as error:
            answer = f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
