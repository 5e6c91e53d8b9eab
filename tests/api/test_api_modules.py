"""Apps of many modules: declared without the app, included once, clashes named."""

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from outlast import (
    ConfigurationError,
    InvalidArgument,
    InvalidSchedule,
    InvalidType,
    JobModule,
    Outlast,
    Run,
)

PARCELS = """
from outlast import JobModule

jobs = JobModule("parcels")

@jobs.job
def ship(): ...
"""


@pytest.fixture
def billing():
    return JobModule("billing")


@pytest.fixture
def bill(billing):
    @billing.job(queue="bills")
    async def bill(number: int) -> int:
        return number

    return bill


async def test_included_types_are_used_as_those_of_the_app(app, billing, bill):
    app.include(billing)

    handle = await bill.enqueue(number=3)

    assert app.registry.get("bill") is bill
    assert (await handle.read()).queue == "bills"
    [other] = await app.enqueue_many([bill.bind(4)])
    group = await app.groups.start([bill.options(priority=2).bind(5)])
    assert (await (await app.enqueue("bill", {"number": 6})).read()).type == "bill"
    assert (await other.read()).params == '{"number":4}'
    assert [job.priority for job in await group.jobs()] == [2]


async def test_options_and_bound_jobs_made_before_the_include_work_after_it(app, billing, bill):
    urgent, bound = bill.options(priority=9, queue="other"), bill.bind(1)
    app.include(billing)

    assert (await (await urgent.enqueue(2)).read()).priority == 9
    [handle] = await app.enqueue_many([bound])
    assert handle.created


async def test_a_type_whose_module_is_in_no_app_says_what_to_do(billing, bill):
    with pytest.raises(ConfigurationError, match=r"job module billing .*app.include") as refused:
        await bill.enqueue(1)
    assert __name__ in str(refused.value)


async def test_what_a_module_declares_after_the_include_is_the_apps_at_once(app, billing):
    app.include(billing)

    @billing.job
    def late() -> None: ...

    billing.queue("late", concurrency=2)
    billing.schedule("late", "@daily", late, coalesce=True, misfire_grace="5m")

    assert app.registry.get("late") is late
    assert (await (await late.enqueue()).read()).type == "late"
    await app.sync_queues()
    assert (await app.queues.get("late")).concurrency == 2
    assert app.schedules.declared_names == {"late"}


async def test_schedules_and_queues_of_a_module_are_written_as_those_of_the_app(app, billing, bill):
    billing.queue("bills", concurrency=1, ordering="position")
    billing.schedule("nightly", "0 2 * * *", bill.bind(7), coalesce=True, misfire_grace="5m")
    app.include(billing)

    await app.sync_queues()
    await app.sync_schedules()

    assert (await app.queues.get("bills")).ordering == "position"
    plan = (await app.schedules.get("nightly")).plan
    assert (plan.making.type, plan.params) == ("bill", '{"number":7}')


def clash_of_types(app, billing):
    @app.job(name="bill")
    def mine() -> None: ...

    billing.job(name="fine")(lambda: None)  # would be included, were it not for the other
    return InvalidType, f"{__name__}.clash_of_types.<locals>.mine"


def clash_of_schedules(app, billing):
    report = app.job(name="report")(lambda: None)
    app.schedule("nightly", "@daily", report, coalesce=True, misfire_grace="5m")
    billing.schedule("nightly", "@daily", report, coalesce=True, misfire_grace="5m")
    return InvalidSchedule, "keep or rename one"


def clash_of_queues(app, billing):
    app.queue("mail", concurrency=1)
    billing.queue("mail", concurrency=2)
    return InvalidArgument, "keep or rename one"


@pytest.mark.parametrize("clash", [clash_of_types, clash_of_schedules, clash_of_queues])
async def test_a_clash_names_both_places_and_includes_nothing(app, billing, bill, clash):
    kind, words = clash(app, billing)
    before = app.registry.names(), app.schedules.declared_names

    with pytest.raises(kind) as refused:
        app.include(billing)

    assert words in str(refused.value)
    assert str(refused.value).count(__name__) >= 2, "both places are named"
    assert (app.registry.names(), app.schedules.declared_names) == before
    with pytest.raises(ConfigurationError):
        await bill.enqueue(1)


def test_a_module_is_included_once_and_in_one_app(app, billing, store):
    app.include(billing)

    for other in (app, Outlast(store, name="other")):
        with pytest.raises(InvalidArgument, match=r"is included twice, at .*, line \d+ and at"):
            other.include(billing)


def test_a_python_module_is_included_by_the_job_modules_it_creates(app, monkeypatch):
    shared = JobModule("shared")
    parcel = ModuleType("parcels")
    monkeypatch.setitem(sys.modules, "parcels", parcel)
    parcel.shared = shared  # imported there, created here
    code = (
        "from outlast import JobModule\njobs = JobModule('parcels')\n@jobs.job\ndef ship(): ...\n"
    )
    exec(code, vars(parcel))  # noqa: S102 - a module made for the test

    app.include(parcel)

    assert app.registry.names() == ["ship"]
    assert shared.included_at is None


@pytest.mark.parametrize("wrong", ["billing", 3, None, pytest])
def test_anything_else_is_refused_with_what_to_write(app, wrong):
    with pytest.raises(InvalidArgument, match="JobModule"):
        app.include(wrong)


@pytest.mark.parametrize("name", ["", "two words", 3])
def test_a_module_has_a_plain_name(name):
    with pytest.raises(InvalidArgument, match="the name of a job module"):
        JobModule(name)


async def test_middleware_of_a_module_runs_inside_that_of_the_app_and_around_its_own_alone(
    outlast, billing
):
    app, order = outlast.app, []

    def layer(name):
        def around(run: Run) -> Iterator[None]:
            order.append(f"{name}>{run.type}")
            yield

        return around

    @billing.job
    def bill() -> None: ...

    @app.job
    def other() -> None: ...

    billing.around(layer("module"))
    app.include(billing)
    app.around(layer("app"))  # registered later, and outermost all the same

    await bill.enqueue()
    await other.enqueue()
    await outlast.drain()

    assert sorted(order) == ["app>bill", "app>other", "module>bill"]
    assert order.index("app>bill") < order.index("module>bill")
