"""User-like code that type checkers must accept as it stands; it is never run."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_type

from pydantic import BaseModel

from holdfast import (
    Backoff,
    Cancel,
    Command,
    Handle,
    Holdfast,
    Job,
    JobType,
    RetryAfter,
    Run,
    Skip,
    Snooze,
    State,
)
from holdfast.testing.drain import Ran
from holdfast.testing.harness import Harness


class Receipt(BaseModel):
    number: int


app = Holdfast("sqlite:///jobs.db", lease="30s", renew="10s")


@app.job
async def send_invoice(run: Run, invoice_id: int, copy: bool = False) -> Receipt:
    run.attach(f"invoice-{invoice_id}.pdf")
    async with run.transaction() as conn:
        conn.execute("…")
    return Receipt(number=run.attempt)


@app.job(retry=Backoff(max_attempts=5, base="1m"), errors={KeyError: "permanent"})
async def fetch(url: str) -> bytes | Snooze | Skip | Cancel | RetryAfter:
    return Snooze("5m") if url else b""


@app.job(delivery="once", max_runtime="10m")
def send_report() -> None: ...


@app.job(queue="slow", priority=-1)
def crunch(run: Run, *, numbers: Sequence[int]) -> list[int] | Skip | None:
    return None if run.cancelled else list(numbers)


@app.job
def count(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in words}


@app.job(executor="process")
def render(run: Run, pages: int) -> str:
    for page in range(pages):
        run.progress(page, pages, f"page {page}")
        run.checkpoint()
    return "done"


@app.job(executor="command", max_runtime="1h")
def pack(folder: str) -> Command | Skip:
    return Command(["tar", "-cf", "out.tar", folder], cwd="/data", artifacts=["*.tar"], ok=(0, 1))


async def checked(holdfast: Harness) -> None:
    holdfast.advance("1h")
    drained = await holdfast.drain(limit=3, raising=True)
    assert_type(drained[0], Ran)
    assert_type(drained[0].error, BaseException | None)
    assert_type(holdfast.assert_enqueued(send_invoice, invoice_id=3, within="5m"), list[Job])
    await holdfast.run(send_invoice, 3, copy=True)
    assert_type(holdfast.complete(send_invoice.enqueue(3)), Handle[Receipt])


async def main() -> None:
    assert_type(await (await render.enqueue(3)).result(), str)
    await pack.enqueue("photos")

    handle = await send_invoice.enqueue(invoice_id=3)
    assert_type(handle, Handle[Receipt])
    assert_type(await handle.result(timeout="5s"), Receipt)
    assert_type(await handle.wait(), Job)
    assert_type(await handle.cancel("changed my mind"), State)

    await send_invoice.enqueue(3, copy=True)
    await send_invoice.options(delay="5m", key="inv:3", priority=5).enqueue(invoice_id=3)
    await send_report.options(slot=datetime(2026, 1, 5, tzinfo=UTC)).enqueue()

    assert_type(await (await fetch.enqueue("https://…")).result(), bytes)
    assert_type(await (await crunch.enqueue(numbers=[1, 2])).result(), list[int] | None)
    assert_type(await (await count.enqueue(["a"])).result(), dict[str, int])

    assert_type(
        await app.enqueue_many(send_invoice.bind(number) for number in range(10)),
        list[Handle[Receipt]],
    )
    assert_type(await app.handle(handle.id).result(), Any)
    wished: JobType[[str], bytes] = fetch
    await wished.enqueue("https://…")

    async with app, app.worker(queues=["default", "slow"], concurrency=4):
        await app.wait(handle.id, timeout="1m")
