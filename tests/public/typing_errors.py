"""User-like code with a mistake on every marked line; type checkers must find each. Never run."""

from outlast import JobModule, Outlast, Run, Snooze
from outlast.testing.harness import Harness

app = Outlast("sqlite:///jobs.db")


@app.job
async def send_invoice(run: Run, invoice_id: int) -> str | Snooze:
    return f"{run.id}: {invoice_id}"


@app.job(queue="slow")
def crunch(number: int, power: float = 2.0) -> float:
    return number * power


async def wrong_types() -> None:
    await send_invoice.enqueue(invoice_id="3")  # mistake
    await send_invoice.enqueue("3")  # mistake
    await crunch.options(priority=1).enqueue(1, power="two")  # mistake
    crunch.bind(None)  # mistake
    await app.enqueue_many([crunch])  # mistake
    await app.groups.start([crunch])  # mistake
    await app.groups.start([crunch.bind(1)], mode="both")  # mistake


jobs = JobModule("billing")


@jobs.job
async def bill(number: int) -> int:
    return number


@jobs.job(retention=7)  # mistake
def wrong_retention() -> None: ...


jobs.queue("mail", concurrency="three")  # mistake
app.include("billing")  # mistake
app.schedule("a", "@daily", bill.bind(day=3), coalesce=True, misfire_grace="5m")  # mistake
jobs.schedule("b", "@daily", bill.bind("3"), coalesce=True, misfire_grace="5m")  # mistake


async def wrong_modules() -> None:
    await bill.enqueue("3")  # mistake
    word: str = await bill.handle("an-id").result()  # mistake
    await app.templates.save("weekly", bill.bind())  # mistake
    print(word)  # noqa: T201


async def missing_arguments() -> None:
    await send_invoice.enqueue()  # mistake
    await crunch.options(delay="1m").enqueue(power=1.0)  # mistake
    crunch.bind()  # mistake


async def arguments_too_many() -> None:
    await send_invoice.enqueue(3, 4)  # mistake
    await crunch.enqueue(number=1, numbr=2)  # mistake


async def misspelt_options() -> None:
    await crunch.options(dely="1m").enqueue(1)  # mistake
    await crunch.options(on_conflict="ignore").enqueue(1)  # mistake
    await crunch.options(priority="high").enqueue(1)  # mistake
    app.worker(queue="slow")  # mistake
    await app.move("an-id", "top")  # mistake
    Outlast("sqlite:///jobs.db", leese="30s")  # mistake


async def wrong_tests(outlast: Harness) -> None:
    await outlast.run(send_invoice, "3")  # mistake
    outlast.assert_enqueued("crunch", count="two")  # mistake


@app.job(retries=3)  # mistake
def misspelt_setting() -> None: ...


@app.job(delivery="twice")  # mistake
def wrong_setting() -> None: ...


async def wrong_around() -> None:
    await app.templates.options("weekly", dely="1m").enqueue()  # mistake
    await app.templates.save("weekly", 3)  # mistake
    await app.jobs.retry(limit="all")  # mistake
    app.jobs.find(states=["failed"])  # mistake
    await app.enqueue("crunch", {"number": 3}, dely="5m")  # mistake
    with app.sync() as wait:
        wait(3)  # mistake
        count: str = wait(crunch.enqueue(3))  # mistake
        print(count)  # noqa: T201


async def wrong_results() -> None:
    invoice: int = await (await send_invoice.enqueue(3)).result()  # mistake
    power: str = await (await crunch.enqueue(3)).result("5s")  # mistake
    print(invoice, power)  # noqa: T201
