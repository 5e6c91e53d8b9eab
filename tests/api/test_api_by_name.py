"""Jobs enqueued by the name of their type, with its code in this app or elsewhere."""

import pytest

from outlast import (
    DuplicateJob,
    InvalidJob,
    InvalidParams,
    Outlast,
    PayloadTooLarge,
    State,
    TypeNotFound,
)


@pytest.fixture
def greet(app):
    @app.job(queue="mail", priority=3)
    async def greet(name: str, times: int = 1) -> str:
        return name * times

    return greet


async def test_a_known_type_is_enqueued_as_by_its_function(app, greet):
    by_name = await (await app.enqueue("greet", {"name": "Ada"}, delay="5m")).read()
    by_type = await (await greet.options(delay="5m").enqueue("Ada")).read()

    for field in ("type", "params", "queue", "priority", "delivery", "max_attempts", "state"):
        assert getattr(by_name, field) == getattr(by_type, field)


async def test_params_of_a_known_type_are_checked_at_once(app, greet):
    for wrong in ({}, {"name": 3}, {"name": "Ada", "tims": 2}):
        with pytest.raises(InvalidParams, match='params of "greet" refused'):
            await app.enqueue("greet", wrong)
        with pytest.raises(InvalidParams, match='params of "greet" refused'):
            await app.enqueue("greet", wrong, elsewhere=True)  # its code is here all the same


async def test_an_unknown_type_is_refused_with_the_nearest_name_and_the_way_on(app, greet):
    with pytest.raises(TypeNotFound) as refused:
        await app.enqueue("gret", {"name": "Ada"})

    assert "did you mean greet?" in str(refused.value)
    assert "pass elsewhere=True" in str(refused.value)


async def test_a_type_whose_code_is_elsewhere_has_the_defaults_of_an_app(app):
    handle = await app.enqueue("resize", {"id": 3, "to": [1, 2]}, elsewhere=True)

    job = await handle.read()
    assert (job.type, job.queue, job.delivery, job.max_attempts) == (
        "resize", "default", "lease", 5,
    )  # fmt: skip
    assert job.params == '{"id":3,"to":[1,2]}'
    assert job.state is State.QUEUED


async def test_options_and_delivery_of_a_type_elsewhere_are_as_given(app):
    options = {"queue": "images", "priority": 2, "max_attempts": 7, "key": "k", "delay": "1m"}
    handle = await app.enqueue("resize", elsewhere=True, delivery="linked", **options)

    job = await handle.read()
    assert (job.queue, job.priority, job.max_attempts) == ("images", 2, 7)
    assert (job.delivery, job.state, job.params) == ("linked", State.SCHEDULED, "{}")
    again = await app.enqueue("resize", elsewhere=True, key="k")
    assert (again.id, again.created) == (handle.id, False)
    with pytest.raises(DuplicateJob):
        await app.enqueue("resize", elsewhere=True, key="k", on_conflict="reject")


async def test_delivery_belongs_to_the_code_where_it_is_here(app, greet):
    with pytest.raises(InvalidJob, match="leave it out"):
        await app.enqueue("greet", {"name": "Ada"}, delivery="once")


async def test_what_no_store_can_hold_is_refused_for_a_type_elsewhere_too(app):
    for wrong in ({"x": object()}, {"x": float("nan")}, {"x": "\0"}, [1], {1: 2}):
        with pytest.raises(InvalidParams):
            await app.enqueue("resize", wrong, elsewhere=True)
    with pytest.raises(PayloadTooLarge):
        await app.enqueue("resize", {"x": "y" * 300_000}, elsewhere=True)
    with pytest.raises(InvalidJob, match="delivered once per slot"):
        await app.enqueue("resize", elsewhere=True, delivery="once")


async def test_the_worker_that_has_the_code_checks_the_params_and_runs_the_job(store):
    """Two apps on one store; params that fit run, and the others wait for code that fits."""
    seen = []
    sender = Outlast(store, name="sender", poll="10ms")
    worker = Outlast(store, name="worker", poll="10ms")

    @worker.job
    async def resize(id: int) -> int:  # noqa: A002 - a param's name
        seen.append(id)
        return id

    good = await sender.enqueue("resize", {"id": 3}, elsewhere=True)
    bad = await sender.enqueue("resize", {"id": "three"}, elsewhere=True)
    async with worker.worker():
        assert await resize.handle(good.id).result("2m") == 3
    assert seen == [3]
    assert (await bad.read()).state is not State.SUCCEEDED


async def test_the_handle_of_a_type_decodes_its_result(app, hand, greet):
    handle = greet.handle((await greet.enqueue("Ada")).id)

    assert handle.created is False
    assert (await handle.read()).type == "greet"
