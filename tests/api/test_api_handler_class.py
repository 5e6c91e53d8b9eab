"""Handler classes: what they must have, and what may be enqueued."""

from datetime import date
from typing import Annotated, ClassVar

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    model_validator,
)

from outlast import InvalidJob, InvalidParams, InvalidType, PayloadTooLarge, Run


class Summary(BaseModel):
    user_id: int
    date: date
    note: str | None = None


class Base:
    @classmethod
    def payload_model(cls):
        return Summary


class DailySummaryHandler(Base):
    async def handle(self, payload: Summary) -> None: ...


DAY = date(2026, 1, 5)
STORED = '{"user_id":3,"date":"2026-01-05","note":null}'


@pytest.fixture
def daily(app):
    return app.job(DailySummaryHandler)


async def params_of(handle):
    return (await handle.read()).params


async def test_it_takes_the_model_or_its_fields(daily):
    by_fields = await daily.enqueue(user_id=3, date=DAY)
    by_model = await daily.enqueue(Summary(user_id=3, date=DAY))
    by_name = await daily.enqueue(payload=Summary(user_id=3, date=DAY))
    lax = await daily.enqueue(user_id="3", date="2026-01-05")

    for handle in (by_fields, by_model, by_name, lax):
        assert await params_of(handle) == STORED
    assert daily.load(STORED) == {"payload": Summary(user_id=3, date=DAY)}


async def test_options_and_many_take_the_same(app, daily):
    await daily.options(key="k").enqueue(user_id=3, date=DAY)

    handles = await app.enqueue_many([daily.bind(Summary(user_id=n, date=DAY)) for n in range(3)])

    assert len(handles) == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DailySummaryHandler", "daily_summary"),
        ("UserSync", "user_sync"),
        ("HTTPSyncHandler", "http_sync"),
        ("Sync2FAHandler", "sync2_fa"),
        ("Handler", "handler"),
        ("lower", "lower"),
    ],
)
def test_its_name_is_the_class_in_small_letters_without_handler(app, name, expected):
    assert app.job(type(name, (DailySummaryHandler,), {})).name == expected


def test_a_name_may_be_given(app):
    assert app.job(name="other")(DailySummaryHandler).name == "other"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, 'field "user_id": Field required'),
        ({"user_id": "x", "date": DAY}, 'field "user_id": Input should be a valid integer'),
        ({"user_id": 1, "date": DAY, "usr": 2}, 'field "usr": there is none of that name'),
        ({"user_id": 1, "date": DAY, "note": "\0"}, "NUL"),
        ({"payload": 3}, "is a int; give a Summary, or its fields by name"),
        ({"payload": {"user_id": 3}}, "give a Summary"),
    ],
)
async def test_a_payload_that_does_not_fit_is_refused_by_field(daily, hand, given, says):
    with pytest.raises(InvalidParams, match='payload of "daily_summary"') as refused:
        await daily.enqueue(**given)

    assert says in str(refused.value)
    assert await hand.stored() == []


async def test_a_secret_value_stays_out_of_the_error(daily):
    with pytest.raises(InvalidParams) as refused:
        await daily.enqueue(user_id="hunter2", date=DAY)

    assert "hunter2" not in str(refused.value)


async def test_something_else_than_the_model_is_refused(daily):
    class Other(BaseModel):
        user_id: int = 1

    for wrong in (3, None, Other(), {"user_id": 3, "date": DAY}):
        with pytest.raises(InvalidParams, match="give a Summary"):
            await daily.enqueue(wrong)
    with pytest.raises(InvalidParams, match="takes 1 arguments without a name, not 2"):
        await daily.enqueue(1, 2)
    with pytest.raises(InvalidParams, match="is a Summary and more; give a Summary"):
        await daily.enqueue(Summary(user_id=3, date=DAY), user_id=4)


async def test_a_model_changed_behind_pydantics_back_is_refused(daily):
    payload = Summary(user_id=3, date=DAY)
    payload.user_id = "three"  # type: ignore[assignment]
    built = Summary.model_construct(user_id=3)

    for wrong in (payload, built):
        with pytest.raises(InvalidParams):
            await daily.enqueue(wrong)


async def test_a_payload_too_large_is_refused(daily):
    with pytest.raises(PayloadTooLarge):
        await daily.enqueue(user_id=3, date=DAY, note="x" * 300_000)
    with pytest.raises(PayloadTooLarge):
        await daily.enqueue(Summary(user_id=3, date=DAY, note="x" * 300_000))


async def test_aliases_are_written_by_name_and_read_by_either(app):
    class Aliased(BaseModel):
        user_id: int = Field(alias="userId")

    class AliasedHandler(Base):
        @classmethod
        def payload_model(cls):
            return Aliased

        def handle(self, payload): ...

    aliased = app.job(AliasedHandler)

    assert await params_of(await aliased.enqueue(userId=3)) == '{"user_id":3}'
    assert await params_of(await aliased.enqueue(user_id=3)) == '{"user_id":3}'
    assert aliased.load('{"userId":3}')["payload"].user_id == 3
    with pytest.raises(InvalidParams, match="there is none of that name"):
        await aliased.enqueue(userid=3)


async def test_every_kind_of_alias_is_a_name_also_in_a_template(app):
    class Aliased(BaseModel):
        user_id: int = Field(alias="userId")
        total: int = Field(1, validation_alias=AliasChoices("sum", "amount", AliasPath("box", 0)))

    class AliasedHandler(Base):
        @classmethod
        def payload_model(cls):
            return Aliased

        def handle(self, payload): ...

    aliased = app.job(AliasedHandler)

    for given in ({"amount": 7}, {"sum": 7}, {"total": 7}, {"box": [7]}):
        stored = await params_of(await aliased.enqueue(userId=3, **given))
        assert stored == '{"user_id":3,"total":7}'
    with pytest.raises(InvalidParams, match="there is none of that name"):
        await aliased.enqueue(userId=3, totals=7)
    await app.templates.save("weekly", aliased, params={"userId": 3})
    made = await app.templates.enqueue("weekly", amount=7)
    assert await params_of(made) == '{"user_id":3,"total":7}'


async def test_a_model_that_allows_more_gets_more(app):
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    class OpenHandler(Base):
        @classmethod
        def payload_model(cls):
            return Open

        def handle(self, payload): ...

    assert await params_of(await app.job(OpenHandler).enqueue(anything=[1])) == '{"anything":[1]}'


async def test_what_the_model_checks_as_a_whole_is_checked(app):
    class Range(BaseModel):
        low: Annotated[int, Field(ge=0)]
        high: int

        @model_validator(mode="after")
        def ordered(self):
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    class RangeHandler(Base):
        @classmethod
        def payload_model(cls):
            return Range

        def handle(self, payload): ...

    ranges = app.job(RangeHandler)

    await ranges.enqueue(low=1, high=2)
    with pytest.raises(InvalidParams, match="low is above high"):
        await ranges.enqueue(low=2, high=1)
    with pytest.raises(InvalidParams, match='field "low"'):
        await ranges.enqueue(low=-1, high=1)


class WithoutModel:
    def handle(self, payload): ...


class PlainModel(WithoutModel):
    def payload_model(self):
        return Summary


class StaticModel(WithoutModel):
    @staticmethod
    def payload_model():
        return Summary


class NoModel(WithoutModel):
    @classmethod
    def payload_model(cls):
        return dict


class ModelInstance(WithoutModel):
    @classmethod
    def payload_model(cls):
        return Summary(user_id=3, date=DAY)


class BrokenModel(WithoutModel):
    @classmethod
    def payload_model(cls):
        raise KeyError("nothing")


class ListModel(WithoutModel):
    @classmethod
    def payload_model(cls):
        return RootModel[list[int]]


class WithoutHandle(Base): ...


class StaticHandle(Base):
    @staticmethod
    def handle(payload): ...


class NoMethod(Base):
    handle: ClassVar[int] = 3


class NoPayload(Base):
    def handle(self): ...


class TwoPayloads(Base):
    def handle(self, payload, other): ...


class OnlyRun(Base):
    def handle(self, run: Run): ...


class OtherPayload(Base):
    def handle(self, payload: int): ...


class Yields(Base):
    def handle(self, payload):
        yield 1


class NeedsArguments(DailySummaryHandler):
    def __init__(self, database): ...


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (WithoutModel, "has no payload_model"),
        (PlainModel, "no classmethod"),
        (StaticModel, "no classmethod"),
        (NoModel, "gives <class 'dict'>"),
        (ModelInstance, "give a BaseModel"),
        (BrokenModel, "could not give its payload_model"),
        (ListModel, "RootModel"),
        (WithoutHandle, "has no handle"),
        (StaticHandle, "no method"),
        (NoMethod, "no method"),
        (NoPayload, "does not take one payload"),
        (TwoPayloads, "does not take one payload"),
        (OnlyRun, "does not take one payload"),
        (OtherPayload, "handles a int, but its payload_model\\(\\) is Summary"),
        (NeedsArguments, 'needs "database" to be made'),
    ],
)
def test_a_class_that_is_no_handler_is_refused_by_name(app, wrong, says):
    with pytest.raises(InvalidType, match=says) as refused:
        app.job(wrong)

    assert f"handler class {wrong.__qualname__} " in str(refused.value)
    assert app.registry.names() == []


def test_a_handle_that_yields_is_refused(app):
    with pytest.raises(InvalidType, match="yields"):
        app.job(Yields)


def test_its_executor_is_what_handle_says(app):
    class PlainHandler(Base):
        def handle(self, run: Run, payload: Summary) -> int:
            return 1

    assert app.job(DailySummaryHandler).executor == "async"
    assert app.job(PlainHandler).executor == "thread"
    assert app.job(name="own", executor="process")(DailySummaryHandler).executor == "process"
    assert app.job(name="run", executor="command")(type("C", (NoHint,), {})).executor == "command"
    with pytest.raises(InvalidType, match="contradicts"):
        app.job(name="wrong", executor="thread")(DailySummaryHandler)
    with pytest.raises(InvalidType, match="could not find"):
        app.job(name="inner", executor="process")(PlainHandler)


class NoHint(Base):
    def handle(self, payload): ...


def test_called_it_makes_an_instance_as_if_it_were_not_decorated(daily):
    assert isinstance(daily(), DailySummaryHandler)
    assert daily.__wrapped__ is DailySummaryHandler
    assert daily.__name__ == "DailySummaryHandler"


async def test_a_class_delivered_once_needs_its_slot(app):
    once = app.job(delivery="once")(DailySummaryHandler)

    with pytest.raises(InvalidJob, match="slot"):
        await once.enqueue(user_id=3, date=DAY)
