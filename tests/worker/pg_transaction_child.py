"""A worker that dies at a statement: `pg_transaction_child.py URL KIND STATEMENT after|before`.

Its handler writes a row in the transaction that ends its run.
"""

import asyncio
import os
import signal
import sys

from outlast import Backoff, Outlast, Run
from outlast.store.postgres.store import PostgresStore

BEGIN, FINISH = "handler_transaction.begin", "handler_transaction.finish"
COMMIT = "unit_of_work.commit"
INSERT = "INSERT INTO effects VALUES ('paid')"


def register(app: Outlast, kind: str) -> None:
    retry = Backoff(3, base="1ms", jitter=False)
    if kind == "thread":

        @app.job(name="pay", retry=retry)
        def pay_in_thread(run: Run) -> None:
            with run.transaction() as conn:
                conn.execute(INSERT)

    else:

        @app.job(name="pay", retry=retry)
        async def pay(run: Run) -> None:
            async with run.transaction() as conn:
                await conn.execute(INSERT)


async def main(url: str, kind: str, statement: str, when: str) -> None:
    seen: set[str] = set()
    step_before = FINISH if statement == COMMIT else BEGIN

    def probe(name: str, is_done: bool) -> None:
        seen.add(name)
        if step_before in seen and name == statement and is_done == (when == "after"):
            os.kill(os.getpid(), signal.SIGKILL)

    # Maintenance commits too: it must not come between the finish and its commit.
    app = Outlast(PostgresStore(url, probe=probe), poll="20ms", tick="1h")
    register(app, kind)
    async with app, app.worker():
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
