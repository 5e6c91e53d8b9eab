"""A worker that dies at a statement: `pg_transaction_child.py URL KIND STATEMENT after|before`.

Its handler writes a row in the transaction that ends its run.
"""

import asyncio
import os
import signal
import sys
import threading

from outlast import Backoff, Outlast, Run
from outlast.store.postgres.store import PostgresStore

FINISH = "handler_transaction.finish"
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


def caller() -> object:
    """Return the task, or the thread, that runs the statement: one per handler transaction."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return threading.get_ident()


async def main(url: str, kind: str, statement: str, when: str) -> None:
    finishing: object = None

    def probe(name: str, is_done: bool) -> None:
        nonlocal finishing
        if name == FINISH:
            finishing = caller()
        is_ours = name != COMMIT or caller() == finishing  # claims and maintenance commit too
        if is_ours and name == statement and is_done == (when == "after"):
            os.kill(os.getpid(), signal.SIGKILL)

    app = Outlast(PostgresStore(url, probe=probe), poll="20ms")
    register(app, kind)
    async with app, app.worker():
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
