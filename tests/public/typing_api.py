"""User-like code that type checkers must accept as it stands; it is never run."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, assert_type

from pydantic import BaseModel

from outlast import (
    Backoff,
    BulkResult,
    Cancel,
    Command,
    DeclaredQueue,
    Group,
    GroupHandle,
    Handle,
    Job,
    JobModule,
    JobPage,
    JobType,
    Lineage,
    MemberResult,
    Outlast,
    Pause,
    Queue,
    RetryAfter,
    Run,
    Schedule,
    Skip,
    SlotOutcome,
    SlotRecord,
    Snooze,
    State,
    Sync,
    Template,
)
from outlast.testing.drain import DrainedRun
from outlast.testing.harness import Harness


class Receipt(BaseModel):
    number: int


app = Outlast("sqlite:///jobs.db", lease="30s", renew="10s")


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


async def checked(outlast: Harness) -> None:
    outlast.advance("1h")
    drained = await outlast.drain(limit=3, raising=True)
    assert_type(drained[0], DrainedRun)
    assert_type(drained[0].error, BaseException | None)
    assert_type(outlast.assert_enqueued(send_invoice, invoice_id=3, within="5m"), list[Job])
    await outlast.run(send_invoice, 3, copy=True)
    assert_type(outlast.complete(send_invoice.enqueue(3)), Handle[Receipt])


class Summary(BaseModel):
    user_id: int


class DailySummaryHandler:
    @classmethod
    def payload_model(cls) -> type[Summary]:
        return Summary

    async def handle(self, payload: Summary) -> None: ...


class UserSyncHandler:
    @classmethod
    def payload_model(cls) -> type[Summary]:
        return Summary

    def handle(self, run: Run, payload: Summary) -> int | Skip:
        return Skip("nobody") if run.attempt > 3 else payload.user_id


# Called, for mypy does not look at what the decorator of a class gives back.
daily_summary = app.job(DailySummaryHandler)
user_sync = app.job(queue="slow")(UserSyncHandler)


def synchronously() -> None:
    with app.sync() as wait:
        assert_type(wait, Sync)
        handle = wait(fetch.enqueue("https://…"))
        assert_type(handle, Handle[bytes])
        assert_type(wait(handle.result(timeout="1m")), bytes)
        for event in wait.each(app.event_stream(after=3)):
            assert_type(event.id, int)


jobs = JobModule("billing")
mail = jobs.queue("mail", concurrency=3, ordering="position")


@jobs.job(queue=mail, retention="7d")
async def bill(run: Run, number: int) -> Receipt:
    return Receipt(number=number)


@jobs.around
async def timing(run: Run) -> AsyncIterator[None]:
    yield


jobs.schedule("bills", "0 3 * * *", bill.bind(number=3), coalesce=True, misfire_grace="5m")
app.include(jobs)


async def modules() -> None:
    assert_type(mail, str)
    assert_type(await bill.enqueue(number=3), Handle[Receipt])
    assert_type(await bill.handle("an-id").result(), Receipt)
    assert_type(await app.enqueue("bill", {"number": 3}, delay="5m"), Handle[Any])
    assert_type(await app.enqueue("other", elsewhere=True, delivery="linked"), Handle[Any])
    assert_type(await app.templates.save("weekly", fetch.bind("https://…")), Template)
    assert_type(await app.queues.declared(), list[DeclaredQueue])
    app.schedule(
        "often", job_type=fetch.bind(url="…"), every="1h", coalesce=True, misfire_grace="5m"
    )


async def around() -> None:
    assert_type(await daily_summary.enqueue(user_id=3), Handle[None])
    synced = await user_sync.options(key="3").enqueue(Summary(user_id=3))
    assert_type(await synced.result(), int)

    template = await app.templates.save("weekly", fetch, params={"url": "https://…"})
    assert_type(template, Template)
    await app.templates.save("weekly", "fetch", queue="slow", expected=template.updated_at)
    assert_type(await app.templates.enqueue("weekly", url="https://…"), Handle[Any])
    await app.templates.options("weekly", delay="5m", on_conflict="reject").enqueue()
    assert_type(await app.templates.list(), list[Template])

    again = await app.retry(synced.id)
    assert_type(again, Handle[Any])
    bulk = await app.jobs.retry(state=["failed"], type="mail.*", since="2h", limit=10)
    assert_type(bulk, BulkResult)
    assert_type(bulk.handles, list[Handle[Any]])
    assert_type((await app.jobs.cancel(queue="slow", reason="deploy")).refused, dict[str, str])
    assert_type(await app.jobs.page(state="queued", limit=20, after=None), JobPage)
    async for job in app.jobs.find(state="dead_letter", params={"user_id": 3}, since="1d"):
        assert_type(job, Job)
    lineage = await app.lineage(again.id)
    assert_type(lineage, Lineage)
    assert_type(lineage.attempt(again.id), int)
    async for event in app.event_stream(follow=True):
        assert_type(event.job_id is None, bool)


async def main() -> None:
    assert_type(await (await render.enqueue(3)).result(), str)
    assert_type(await (await pack.enqueue("photos")).result(), None)

    handle = await send_invoice.enqueue(invoice_id=3)
    assert_type(handle, Handle[Receipt])
    assert_type(await handle.result(timeout="5s"), Receipt)
    assert_type(await handle.wait(), Job)
    assert_type(await handle.cancel("changed my mind"), State)

    assert_type(await handle.move("front"), Job)
    assert_type(await app.move(handle.id, before="another-id"), Job)
    assert_type(await app.edit(handle.id, params={"invoice_id": 4}, delay="5m"), Job)
    assert_type(await app.queues.next_jobs("default", 10), list[Job])
    assert_type(await app.queues.renumber("default"), int)

    await send_invoice.enqueue(3, copy=True)
    await send_invoice.options(delay="5m", key="inv:3", priority=5).enqueue(invoice_id=3)
    assert_type(await send_invoice.run_now(invoice_id=3), Handle[Receipt])
    direct = send_invoice.options(wait="30s", on_busy="reject", request="req-7")
    assert_type(await (await direct.run_now(3, copy=True)).result(), Receipt)
    assert_type(await app.queues.save("slow", ordering="position", concurrency=1, gap=10), Queue)
    assert_type(
        (await app.queues.pause("slow", reason="deploy", duration="5m")).pause, Pause | None
    )
    assert_type(await app.queues.resume("slow"), bool)
    assert_type(await app.queues.list(), list[Queue])
    await send_report.options(slot=datetime(2026, 1, 5, tzinfo=UTC)).enqueue()

    app.schedule("nightly", "0 2 * * *", send_report, coalesce=True, misfire_grace="5m")
    often = await app.schedules.save(
        "often", None, send_report, every="15m", jitter="1m", coalesce=True, misfire_grace="5m"
    )
    assert_type(often, Schedule)
    assert_type(await app.schedules.edit("often", timezone="Europe/Berlin"), Schedule)
    assert_type(await app.schedules.history("often"), list[SlotRecord])
    assert_type((await app.schedules.history("often"))[0].outcome, SlotOutcome)
    await app.schedules.run("often", "missed")

    assert_type(await (await fetch.enqueue("https://…")).result(), bytes)
    assert_type(await (await crunch.enqueue(numbers=[1, 2])).result(), list[int] | None)
    assert_type(await (await count.enqueue(["a"])).result(), dict[str, int])

    assert_type(
        await app.enqueue_many(send_invoice.bind(number) for number in range(10)),
        list[Handle[Receipt]],
    )
    group: GroupHandle[Receipt | bytes] = await app.groups.start(
        [send_invoice.bind(1), fetch.bind("https://…")], mode="sequential"
    )
    assert_type(await group.results(wait="5s"), list[MemberResult[Receipt | bytes]])
    both = await app.groups.start([fetch.bind("https://…"), fetch.bind("https://…")])
    assert_type([each.result() for each in await both.results()], list[bytes])
    assert_type(await group.wait(timeout="5s"), Group)
    assert_type((await group.read()).progress, float)
    assert_type(await group.jobs(states=[State.FAILED], limit=10), list[Job])
    assert_type(await group.cancel("changed my mind"), Group)
    assert_type(await app.groups.list(limit=10), list[Group])
    assert_type(await app.handle(handle.id).result(), Any)
    wished: JobType[[str], bytes] = fetch
    await wished.enqueue("https://…")

    async with app, app.worker(queues=["default", "slow"], concurrency=4):
        await app.wait(handle.id, timeout="1m")
