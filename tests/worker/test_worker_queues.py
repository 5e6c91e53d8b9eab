"""Which queues a worker serves: all queues of the app, unless some were chosen."""

import threading

from worker_helpers import SOON, until

from outlast import State


def with_mail(app):
    @app.job(queue="mail")
    async def mail(to: str) -> str:
        return to

    return mail


async def test_a_worker_serves_the_queues_of_all_types(app):
    mail = with_mail(app)

    async with app.worker():
        assert await (await mail.enqueue("a")).result(SOON) == "a"


async def test_a_worker_serves_types_registered_after_it_was_created(app):
    @app.job
    async def first() -> None: ...

    worker = app.worker()
    mail = with_mail(app)

    async with worker:
        assert await (await mail.enqueue("a")).result(SOON) == "a"


async def test_a_running_worker_serves_a_type_registered_later_on_any_thread(app):
    @app.job
    async def first() -> int:
        return 1

    made = []
    async with app.worker() as worker:
        assert await (await first.enqueue()).result(SOON) == 1
        thread = threading.Thread(target=lambda: made.append(with_mail(app)))
        thread.start()
        thread.join()
        assert await (await made[0].enqueue("a")).result(SOON) == "a"
        assert await (await first.enqueue()).result(SOON) == 1

        async def is_registered_anew():
            [known] = await app.store.workers()
            return {"default", "mail"} <= set(known.queues) and "mail" in known.types

        await until(is_registered_anew)
    assert worker.unwritten == []


async def test_chosen_queues_and_types_stay_as_they_were_chosen(app):
    @app.job
    async def first() -> None: ...

    async with app.worker(queues=["default"]) as worker:
        mail = with_mail(app)
        job = await mail.enqueue("a")
        await (await first.enqueue()).wait(SOON)
        await worker.drained()
        assert (await job.read()).state is State.QUEUED

    async with app.worker(types=["first"]) as worker:

        @app.job
        async def second() -> None: ...

        job = await second.enqueue()
        await (await first.enqueue()).wait(SOON)
        await worker.drained()
        assert (await job.read()).state is State.QUEUED


def in_this_module() -> None:
    """Its module has no name for the app, so no process could import it."""


async def test_a_later_type_that_no_process_could_import_is_not_served(app, caplog):
    @app.job
    async def first() -> int:
        return 1

    async with app.worker():
        app.job(executor="process")(in_this_module)
        assert await (await first.enqueue()).result(SOON) == 1

    assert "new job types are not served" in caplog.text
