"""Schedules in a test: time passes, slots fire as in production, and their jobs run."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from outlast import Outlast, Run, SlotOutcome, State
from outlast.testing import Harness
from outlast.testing.clock import START

NIGHT = datetime(2026, 1, 6, 2, tzinfo=UTC)
DAY = timedelta(days=1)


def new_app() -> Outlast:
    app = Outlast("sqlite:////nowhere/that/exists/jobs.db")

    @app.job
    async def report(run: Run) -> str:
        return f"{run.slot_at:%F %H:%M}"

    @app.job
    async def other(run: Run) -> None: ...

    app.schedule("nightly", "0 2 * * *", report, coalesce=True, misfire_grace="5m")
    return app


@pytest.fixture
def outlast_app() -> Outlast:
    return new_app()


async def test_slots_that_came_due_run_each_at_its_own_time(outlast: Harness) -> None:
    seen: list[datetime] = []

    @outlast.app.job
    async def look() -> None:
        seen.append(outlast.now)

    await outlast.app.schedules.save("looks", "0 3 * * *", look, coalesce=True, misfire_grace="1s")
    early = await outlast.drain()
    outlast.advance("2d")
    drained = await outlast.drain()
    again = await outlast.drain()

    assert (len(early), len(again)) == (0, 0)
    assert [ran.type for ran in drained] == ["report", "look"] * 2
    assert [ran.result for ran in drained[::2]] == ["2026-01-06 02:00", "2026-01-07 02:00"]
    assert seen == [NIGHT + timedelta(hours=1), NIGHT + timedelta(hours=25)]
    assert outlast.now == START + 2 * DAY
    history = await outlast.app.schedules.history("nightly")
    assert [slot.outcome for slot in history] == [SlotOutcome.RAN] * 2


async def test_jobs_due_between_two_slots_run_between_them(outlast: Harness) -> None:
    other = outlast.app.registry.get("other")
    await other.options(delay="30h").enqueue()

    outlast.advance("3d")
    drained = await outlast.drain()

    assert [ran.type for ran in drained] == ["report", "other", "report", "report"]


async def test_draining_until_idle_fires_the_slots_on_its_way_and_does_end(
    outlast: Harness,
) -> None:
    other = outlast.app.registry.get("other")
    await other.options(delay="30h").enqueue()

    drained = await outlast.drain_until_idle(within="10d")

    assert [ran.type for ran in drained] == ["report", "other"]
    assert outlast.now == START + timedelta(hours=30)


async def test_schedules_can_be_left_out_and_fire_later(outlast: Harness) -> None:
    outlast.advance("1d")

    without = await outlast.drain(schedules=False)
    later = await outlast.drain()

    assert (len(without), len(later)) == (0, 1)


async def test_a_limit_holds_for_the_jobs_of_slots_too(outlast: Harness) -> None:
    outlast.advance("3d")

    first = await outlast.drain(limit=1)
    rest = await outlast.drain()

    assert [ran.result for ran in [*first, *rest]] == [
        "2026-01-06 02:00", "2026-01-07 02:00", "2026-01-08 02:00",
    ]  # fmt: skip
    assert outlast.now == START + 3 * DAY


async def test_too_many_slots_are_refused_at_once_with_a_remedy(outlast: Harness) -> None:
    report = outlast.app.registry.get("report")
    await outlast.app.schedules.save(
        "often", job_type=report, every="1m", coalesce=True, misfire_grace="1m"
    )
    outlast.advance("14d")

    with pytest.raises(AssertionError, match=r"1,000 slots .* of schedule often; .*False"):
        await outlast.drain()

    assert outlast.jobs() == []
    assert outlast.now == START + 14 * DAY


async def test_the_clock_is_right_again_after_a_handler_that_raised(outlast: Harness) -> None:
    @outlast.app.job
    async def broken() -> None:
        raise KeyError(1)

    await outlast.app.schedules.save(
        "fails", "0 1 * * *", broken, coalesce=True, misfire_grace="1s"
    )
    outlast.advance("1d")

    with pytest.raises(KeyError):
        await outlast.drain(raising=True)

    assert outlast.now == START + DAY


def test_a_plain_function_fires_schedules_too(outlast: Harness) -> None:
    outlast.advance("1d")

    assert len(outlast.complete(outlast.drain())) == 1


class TestAnAppWhoseDeclarationIsInvalid:
    @pytest.fixture
    def outlast_app(self) -> Outlast:
        app = new_app()
        app.schedule("early", "0 1 * * *", template="later", coalesce=True, misfire_grace="5m")
        return app

    async def test_it_is_logged_as_by_a_worker_and_written_once_it_is_valid(
        self, outlast: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.ERROR):
            await outlast.drain()
        await outlast.app.templates.save("later", outlast.app.registry.get("other"))
        await outlast.drain()
        outlast.advance("1d")

        drained = await outlast.drain()

        assert "declared schedules are invalid" in caplog.text
        assert [ran.type for ran in drained] == ["other", "report"]
        assert {ran.job.state for ran in drained} == {State.SUCCEEDED}
