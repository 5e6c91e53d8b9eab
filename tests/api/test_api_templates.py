"""Templates: what may be saved, what a job made from one is, and what an edit changes."""

import asyncio
import json
from datetime import UTC, date, datetime, timedelta

import pytest
from pydantic import BaseModel, Field

from outlast import (
    DuplicateJob,
    InvalidArgument,
    InvalidJob,
    InvalidParams,
    Outlast,
    PayloadTooLarge,
    TypeNotFound,
)
from outlast.core.envelope import merged
from outlast.core.template import Template
from outlast.errors import TemplateChanged, TemplateNotFound


class Address(BaseModel):
    street: str
    number: int = Field(gt=0)


@pytest.fixture
def send(app):
    @app.job(queue="mail", priority=2)
    def send(
        user_id: int,
        day: date,
        to: Address | None = None,
        blob: bytes = b"",
        tags: frozenset[str] = frozenset(),
    ) -> None: ...

    return send


@pytest.fixture
def templates(app, send):
    return app.templates


async def params_of(handle):
    return json.loads((await handle.read()).params)


async def test_a_template_is_kept_as_saved(app, templates, send, clock):
    saved = await templates.save(
        "weekly",
        send,
        params={"day": date(2026, 1, 5), "blob": b"\xff"},
        queue="slow",
        priority=7,
        max_attempts=3,
    )

    assert saved == await templates.get("weekly")
    assert (saved.name, saved.type) == ("weekly", "send")
    assert json.loads(saved.params) == {"day": "2026-01-05", "blob": "_w=="}
    assert (saved.queue, saved.priority, saved.max_attempts) == ("slow", 7, 3)
    assert saved.created_at == saved.updated_at == clock.now()
    assert len(saved.id) == 36


async def test_all_of_them_come_by_name(templates, send):
    for name in ("b", "a", "c"):
        await templates.save(name, "send")

    assert [template.name for template in await templates.list()] == ["a", "b", "c"]


async def test_a_job_is_what_the_template_and_the_call_say(templates, send):
    saved = await templates.save(
        "weekly", send, params={"user_id": 1, "day": "2026-01-05"}, queue="slow", max_attempts=3
    )

    handle = await templates.enqueue("weekly", user_id=9, to=Address(street="x", number=1))

    job = await handle.read()
    assert json.loads(job.params) == {
        "user_id": 9,
        "day": "2026-01-05",
        "to": {"street": "x", "number": 1},
    }
    assert (job.type, job.queue, job.priority, job.max_attempts) == ("send", "slow", 2, 3)
    assert (job.template_id, job.template_at) == (saved.id, saved.updated_at)
    assert handle.created


async def test_what_json_says_otherwise_survives_the_template(templates, send):
    day, blob, tags = date(2026, 1, 5), b"\xff\x00", frozenset({"a"})
    await templates.save("weekly", send, params={"day": day, "blob": blob, "tags": tags})

    handle = await templates.enqueue("weekly", user_id=1)

    loaded = send.load((await handle.read()).params)
    assert (loaded["day"], loaded["blob"], loaded["tags"]) == (day, blob, tags)


async def test_options_of_the_call_go_over_the_template(templates, send, clock):
    params = {"user_id": 1, "day": "2026-01-05"}
    await templates.save("weekly", send, params=params, queue="slow", priority=7)
    wished = templates.options(
        "weekly", delay="5m", key="k", priority=1, queue=None, group_id="g", on_conflict="reject"
    )

    job = await (await wished.enqueue()).read()

    assert (job.priority, job.queue, job.group_id) == (1, "slow", "g")
    assert job.available_at == clock.now() + timedelta(minutes=5)
    with pytest.raises(DuplicateJob):
        await wished.enqueue()


async def test_an_edit_keeps_the_id_and_is_another_version(templates, send, clock):
    first = await templates.save("weekly", send, params={"user_id": 1, "day": "2026-01-05"})
    job = await (await templates.enqueue("weekly")).read()
    clock.set_back(timedelta(hours=1))

    second = await templates.save("weekly", send, params={"user_id": 2, "day": "2026-01-05"})
    other = await (await templates.enqueue("weekly")).read()

    assert (second.id, second.created_at) == (first.id, first.created_at)
    assert second.updated_at > first.updated_at
    assert (other.template_id, other.template_at) == (job.template_id, second.updated_at)
    assert json.loads(other.params)["user_id"] == 2


async def test_who_knows_an_older_version_cannot_write_over_a_newer(templates, send):
    first = await templates.save("weekly", send, priority=1)
    second = await templates.save("weekly", send, priority=2, expected=first.updated_at)

    with pytest.raises(TemplateChanged, match="template weekly was changed at"):
        await templates.save("weekly", send, priority=3, expected=first.updated_at)
    assert await templates.get("weekly") == second
    await templates.remove("weekly")
    with pytest.raises(TemplateChanged, match="template weekly was removed"):
        await templates.save("weekly", send, expected=second.updated_at)
    assert await templates.list() == []


async def test_of_two_edits_at_once_with_one_version_one_is_refused(templates, send, store):
    known = await templates.save("weekly", send)
    read, both = store.document, asyncio.Barrier(2)

    async def together(kind, key):
        found = await read(kind, key)
        if found.updated_at == known.updated_at:
            await both.wait()
        return found

    store.document = together
    reported = await asyncio.gather(
        *(templates.save("weekly", send, priority=n, expected=known.updated_at) for n in (1, 2)),
        return_exceptions=True,
    )

    assert sorted(type(each) for each in reported if isinstance(each, Exception)) == [
        TemplateChanged
    ]
    [saved] = [each for each in reported if isinstance(each, Template)]
    store.document = read
    assert await templates.get("weekly") == saved


async def test_edits_at_once_that_expect_nothing_are_all_written(templates, send):
    await asyncio.gather(*(templates.save("weekly", send, priority=n) for n in range(10)))

    assert len(await templates.list()) == 1


async def test_removing_changes_nothing_about_its_jobs(templates, send):
    saved = await templates.save("weekly", send, params={"user_id": 1, "day": "2026-01-05"})
    handle = await templates.enqueue("weekly")
    before = await handle.read()

    assert await templates.remove("weekly") == saved

    assert await handle.read() == before
    assert before.template_id == saved.id
    for verb in (templates.get, templates.remove, templates.enqueue):
        with pytest.raises(TemplateNotFound):
            await verb("weekly")


async def test_a_template_created_anew_is_another(templates, send):
    first = await templates.save("weekly", send)
    await templates.remove("weekly")

    assert (await templates.save("weekly", send)).id != first.id


async def test_an_unknown_template_names_those_near_it(templates, send):
    with pytest.raises(TemplateNotFound, match="there are none") as none:
        await templates.get("weekly")
    for name in ("weekly", "weekday", "other"):
        await templates.save(name, send)

    assert isinstance(none.value, LookupError)
    with pytest.raises(TemplateNotFound, match="near it: weekly, weekday"):
        await templates.enqueue("weakly")


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"usr": 1}, 'field "usr"'),
        ({"user_id": "x"}, 'field "user_id": Input should be a valid integer'),
        ({"to": {"street": "x", "number": 0}}, 'field "to.number"'),
        ({"to": {"street": "x"}, "day": "never"}, 'field "day"'),
        ({"day": object()}, 'field "day"'),
        ({1: 2}, "no mapping"),
        ([1], "no mapping"),
    ],
)
async def test_params_that_cannot_fit_are_refused_when_saved(templates, send, params, says):
    with pytest.raises(InvalidParams, match=says):
        await templates.save("weekly", send, params=params)
    assert await templates.list() == []


async def test_params_too_large_are_refused_when_saved(templates, send):
    whole = {"to": {"street": "x" * 261_700, "number": 1}}
    for street in ("x" * 262_080, "x" * 300_000):
        with pytest.raises(PayloadTooLarge):
            await templates.save("weekly", send, params={"to": {"street": street, "number": 1}})

    await templates.save("weekly", send, params=whole)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "two words"},
        {"name": ""},
        {"name": None},
        {"queue": "two words"},
        {"priority": 40_000},
        {"priority": 1.5},
        {"max_attempts": 0},
        {"job_type": 3},
        {"job_type": None},
    ],
)
async def test_settings_that_cannot_be_are_refused_when_saved(templates, send, wrong):
    with pytest.raises(InvalidArgument):
        await templates.save(**{"name": "weekly", "job_type": send, **wrong})
    assert await templates.list() == []


async def test_a_type_of_another_app_is_refused(templates, store):
    other = Outlast(store).job(name="other")(lambda: None)

    with pytest.raises(InvalidArgument, match="no job type of this app"):
        await templates.save("weekly", other)
    with pytest.raises(TypeNotFound):
        await templates.save("weekly", "other")


async def test_a_template_of_an_unknown_type_cannot_be_enqueued(templates, send, store):
    await templates.save("weekly", send)

    with pytest.raises(TypeNotFound, match="'send' is not registered"):
        await Outlast(store).templates.enqueue("weekly")


async def test_what_is_missing_is_told_when_enqueued(templates, send, hand):
    await templates.save("weekly", send, params={"user_id": 1})

    with pytest.raises(InvalidParams, match='field "day": Field required'):
        await templates.enqueue("weekly")
    with pytest.raises(InvalidParams, match='field "usr"'):
        await templates.enqueue("weekly", day="2026-01-05", usr=3)
    assert await hand.stored() == []


async def test_params_that_no_longer_fit_their_type_are_told_when_enqueued(app, templates, store):
    newer = Outlast(store)
    app.job(name="changing")(_old)
    newer.job(name="changing")(_new)
    await templates.save("weekly", "changing", params={"number": "three"})

    with pytest.raises(InvalidParams, match='field "number"'):
        await newer.templates.enqueue("weekly")


def _old(number: str) -> None: ...


def _new(number: int) -> None: ...


async def test_params_too_large_together_are_refused(templates, send):
    await templates.save("weekly", send, params={"tags": ["x" * 200_000], "user_id": 1})

    with pytest.raises(PayloadTooLarge):
        await templates.enqueue(
            "weekly", day="2026-01-05", to={"street": "y" * 90_000, "number": 1}
        )


async def test_a_parameter_may_be_called_name(app, templates):
    @app.job
    def greet(name: str) -> None: ...

    await templates.save("hello", greet)

    assert await params_of(await templates.enqueue("hello", name="you")) == {"name": "you"}


async def test_a_handler_class_can_have_templates(app, templates):
    class GreetHandler:
        @classmethod
        def payload_model(cls):
            return Address

        def handle(self, payload): ...

    await templates.save("hello", app.job(GreetHandler), params={"street": "x"})

    assert await params_of(await templates.enqueue("hello", number=2)) == {
        "street": "x",
        "number": 2,
    }
    with pytest.raises(InvalidParams, match='field "number"'):
        await templates.enqueue("hello", number=0)
    with pytest.raises(InvalidParams, match='field "number"'):
        await templates.save("other", "greet", params={"number": 0})


async def test_a_type_delivered_once_still_needs_its_slot(app, templates):
    @app.job(delivery="once")
    def report() -> None: ...

    await templates.save("daily", report)

    with pytest.raises(InvalidJob, match="slot"):
        await templates.enqueue("daily")
    slot = datetime(2026, 1, 5, tzinfo=UTC)
    job = await (await templates.options("daily", slot=slot).enqueue()).read()
    assert (job.slot_at, job.template_id) == (slot, (await templates.get("daily")).id)
    with pytest.raises(InvalidJob, match="max_attempts"):
        await templates.save("other", report, max_attempts=2)


async def test_unknown_options_are_refused(templates, send):
    await templates.save("weekly", send, params={"user_id": 1, "day": "2026-01-05"})

    with pytest.raises(TypeError):
        await templates.options("weekly", dealy="5m").enqueue()


def test_later_params_replace_earlier_ones_each_value_as_a_whole():
    own = '{"a":1,"b":1,"c":{"x":1}}'

    assert merged([own, '{"a":2}']) == '{"a":2,"b":1,"c":{"x":1}}'
    assert merged([own, '{"a":2,"b":3,"c":{"y":1}}']) == '{"a":2,"b":3,"c":{"y":1}}'
    assert merged([own, '{"a":null}']) == '{"a":null,"b":1,"c":{"x":1}}'
    assert merged(["{}", "{}"]) == "{}"
