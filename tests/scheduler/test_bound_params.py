"""Params of schedules and templates given as bound jobs, which type checkers check."""

import pytest

from outlast import InvalidArgument, InvalidParams, InvalidSchedule, Outlast
from outlast.core.ids import Ids
from outlast.testing.clock import FakeClock
from outlast.testing.model.store import ModelStore

GIVEN = {"coalesce": True, "misfire_grace": "5m"}


@pytest.fixture
async def app():
    clock = FakeClock()
    numbers = iter(range(1_000_000))
    async with Outlast(ModelStore(clock, Ids(clock.now, lambda _: next(numbers)))) as app:
        yield app


@pytest.fixture
def report(app):
    @app.job(queue="reports", priority=1, tags=["night"])
    def report(days: int, to: str = "all") -> None: ...

    return report


async def plan_of(app, name="nightly"):
    await app.sync_schedules()
    return (await app.schedules.get(name)).plan


async def test_a_schedule_takes_the_type_and_the_params_of_a_bound_job(app, report):
    app.schedule("nightly", "@daily", report.bind(7, to="ada"), **GIVEN)

    plan = await plan_of(app)

    assert (plan.making.type, plan.params) == ("report", '{"days":7,"to":"ada"}')
    assert (plan.making.queue, plan.making.priority) == ("reports", 1)


async def test_it_takes_its_queue_priority_attempts_and_labels_too(app, report):
    bound = report.options(queue="slow", priority=9, max_attempts=2, tags=["big"]).bind(days=7)
    app.schedule("nightly", "@daily", bound, **GIVEN)

    making = (await plan_of(app)).making

    assert (making.queue, making.priority, making.max_attempts) == ("slow", 9, 2)
    assert making.metadata is not None
    assert "big" in making.metadata


async def test_saving_and_editing_take_bound_jobs(app, report):
    await app.schedules.save("nightly", "@daily", report.bind(7), **GIVEN)
    edited = await app.schedules.edit("nightly", job_type=report.bind(days=1))

    assert edited.plan.params == '{"days":1}'


async def test_a_type_delivered_once_needs_no_slot_to_be_bound(app):
    @app.job(delivery="once")
    def brief(day: str) -> None: ...

    app.schedule("brief", "@daily", brief.bind(day="today"), **GIVEN)

    assert (await plan_of(app, "brief")).params == '{"day":"today"}'


@pytest.mark.parametrize(
    "options", [{"delay": "5m"}, {"key": "k"}, {"key": "k", "key_until": "end"}]
)
async def test_options_that_slots_decide_are_refused(app, report, options):
    bound = report.options(**options).bind(days=7)

    with pytest.raises(InvalidSchedule, match="its slots decide when a job is due"):
        await app.schedules.save("nightly", "@daily", bound, **GIVEN)


async def test_params_are_given_once(app, report):
    with pytest.raises(InvalidSchedule, match="params were given twice"):
        await app.schedules.save("n", "@daily", report.bind(7), params={"days": 1}, **GIVEN)
    with pytest.raises(InvalidArgument, match="params were given twice"):
        await app.templates.save("n", report.bind(7), params={"days": 1})


def test_wrong_params_are_refused_where_they_are_bound(report):
    with pytest.raises(InvalidParams, match='field "days"'):
        report.bind("seven")


async def test_a_template_takes_the_params_of_a_bound_job(app, report):
    saved = await app.templates.save("weekly", report.bind(7), priority=3)

    assert (saved.type, saved.params, saved.priority) == ("report", '{"days":7}', 3)
    job = await (await app.templates.enqueue("weekly", to="bob")).read()
    assert job.decoded_params == {"days": 7, "to": "bob"}
    with pytest.raises(InvalidArgument, match="has options; give those of the template"):
        await app.templates.save("weekly", report.options(priority=2).bind(7))


async def test_values_of_stored_jobs_and_runs_are_decoded_and_their_text_is_there(app, report):
    @app.job
    async def double(n: list[int]) -> list[int]:
        return n * 2

    handle = await double.enqueue([1])
    async with app.worker():
        await handle.result("2m")

    job, [run] = await handle.read(), await app.runs(handle.id)
    assert (job.decoded_params, job.params) == ({"n": [1]}, '{"n":[1]}')
    assert (run.decoded_result, run.result) == ([1, 1], "[1,1]")
