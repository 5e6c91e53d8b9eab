"""A queue that is most likely misspelt is reported, and no job is refused for it."""

import logging

import pytest

from outlast import Outlast

WARNING = "no job type of this app uses queue mial by default; did you mean mail?"


@pytest.fixture
def shop(tmp_path: object) -> Outlast:
    app = Outlast(f"sqlite:///{tmp_path}/jobs.db")

    @app.job(queue="mail")
    def send() -> None: ...

    return app


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


async def test_a_misspelt_queue_of_an_enqueue_is_reported_once_and_the_job_is_stored(
    shop: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    send = shop.registry.get("send")
    async with shop:
        handles = [await send.options(queue="mial").enqueue() for _ in range(2)]
        jobs = [await handle.read() for handle in handles]

    assert [job.queue for job in jobs] == ["mial", "mial"]
    assert warnings_of(caplog) == [WARNING]


async def test_a_queue_named_at_run_time_is_not_reported(
    shop: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    send = shop.registry.get("send")
    async with shop:
        for queue in ("mail", "tenant-42", "default"):
            await send.options(queue=queue).enqueue()

    assert warnings_of(caplog) == []


async def test_a_worker_of_a_queue_that_the_app_does_not_use_says_so_at_its_start(
    shop: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    async with shop, shop.worker(queues=["mial", "mail"]):
        pass

    assert warnings_of(caplog) == [WARNING]
