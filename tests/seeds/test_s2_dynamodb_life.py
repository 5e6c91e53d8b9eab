"""S2: dedupe, locks and retries in a real DynamoDB table, seen and disturbed by an outsider."""

import asyncio
import logging
from datetime import timedelta

import pytest
from click.testing import CliRunner

from companion.companion import Companion
from outlast.cli.main import main
from outlast.errors import ClockSkewTooLarge
from outlast.store.contract.queues import Queue
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.open import open_store
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    SECOND,
    SUCCEEDED,
    TICK,
    new_id,
    put,
    settle,
    started,
    take,
    take_many,
)
from outlast.testing.servers.dynamodb import url
from outlast.worker.maintenance.loop import Maintenance
from support.servers.dynamodb_proxy import dynamodb_proxy

from .app_helpers import drain
from .companions import MONDAY
from .dynamo import friend, kept, outsider, table
from .tables import Outsider, text_of

__all__ = ["friend", "kept", "outsider", "table"]

pytestmark = pytest.mark.slow

SYNC = ("user_sync",)


@pytest.mark.req("S2-1.s", "S2-1.t")
async def test_a_summary_has_one_dedupe_record_that_follows_its_job(
    friend: Companion, outsider: Outsider, clock: FakeClock
) -> None:
    handle = await friend.schedule_summary("ada", MONDAY)  # who was never synced
    where = ("scheduled-job#summary#ada", "2026-01-05")
    seen = []
    for delay in (0, 1, 2):
        record = outsider.get(*where)
        assert record is not None
        item = outsider.get(record["job_pk"], record["job_sk"])
        assert item is not None
        seen.append((item["SK"].rpartition("#")[2] == handle.id, item["status"]))
        clock.advance(timedelta(minutes=delay))
        await drain(friend.app)
        assert not (await friend.schedule_summary("ada", MONDAY)).created

    assert seen == [(True, "pending")] + 2 * [(True, "failed")]
    assert len(outsider.jobs()) == 1
    assert outsider.job(handle.id)["attempts"] == 3


@pytest.mark.req("S2-1.x")
@pytest.mark.parametrize("at", [None, START + HOUR], ids=["due", "later"])
async def test_a_record_whose_job_is_missing_is_not_trusted(
    friend: Companion,
    outsider: Outsider,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    at: object,
) -> None:
    lost = await friend.schedule_summary("ada", MONDAY, at=at)  # type: ignore[arg-type]  # either
    outsider.delete(outsider.job(lost.id))  # all of it that S2 knows

    with caplog.at_level(logging.WARNING, logger="outlast.store"):
        again = await friend.schedule_summary("ada", MONDAY, at=at)  # type: ignore[arg-type]

    record = outsider.get("scheduled-job#summary#ada", "2026-01-05")
    assert record is not None
    assert (again.created, again.id != lost.id) == (True, True)
    assert record["job_sk"] == outsider.job(again.id)["SK"]
    assert [(each.levelname, lost.id in each.getMessage()) for each in caplog.records] == [
        ("WARNING", True)
    ]
    clock.advance(HOUR)
    await friend.schedule_sync("ada")
    await drain(friend.app)
    clock.advance(HOUR)
    await drain(friend.app)
    assert outsider.job(again.id)["status"] == "completed", "what is left of the lost one is no bar"


async def test_a_job_deleted_by_hand_stops_nobody(
    friend: Companion, kept: KeyValueStore, outsider: Outsider, clock: FakeClock
) -> None:
    lost = [await friend.schedule_sync(user) for user in ("ada", "bob")]
    later = await friend.schedule_summary("eve", MONDAY, at=START + HOUR)
    for handle in (*lost, later):
        outsider.delete(outsider.job(handle.id))
    clock.advance(2 * HOUR)

    alive = await friend.schedule_sync("eve")
    await drain(friend.app)

    assert outsider.job(alive.id)["status"] == "completed"
    assert await kept.get([handle.id for handle in (*lost, later)]) == [None, None, None]


@pytest.mark.req("S2-2.i")
async def test_pending_under_a_live_lock_is_not_claimed_and_under_an_expired_one_is(
    kept: KeyValueStore, outsider: Outsider, clock: FakeClock
) -> None:
    first, second = [await put(kept) for _ in range(2)]
    until = clock.now() + 60 * SECOND
    outsider.set(outsider.job(first), locked_by="somebody", lock_expires_at=text_of(until))

    free = await take(kept, holder="worker-1")
    nothing = await take_many(kept, holder="worker-2")
    clock.advance(60 * SECOND)
    still_nothing = await take_many(kept, holder="worker-2")
    clock.advance(TICK)
    expired = await take_many(kept, holder="worker-2")

    assert free.id == second, "the locked one is first, and no bar to others"
    assert (nothing, still_nothing) == ([], [])
    assert [claim.id for claim in expired] == [first]
    item = outsider.job(first)
    assert (item["status"], item["locked_by"]) == ("in_progress", "worker-2")
    assert item["lock_expires_at"] == text_of(clock.now() + LEASE)


@pytest.mark.req("S2-2.i")
async def test_a_locked_job_is_no_bar_in_a_queue_of_one(
    kept: KeyValueStore, outsider: Outsider, clock: FakeClock
) -> None:
    await kept.set_queue(Queue(name="default", concurrency=1))
    first, second = [await put(kept) for _ in range(2)]
    until = text_of(clock.now() + 60 * SECOND)
    outsider.set(outsider.job(first), locked_by="somebody", lock_expires_at=until)

    assert [claim.id for claim in await take_many(kept)] == [second]


@pytest.mark.req("S2-2.j", "S2-2.k")
async def test_of_many_who_claim_at_once_one_gets_it_and_lock_and_status_are_one_write(
    kept: KeyValueStore, outsider: Outsider, clock: FakeClock
) -> None:
    job_id = await put(kept)
    names = [f"worker-{n}" for n in range(8)]

    reported = await asyncio.gather(*(take_many(kept, holder=name) for name in names))

    winner = [name for name, claims in zip(names, reported, strict=True) if claims]
    item = outsider.job(job_id)
    assert ([item["locked_by"]], item["status"]) == (winner, "in_progress")
    assert item["lock_expires_at"] == text_of(clock.now() + LEASE)


@pytest.mark.req("S2-3.d")
async def test_a_lease_that_is_extended_is_seen_in_the_item(
    kept: KeyValueStore, outsider: Outsider, clock: FakeClock
) -> None:
    claim = await started(kept)
    for _ in range(3):
        clock.advance(LEASE - SECOND)
        [renewal] = await kept.renew([claim.lease], span=LEASE)
        assert renewal.held
        assert outsider.job(claim.id)["lock_expires_at"] == text_of(clock.now() + LEASE)
        assert await kept.expired_leases(limit=10) == []

    assert await settle(kept, claim, SUCCEEDED)
    assert not outsider.job(claim.id).keys() & {"locked_by", "lock_expires_at"}


@pytest.mark.req("S2-2.h", "S2-3.e")
async def test_failed_and_crashed_jobs_run_again(
    friend: Companion, kept: KeyValueStore, outsider: Outsider, clock: FakeClock
) -> None:
    failed = await friend.schedule_summary("ada", MONDAY)  # who is synced too late
    await drain(friend.app)
    crashed = await friend.schedule_sync("ada")
    [claim] = await take_many(kept, types=SYNC, holder="crashed", lease=LEASE)
    before = {each.id: outsider.job(each.id)["status"] for each in (failed, crashed)}
    clock.advance(LEASE)

    await Maintenance(kept, new_id).run_once()
    await drain(friend.app)
    after_crash = outsider.job(crashed.id)
    clock.advance(60 * SECOND)
    await drain(friend.app)

    assert before == {failed.id: "failed", crashed.id: "in_progress"}
    assert claim.id == crashed.id
    assert (after_crash["status"], after_crash["attempts"]) == ("completed", 1)
    assert outsider.job(failed.id)["status"] == "completed"
    assert [message.user_id for message in friend.world.chat.messages()] == ["ada"]


@pytest.mark.req("S2-3.g")
async def test_clocks_apart_are_warned_of_and_too_far_apart_refused(
    dynamodb: str, table: str
) -> None:
    with dynamodb_proxy(dynamodb) as proxy:
        address = url(proxy.endpoint, table)

        def doctor() -> tuple[int, str]:
            reported = CliRunner().invoke(main, ["doctor", "--url", address], env={"NO_COLOR": "1"})
            return reported.exit_code, reported.output

        await _opened(address)
        in_time = await asyncio.to_thread(doctor)
        proxy.ahead = timedelta(seconds=4)
        await _opened(address)
        apart = await asyncio.to_thread(doctor)
        proxy.ahead = timedelta(seconds=60)
        with pytest.raises(ClockSkewTooLarge, match=r"are (59|60) s apart, and 5 s are allowed"):
            await _opened(address)
        far = await asyncio.to_thread(doctor)

    assert (in_time[0], "apart" in in_time[1]) == (0, False)
    assert (apart[0], "apart; at more than 5 s no store opens" in apart[1]) == (0, True)
    assert "run NTP" in apart[1]
    assert (far[0] > 0, "s apart, and 5 s are allowed" in far[1]) == (True, True)


async def _opened(address: str) -> None:
    store = open_store(address)
    try:
        await store.open()
    finally:
        await store.close()
