"""Sealing a schema that others have transactions open in: nothing slips through."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from outlast.errors import StoreBusy, StoreSealed
from outlast.store.contract.transfer import OPEN, StatusChange, TableKind, TransferStage
from outlast.store.postgres.operations import transfer
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import make_job, put, take_many

from .pg_waiting import until_somebody_waits

SEAL = StatusChange(
    stage=TransferStage.SEALED,
    other="sqlite:////b.db",
    transfer_id="move-1",
    span=timedelta(minutes=1),
    grace=timedelta(minutes=1),
)


async def test_a_transaction_that_began_before_the_seal_is_waited_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "SEAL_LOCK_TIMEOUT_MS", 120_000)
    store = PostgresStore(postgres_url)
    await store.open()
    caller = await asyncpg.connect(store.address.dsn)
    began = caller.transaction()
    await began.start()
    job = make_job()
    [added] = await store.add_within(caller, [job])

    sealing = asyncio.create_task(store.change_transfer_status(SEAL))
    await until_somebody_waits(store.address.dsn)
    is_done = sealing.done()
    await began.commit()

    assert not is_done
    assert await sealing
    assert added.created
    assert [row[1] for row in await store.dump(TableKind.JOBS, limit=9)] == [job.id]
    with pytest.raises(StoreSealed, match=r"b\.db"):
        async with caller.transaction():
            await store.add_within(caller, [make_job()])
    await caller.close()
    await store.close()


async def test_others_are_not_kept_waiting_for_long_by_a_seal_that_waits(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets them go between two tries, and gives up if the transaction does not end."""
    monkeypatch.setattr(transfer, "SEAL_LOCK_TIMEOUT_MS", 50)
    store = PostgresStore(postgres_url)
    await store.open()
    caller = await asyncpg.connect(store.address.dsn)
    began = caller.transaction()
    await began.start()
    await store.add_within(caller, [make_job()])

    sealing = asyncio.create_task(store.change_transfer_status(SEAL))
    await put(store)
    claims = await take_many(store)
    with pytest.raises(StoreBusy, match="lock timeout"):
        await sealing

    assert len(claims) == 1
    assert await store.transfer_status() == OPEN
    await began.rollback()
    await caller.close()
    await store.close()


async def test_claims_that_race_with_the_seal_are_all_before_it_or_refused(
    postgres_url: str,
) -> None:
    """Whatever a claim or an enqueue answered, the rows show it when the seal has been taken."""
    store, other = PostgresStore(postgres_url), PostgresStore(postgres_url)
    await store.open()
    await other.open()
    for _ in range(20):
        await put(store)
    taken: list[str] = []
    added: list[str] = []

    async def claim() -> None:
        while True:
            taken.extend(claim.id for claim in await take_many(other, limit=1))

    async def add() -> None:
        while True:
            job = make_job(queue="more")
            await other.add([job])
            added.append(job.id)

    racing = [asyncio.create_task(step()) for step in (claim, add)]
    await asyncio.sleep(0)
    assert await store.change_transfer_status(SEAL)
    running = {job.id for job in await store.running_under_other_boots(besides="", limit=99)}
    waiting = {row[1] for row in await store.dump(TableKind.JOBS, limit=9999)}
    ended = await asyncio.gather(*racing, return_exceptions=True)

    assert [type(error) for error in ended] == [StoreSealed, StoreSealed]
    assert set(taken) == running
    assert set(added) <= waiting
    await other.close()
    await store.close()
