"""S2: its items in a real DynamoDB table, looked at by somebody who knows S2 alone."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from companion.companion import Companion
from outlast import State
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import HOUR, SECOND, TICK, claim_order

from .app_helpers import drain
from .companions import MONDAY, TUESDAY
from .dynamo import friend, kept, outsider, table
from .tables import FIXED, UUID, Outsider, text_of

__all__ = ["friend", "kept", "outsider", "table"]

pytestmark = pytest.mark.slow

MINUTE = timedelta(minutes=1)


@pytest.mark.req("S2-1.a", "S2-1.f", "S2-1.g")
async def test_every_job_has_the_key_of_s2_in_every_state(
    friend: Companion, outsider: Outsider
) -> None:
    completed = await friend.schedule_sync("ada")
    failed = await friend.schedule_sync("zoe")
    await drain(friend.app)
    later = await friend.schedule_summary("ada", MONDAY, at=START + HOUR)
    cancelled = await friend.schedule_summary("bob", MONDAY)
    await friend.app.cancel(cancelled.id)
    pending = await friend.schedule_sync("bob")

    items = {item["SK"].rpartition("#")[2]: item for item in outsider.jobs()}

    assert {job_id: item["status"] for job_id, item in items.items()} == {
        completed.id: "completed",
        failed.id: "failed",
        later.id: "pending",
        cancelled.id: "cancelled",
        pending.id: "pending",
    }
    for job_id, item in items.items():
        assert item["PK"] == "job"
        assert re.fullmatch(f"scheduled#{FIXED}#{UUID}", item["SK"])
        assert item["SK"].endswith(f"#{job_id}")


@pytest.mark.req("S2-1.c")
async def test_scheduled_for_is_the_time_of_the_key_after_every_retry(
    friend: Companion, outsider: Outsider, clock: FakeClock
) -> None:
    handle = await friend.schedule_sync("zoe")  # whom the directory does not know
    due = [outsider.job(handle.id)["scheduled_for"]]
    for delay in (1, 2, 4, 8):
        await drain(friend.app)
        item = outsider.job(handle.id)
        due.append(item["scheduled_for"])

        assert item["SK"] == f"scheduled#{item['scheduled_for']}#{handle.id}"
        assert item["scheduled_for"] == text_of(clock.now() + delay * MINUTE)
        assert (item["status"], "user zoe is not in the directory" in item["last_error"]) == (
            "failed",
            True,
        )
        clock.advance(delay * MINUTE)
    await drain(friend.app)

    item = outsider.job(handle.id)
    assert item["status"] == "dead_letter"
    assert item["SK"] == f"scheduled#{item['scheduled_for']}#{handle.id}"
    assert len(set(due)) == 5


@pytest.mark.req("S2-1.c", "S2-1.t")
async def test_a_job_that_somebody_put_off_moves_key_and_pointer_with_it(
    friend: Companion, outsider: Outsider
) -> None:
    handle = await friend.schedule_summary("ada", MONDAY, at=START + HOUR)

    await friend.app.edit(handle.id, at=START + 2 * HOUR)

    item = outsider.job(handle.id)
    record = outsider.get("scheduled-job#summary#ada", "2026-01-05")
    assert item["scheduled_for"] == item["SK"].split("#")[1] == text_of(START + 2 * HOUR)
    assert record is not None
    assert record["job_sk"] == item["SK"]


@pytest.mark.req("S2-1.d")
async def test_order_by_key_and_life_by_scheduled_for_are_one_time(
    friend: Companion, kept: KeyValueStore, outsider: Outsider, clock: FakeClock
) -> None:
    hours = {"ada": 3, "bob": 1, "eve": 2}
    for user, hour in hours.items():
        await friend.schedule_summary(user, MONDAY, at=START + hour * HOUR)
    clock.advance(2 * HOUR)

    found = outsider.due(clock.now())
    taken = await claim_order(kept, types=["daily_summary"])

    assert [item["SK"].rpartition("#")[2] for item in found] == taken
    assert [item["scheduled_for"] for item in found] == [
        text_of(START + HOUR),
        text_of(START + 2 * HOUR),
    ]


@pytest.mark.req("S2-1.e")
async def test_times_are_utc_of_one_width_and_their_text_sorts_as_they_do(
    friend: Companion, outsider: Outsider
) -> None:
    east, west = timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=8))
    moments = [
        datetime(2026, 1, 5, 15, 45, tzinfo=east),  # 10:00
        datetime(2026, 1, 5, 2, 0, 0, 1, tzinfo=west),  # 10:00:00.000001
        datetime(2026, 1, 5, 10, 0, 0, 100_000, tzinfo=UTC),
        datetime(2026, 1, 5, 16, 0, 0, 99_999, tzinfo=east),  # 10:15:00.099999
        datetime(2026, 1, 5, 23, 59, 59, 999_999, tzinfo=west),  # the next day
        datetime(2027, 1, 1, tzinfo=UTC),
    ]
    handles = {}
    for n in (3, 0, 5, 1, 4, 2):
        handle = await friend.schedule_summary(f"u{n}", MONDAY, at=moments[n])
        handles[handle.id] = moments[n]

    items = outsider.jobs()

    assert [handles[item["SK"].rpartition("#")[2]] for item in items] == moments
    for item, moment in zip(items, moments, strict=True):
        key_time = item["SK"].split("#")[1]
        assert re.fullmatch(FIXED, key_time)
        assert key_time == item["scheduled_for"] == text_of(moment.astimezone(UTC))
        assert datetime.fromisoformat(key_time) == moment


@pytest.mark.req("S2-1.r")
async def test_one_range_finds_all_that_is_due_the_one_due_now_included(
    friend: Companion, outsider: Outsider, clock: FakeClock
) -> None:
    now = clock.now() + HOUR
    at = {"late": now + TICK, "due": now, "early": now - TICK, "past": now - SECOND}
    ids = {
        name: (await friend.schedule_summary(name, MONDAY, at=moment)).id
        for name, moment in at.items()
    }

    found = [item["SK"].rpartition("#")[2] for item in outsider.due(now)]

    assert found == [ids["past"], ids["early"], ids["due"]]


@pytest.mark.req("S2-1.z")
async def test_keys_alone_lead_to_every_job_and_every_dedupe_record(
    friend: Companion, outsider: Outsider, table: str
) -> None:
    sync = await friend.schedule_sync("ada")
    await drain(friend.app)
    days = {day: await friend.schedule_summary("ada", day) for day in (MONDAY, TUESDAY)}
    await drain(friend.app)

    described = outsider.table.meta.client.describe_table(TableName=table)["Table"]
    assert [(key["AttributeName"], key["KeyType"]) for key in described["KeySchema"]] == [
        ("PK", "HASH"),
        ("SK", "RANGE"),
    ]
    assert "GlobalSecondaryIndexes" not in described
    assert "LocalSecondaryIndexes" not in described
    for handle in (sync, *days.values()):
        job = await handle.read()
        item = outsider.get("job", f"scheduled#{text_of(job.available_at)}#{job.id}")
        assert item is not None
        assert (item["status"], job.state) == ("completed", State.SUCCEEDED)
    for day, handle in days.items():
        record = outsider.get("scheduled-job#summary#ada", day.isoformat())
        assert record is not None
        assert record["job_sk"].endswith(f"#{handle.id}")
