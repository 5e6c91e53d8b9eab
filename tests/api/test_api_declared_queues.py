"""Queues declared in code: what a worker writes, and what an operator set stays."""

import logging

import pytest

from outlast import InvalidArgument, Outlast
from outlast.core.ordering import Ordering


def new_app(store, **settings) -> Outlast:
    """An app as its next start creates it, with one declaration."""
    app = Outlast(store, name=settings.pop("app", "shop"), poll="10ms")
    app.job(name="nothing")(lambda: None)
    if settings:
        app.queue("mail", **settings)
    return app


async def start(app: Outlast) -> None:
    async with app.worker():
        pass


def test_the_declaration_is_used_as_the_queue_of_a_type(app):
    mail = app.queue("mail", concurrency=3)

    @app.job(queue=mail)
    def send() -> None: ...

    assert (mail, send.queue) == ("mail", "mail")


async def test_a_worker_writes_the_named_settings_before_its_first_claim(store):
    app = new_app(store, concurrency=3)
    await app.queues.save("mail", ordering="position", gap=7)
    limits, claim = [], store.claim

    async def watched(*args, **options):
        limits.append((await store.queue("mail")).concurrency)
        return await claim(*args, **options)

    store.claim = watched

    @app.job(queue="mail")
    async def send() -> None: ...

    handle = await send.enqueue()
    async with app.worker():
        await handle.result("2m")

    assert set(limits) == {3}
    queue = await app.queues.get("mail")
    assert (queue.concurrency, queue.ordering, queue.gap) == (3, Ordering.POSITION, 7)


async def test_what_an_operator_set_later_stays_until_the_declaration_changes(store):
    await start(new_app(store, concurrency=3))
    await new_app(store).queues.save("mail", concurrency=1)

    await start(new_app(store, concurrency=3))
    kept = await store.queue("mail")
    await start(new_app(store, concurrency=5))
    changed = await store.queue("mail")

    assert (kept.concurrency, changed.concurrency) == (1, 5)


async def test_a_declaration_without_a_limit_removes_it(store):
    await start(new_app(store, concurrency=3))

    await start(new_app(store, concurrency=None))

    assert (await store.queue("mail")).concurrency is None


async def test_a_declaration_that_is_gone_leaves_the_settings(store):
    await start(new_app(store, concurrency=3))

    await start(new_app(store))

    assert (await store.queue("mail")).concurrency == 3


async def test_a_pause_outlasts_a_declaration(store):
    await new_app(store).queues.pause("mail", reason="deploy")

    await start(new_app(store, concurrency=3))

    assert (await store.queue("mail")).pause is not None


async def test_a_death_between_settings_and_record_writes_the_same_again(store):
    swap = store.swap

    async def killed(*args, **options):
        raise KeyboardInterrupt

    store.swap = killed
    app = new_app(store, concurrency=3)
    with pytest.raises(KeyboardInterrupt):
        await app.sync_queues()
    store.swap = swap

    await app.sync_queues()

    assert (await store.queue("mail")).concurrency == 3
    [declared] = await app.queues.declared()
    assert (declared.name, declared.app, declared.settings) == ("mail", "shop", {"concurrency": 3})


async def test_two_apps_that_declare_one_queue_differently_are_told(store, caplog):
    await start(new_app(store, concurrency=3))
    with caplog.at_level(logging.WARNING, "outlast.jobs"):
        await start(new_app(store, concurrency=4, app="other"))

    assert "queue mail was declared by app shop, and app other declares other" in caplog.text
    assert (await store.queue("mail")).concurrency == 4


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"concurrency": 0}, "queue mail: concurrency is 0; use a whole number from 1"),
        ({"concurrency": -1}, "use a whole number from 1"),
        ({"concurrency": True}, "use a whole number from 1"),
        ({"concurrency": "3"}, "use a whole number from 1"),
        ({"gap": 0}, "queue mail: gap is 0; use a whole number from 1"),
        ({"ordering": "random"}, "use scheduled or position"),
        ({}, "is declared without a setting"),
    ],
)
def test_nonsense_is_refused_where_it_is_written(app, wrong, remedy):
    with pytest.raises(InvalidArgument, match=remedy):
        app.queue("mail", **wrong)
    app.queue("mail", concurrency=1)  # nothing of the refused one was kept


def test_a_second_declaration_is_refused_with_both_places(app):
    app.queue("mail", concurrency=1)

    with pytest.raises(InvalidArgument, match=r"declared twice, at .*, line \d+ and at .*, line"):
        app.queue("mail", gap=2)
    with pytest.raises(InvalidArgument, match="the name of a queue"):
        app.queue("two words", gap=2)
