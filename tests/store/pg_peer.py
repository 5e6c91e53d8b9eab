"""The other process on PostgreSQL: a store of its own, orders on its input, a JSON line each."""

import asyncio
import json
import os
import secrets
import sys
from datetime import timedelta
from typing import Any

from outlast.clock import SystemClock
from outlast.core import event as ev
from outlast.core.decide import decide, succeed
from outlast.core.delivery import Delivery
from outlast.core.ids import Ids
from outlast.core.run import Claim, LeaseHolder
from outlast.core.state import Loss
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import TYPE, make_job

IDS = Ids(SystemClock().now, secrets.randbits)
LEASE = timedelta(minutes=5)


class Orders:
    """Each method is an order; what it answers is sent back."""

    store: PostgresStore
    held: list[Claim]

    async def open(self, url: str) -> None:
        self.store = PostgresStore(url)
        await self.store.open()
        self.held = []

    async def close(self) -> None:
        await self.store.close()

    async def take(self, limit: int) -> list[str]:
        """Claim until nothing comes any more, and keep it."""
        while claims := await self._claim(limit):
            self.held += claims
        return [claim.id for claim in self.held]

    async def finish(self) -> list[bool]:
        held, self.held = self.held, []
        return await self.store.apply([succeed(c.id, c.token, None) for c in held])

    async def drain_in_order(self, path: str, total: int) -> int:
        """One at a time, each written down before it ends, until so many are written down."""
        taken = 0
        while _lines(path) < total:
            for claim in await self._claim(1):
                _write(path, claim.id)
                await self.store.apply([succeed(claim.id, claim.token, None)])
                taken += 1
        return taken

    async def mix(self, rounds: int) -> int:
        """Everything at once that locks: claims, retries, successors, renewals, cancels."""
        for number in range(rounds):
            claims = await self._claim(20)
            await self.store.renew([claim.lease for claim in claims], span=LEASE)
            await self.store.apply([_some_end(claim, number + n) for n, claim in enumerate(claims)])
            await self.store.add(
                [make_job(id=IDS.job(), delivery=Delivery.LINKED) for _ in range(3)]
            )
        return rounds

    async def _claim(self, limit: int) -> list[Claim]:
        who = LeaseHolder(instance_id=f"peer-{os.getpid()}", boot_id="1")
        asked = {"queue": "default", "types": [TYPE], "limit": limit, "lease": LEASE}
        return await self.store.claim(who, **asked)  # type: ignore[arg-type]


def _some_end(claim: Claim, number: int) -> Any:
    ends = (ev.Succeeded(None), ev.Failed("no"), ev.Lost(Loss.OWNER_DEAD), ev.Skipped("so"))
    return decide(claim, ends[number % len(ends)], new_id=IDS.job)


def _write(path: str, line: str) -> None:
    with open(path, "a", encoding="utf-8") as log:  # noqa: PTH123 - appended by several at once
        log.write(line + "\n")


def _lines(path: str) -> int:
    with open(path, encoding="utf-8") as log:  # noqa: PTH123 - as above
        return sum(1 for _ in log)


async def main() -> None:
    orders = Orders()
    for line in sys.stdin:
        order, *given = json.loads(line)
        answer = await getattr(orders, order)(*given)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
