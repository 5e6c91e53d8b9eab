"""S2's words for our jobs: six for a status, and nothing that a reader of S2 would not know."""

import re
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from companion import words
from companion.companion import Companion, Rules
from companion.show import items
from companion.words import Status, item, moment, status
from outlast import Job, State, TransitionRefused
from outlast.core import event as ev
from outlast.core.decide import TABLE, decide
from outlast.core.delivery import Delivery
from outlast.core.ids import JobId
from outlast.core.state import Loss, RunStatus
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import LEASE

from .app_helpers import drain
from .companions import MONDAY, TUESDAY

README = (Path(words.__file__).parent / "README.md").read_text()
WORD = {
    State.NEW: "pending",
    State.BLOCKED: "pending",
    State.SCHEDULED: "pending",
    State.QUEUED: "pending",
    State.RUNNING: "in_progress",
    State.RETRY_WAIT: "failed",
    State.SUCCEEDED: "completed",
    State.SKIPPED: "completed",
    State.DEAD_LETTER: "dead_letter",
    State.CANCELLED: "cancelled",
}
EVENTS: list[ev.Event] = [
    ev.Succeeded(),
    ev.Failed("it broke"),
    ev.Failed("it broke", timedelta(seconds=1)),
    ev.Failed("it broke", permanent=True),
    *(ev.Lost(reason) for reason in Loss),
    ev.Lost(Loss.OWNER_DEAD, delay=timedelta(seconds=1)),
    ev.Released("drain"),
    ev.Snoozed(timedelta(seconds=1)),
    ev.Unfit("no field", "worker-1", timedelta(hours=1)),
    ev.Unfit("no field", "worker-1", timedelta(0)),
    ev.Skipped("empty"),
    ev.Stopped("enough"),
    ev.CancelRequested(),
    ev.Abandoned(next(iter(ev.Abandonment))),
    ev.FellDue(),
    ev.Unblocked(),
    ev.Misfired(),
    ev.GivenUp("enough"),
    *(ev.DetachedJobFound(each) for each in RunStatus if each is not RunStatus.RUNNING),
    ev.DetachedJobFound(None),
    ev.SuccessorMissing("startup_recovery"),
    ev.GroupStopped(skip=True),
    ev.GroupStopped(skip=False),
]


@pytest.fixture
async def companion(tmp_path: Path, store: SqliteStore) -> AsyncIterator[Companion]:
    made = Companion(tmp_path, store, rules=Rules(poll_seconds=0.02, max_attempts=2))
    async with made.app:
        yield made


@pytest.fixture
async def job(companion: Companion) -> Job:
    return await (await companion.schedule_sync("ada")).read()


@pytest.mark.req("S2-1.k")
async def test_six_jobs_show_the_six_words(
    companion: Companion, store: SqliteStore, clock: FakeClock
) -> None:
    cancelled = await companion.schedule_summary("bob", MONDAY)
    await cancelled.cancel()
    await companion.schedule_sync("ada")
    await companion.schedule_sync("zoe")
    await drain(companion.app)
    clock.advance("60s")
    await drain(companion.app)
    await companion.schedule_summary("zoe", MONDAY)
    await drain(companion.app)
    await companion.schedule_summary("ada", MONDAY)
    await store.claim(
        companion.app.worker().holder,
        queue="default",
        types=["daily_summary"],
        limit=1,
        lease=LEASE,
    )
    await companion.schedule_summary("ada", TUESDAY)

    found = {each.status: each for each in await items(companion)}

    assert {*found} == {*Status}
    assert [str(word) for word in Status] == [
        "pending",
        "in_progress",
        "completed",
        "failed",
        "dead_letter",
        "cancelled",
    ]
    assert found[Status.DEAD_LETTER].attempts == 2
    assert "user zoe is not in the directory" in str(found[Status.DEAD_LETTER].last_error)
    locked = {word: each.locked_by for word, each in found.items() if each.locked_by}
    assert locked == {Status.IN_PROGRESS: companion.app.worker().holder.instance_id}


@pytest.mark.req("S2-1.k")
@pytest.mark.parametrize("state", State)
def test_every_state_has_one_of_the_six_words_or_is_refused(job: Job, state: State) -> None:
    here = replace(job, state=state, token=1, failures=1)

    if state in WORD:
        assert status(here) == WORD[state]
        assert status(here) in set(Status)
    else:
        with pytest.raises(ValueError, match="failed and was closed"):
            status(here)


@pytest.mark.req("S2-1.k")
def test_only_what_no_leased_job_can_be_has_no_word(job: Job) -> None:
    reachable = _reachable(job, {State.BLOCKED, State.SCHEDULED, State.QUEUED})

    assert {type(each) for each in EVENTS} | {ev.Edited, ev.Moved} == {kind for _, kind in TABLE}
    assert reachable == WORD.keys() - {State.NEW}


def _reachable(job: Job, states: set[State]) -> set[State]:
    """Every state that the transition table leads to from these, under `lease`."""
    found = states | {State.RUNNING}
    for state in states | {State.RUNNING}:
        for event in EVENTS:
            try:
                here = replace(job, state=state, token=1)
                found.add(decide(here, event, new_id=lambda: JobId("job-3")).move.to)
            except TransitionRefused:
                continue
    return found if found == states else _reachable(job, found)


def test_what_was_only_put_off_has_not_failed(job: Job) -> None:
    assert status(replace(job, state=State.RETRY_WAIT, failures=0)) == "pending"


def test_what_is_skipped_without_a_run_will_not_run(job: Job) -> None:
    assert status(replace(job, state=State.SKIPPED, token=0)) == "cancelled"


@pytest.mark.parametrize("delivery", [each for each in Delivery if each is not Delivery.LEASE])
def test_a_job_that_is_not_leased_is_none_of_s2(job: Job, delivery: Delivery) -> None:
    with pytest.raises(ValueError, match="S2 has words for lease alone"):
        item(replace(job, delivery=delivery))


@pytest.mark.req("S2-1.q")
async def test_completed_at_is_set_by_completion(companion: Companion, clock: FakeClock) -> None:
    await companion.schedule_sync("ada")
    [before] = await items(companion)
    clock.advance("7s")
    await drain(companion.app)
    [after] = await items(companion)

    assert (before.status, before.completed_at) == ("pending", None)
    assert (after.status, after.completed_at) == ("completed", "2026-01-05T09:00:07.000000Z")


@pytest.mark.req("S2-1.q")
@pytest.mark.parametrize("state", [state for state, word in WORD.items() if word != "completed"])
def test_in_any_other_state_there_is_no_completed_at(job: Job, state: State) -> None:
    here = replace(job, state=state, token=1, failures=1, finished_at=START)

    assert item(here).completed_at is None


@pytest.mark.req("S2-2.a")
async def test_due_now_and_due_tomorrow_are_pending_and_only_the_first_is_claimed(
    companion: Companion,
) -> None:
    await companion.schedule_sync("ada")
    await drain(companion.app)
    now = await companion.schedule_summary("ada", MONDAY)
    tomorrow = await companion.schedule_summary("ada", TUESDAY, at=START + timedelta(days=1))
    shown = {each.SK.rpartition("#")[2]: each.status for each in await items(companion)}
    await drain(companion.app)

    assert (shown[now.id], shown[tomorrow.id]) == ("pending", "pending")
    assert (await now.read()).state is State.SUCCEEDED
    left = await tomorrow.read()
    assert (status(left), left.token) == ("pending", 0)


def test_an_item_has_s2s_fields_in_their_order(job: Job) -> None:
    [table] = re.findall(r"^\| item \|.*?\n\n", README, re.MULTILINE | re.DOTALL)
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)

    assert [each.name for each in fields(words.Item)] == [
        name for name in named if name != "lock_expires_at"
    ]
    assert item(job).payload == {"user_id": "ada"}


def test_times_are_utc_of_one_width_and_sort_as_they_pass() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    moments = [START, START + timedelta(microseconds=1), START + timedelta(seconds=1)]

    reported = [moment(datetime.fromtimestamp(at.timestamp(), east)) for at in moments]

    assert reported == sorted(reported) == [moment(at) for at in moments]
    assert {len(each) for each in reported} == {27}


def test_the_readme_explains_every_word() -> None:
    for word in (*Status, *(str(state) for state in WORD if state is not State.NEW)):
        assert f"`{word}`" in README, f"the README says nothing of {word}"
