"""The log of a run is fenced, kept with its run, and written with its end."""

import pytest

from outlast.core.decide import decide, succeed
from outlast.core.delivery import Delivery
from outlast.core.event import Event, Failed, Released
from outlast.core.ids import JobId
from outlast.core.run import Claim, Lease
from outlast.core.run_log import MAX_CHUNK, LogChunk, LogWrite
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LAPSED,
    LEASE,
    LOST,
    SUCCEEDED,
    job_of,
    kinds,
    last_run,
    make_job,
    new_id,
    settle,
    started,
    take,
    take_many,
)

ONE = LogChunk(1, 2, "a\nb")
TWO = LogChunk(3, 1, "c")
ALL = 1000


def write_of(*chunks: LogChunk, dropped: tuple[int, ...] = ()) -> LogWrite:
    """A write of these chunks."""
    return LogWrite(chunks, dropped)


async def log_of(store: Store, job_id: JobId) -> list[tuple[int, LogChunk]]:
    """All chunks of a job."""
    return await store.log_chunks(job_id, limit=ALL)


async def end_with_log(store: Store, claim: Claim, event: Event, write: LogWrite) -> bool:
    """Close the run as `event` does, with its last lines."""
    change = decide(claim, event, new_id=new_id)
    return (await store.apply([change.with_log(write)]))[0]


async def test_written_lines_are_read_back_in_order(store: Store) -> None:
    claim = await started(store)

    first = await store.write_logs([(claim.lease, write_of(TWO))])
    second = await store.write_logs([(claim.lease, write_of(ONE))])

    assert (first, second) == ([True], [True])
    assert await log_of(store, claim.id) == [(1, ONE), (1, TWO)]
    assert await store.log_lengths(claim.id) == {1: 3}


async def test_run_without_lines_has_no_log(store: Store) -> None:
    claim = await started(store)
    await settle(store, claim, SUCCEEDED)

    assert await log_of(store, claim.id) == []
    assert await store.log_lengths(claim.id) == {}
    assert await log_of(store, new_id()) == []
    assert await store.log_lengths(new_id()) == {}
    assert await store.write_logs([]) == []


async def test_chunk_replaces_the_one_with_the_same_first_line(store: Store) -> None:
    claim = await started(store)
    await store.write_logs([(claim.lease, write_of(ONE))])

    await store.write_logs([(claim.lease, write_of(LogChunk(1, 3, "a\nb\nc")))])
    await store.write_logs([(claim.lease, write_of(LogChunk(1, 3, "a\nb\nc")))])

    assert await log_of(store, claim.id) == [(1, LogChunk(1, 3, "a\nb\nc"))]


async def test_dropped_chunk_is_gone_and_the_length_stays(store: Store) -> None:
    claim = await started(store)
    last = LogChunk(9, 1, "z")
    await store.write_logs([(claim.lease, write_of(ONE, TWO))])

    await store.write_logs([(claim.lease, write_of(last, dropped=(3, 77)))])

    assert await log_of(store, claim.id) == [(1, ONE), (1, last)]
    assert await store.log_lengths(claim.id) == {1: 9}


@pytest.mark.parametrize(
    "event", [SUCCEEDED, Failed("no"), LOST, Released("why")], ids=lambda e: type(e).__name__
)
async def test_end_of_a_run_writes_its_last_lines(store: Store, event: Event) -> None:
    claim = await started(store)
    await store.write_logs([(claim.lease, write_of(ONE, TWO))])
    last = LogChunk(4, 1, "end")

    applied = await end_with_log(store, claim, event, write_of(last, dropped=(3,)))

    assert applied
    assert await log_of(store, claim.id) == [(1, ONE), (1, last)]


async def test_ends_in_one_call_write_each_its_own_log(store: Store) -> None:
    await store.add([make_job() for _ in range(3)])
    claims = await take_many(store)
    changes = [succeed(claim.id, claim.token, None) for claim in claims]
    changes[0] = changes[0].with_log(write_of(LogChunk(1, 1, "first")))
    changes[2] = changes[2].with_log(write_of(LogChunk(1, 1, "third"), LogChunk(2, 1, "more")))

    assert await store.apply(changes) == [True, True, True]

    logs = [await log_of(store, claim.id) for claim in claims]
    assert [[chunk.text for _, chunk in log] for log in logs] == [["first"], [], ["third", "more"]]


async def test_closed_run_takes_no_more_lines(store: Store) -> None:
    claim = await started(store)
    await store.write_logs([(claim.lease, write_of(ONE))])
    await settle(store, claim, SUCCEEDED)

    assert await store.write_logs([(claim.lease, write_of(TWO, dropped=(1,)))]) == [False]

    assert await log_of(store, claim.id) == [(1, ONE)]


async def test_worker_that_lost_its_lease_writes_no_more_lines(
    store: Store, clock: FakeClock
) -> None:
    stale = await started(store)
    clock.advance(LEASE)
    await settle(store, stale, LAPSED)
    again = await take(store)
    events = await kinds(store, stale.id)

    kept = await store.write_logs(
        [
            (stale.lease, write_of(ONE)),
            (again.lease, write_of(TWO)),
            (Lease(new_id(), 1), write_of(ONE)),
        ]
    )

    assert kept == [False, True, False]
    assert await log_of(store, stale.id) == [(2, TWO)]
    assert await kinds(store, stale.id) == events


async def test_refused_end_writes_no_lines(store: Store, clock: FakeClock) -> None:
    stale = await started(store)
    clock.advance(LEASE)
    await settle(store, stale, LAPSED)
    again = await take(store)

    assert not await end_with_log(store, stale, SUCCEEDED, write_of(ONE))
    assert await log_of(store, stale.id) == []

    assert await end_with_log(store, again, SUCCEEDED, write_of(TWO))
    assert not await end_with_log(store, again, Failed("late"), write_of(ONE))
    assert await log_of(store, stale.id) == [(2, TWO)]


async def test_repeated_end_is_answered_as_written_and_its_log_is_kept_once(store: Store) -> None:
    claim = await started(store)

    first = await end_with_log(store, claim, SUCCEEDED, write_of(ONE))
    second = await end_with_log(store, claim, SUCCEEDED, write_of(ONE))

    assert (first, second) == (True, True)
    assert await log_of(store, claim.id) == [(1, ONE)]


@pytest.mark.parametrize(
    "bad",
    [
        LogChunk(5, 1, "\0"),
        LogChunk(5, 1, "\ud800"),
        LogChunk(5, 1, "x" * (MAX_CHUNK + 1)),
        LogChunk(0, 1, "x"),
        LogChunk(5, 0, "x"),
        LogChunk(2**31, 1, "x"),
    ],
    ids=["nul", "surrogate", "long", "no-number", "no-lines", "large-number"],
)
async def test_chunk_that_cannot_be_stored_refuses_neither_the_end_nor_the_others(
    store: Store, bad: LogChunk
) -> None:
    claim = await started(store)

    assert await store.write_logs([(claim.lease, write_of(bad, ONE))]) == [True]
    assert await end_with_log(store, claim, SUCCEEDED, write_of(TWO, bad))

    assert await log_of(store, claim.id) == [(1, ONE), (1, TWO)]
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED


async def test_largest_chunk_is_kept_as_it_is(store: Store) -> None:
    claim = await started(store)
    chunk = LogChunk(1, 1, "ü\t" * (MAX_CHUNK // 3))

    await store.write_logs([(claim.lease, write_of(chunk))])

    assert await log_of(store, claim.id) == [(1, chunk)]


async def test_each_run_of_a_job_has_its_own_log(store: Store) -> None:
    claim = await started(store)
    await end_with_log(store, claim, LOST, write_of(ONE))
    again = await take(store)
    await end_with_log(store, again, SUCCEEDED, write_of(LogChunk(1, 1, "again")))

    assert await log_of(store, claim.id) == [(1, ONE), (2, LogChunk(1, 1, "again"))]
    assert await store.log_lengths(claim.id) == {1: 2, 2: 1}


async def test_reading_goes_on_after_a_line_and_stops_at_the_limit(store: Store) -> None:
    claim = await started(store)
    await end_with_log(store, claim, LOST, write_of(ONE, TWO))
    await end_with_log(store, await take(store), SUCCEEDED, write_of(ONE))

    async def read(token: int, line: int, limit: int = ALL) -> list[tuple[int, LogChunk]]:
        return await store.log_chunks(claim.id, after=(token, line), limit=limit)

    assert await read(0, 0, limit=2) == [(1, ONE), (1, TWO)]
    assert await read(1, 1) == [(1, ONE), (1, TWO), (2, ONE)]
    assert await read(1, 2) == [(1, TWO), (2, ONE)]
    assert await read(1, 3) == [(2, ONE)]
    assert await read(2, 2) == []


async def test_log_of_a_linked_job_stays_with_it(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED)

    await end_with_log(store, claim, Failed("no"), write_of(ONE))

    chain = await store.chain(claim.id)
    assert [len(await log_of(store, job.id)) for job in chain] == [1, 0]
    assert (await last_run(store, claim.id)).token == 1


async def test_pruned_job_takes_its_log_with_it(store: Store, clock: FakeClock) -> None:
    kept, gone = await started(store), await started(store)
    await store.write_logs([(gone.lease, write_of(ONE, TWO)), (kept.lease, write_of(ONE))])
    await end_with_log(store, gone, SUCCEEDED, write_of(LogChunk(4, 1, "d")))
    clock.advance(HOUR)

    assert await store.prune(older_than=HOUR / 2, limit=10) == 1

    assert await log_of(store, gone.id) == []
    assert await log_of(store, kept.id) == [(1, ONE)]
    assert await store.dangling_records(limit=10) == []


async def test_audit_names_the_runs_with_a_log(store: Store) -> None:
    plain, logged = await started(store), await started(store)
    await end_with_log(store, logged, LOST, write_of(ONE, TWO))
    await store.write_logs([((await take(store)).lease, write_of(ONE))])

    audits = {audit.id: audit for audit in await store.audit_jobs(after=0, limit=10)}

    assert audits[plain.id].logged == ()
    assert audits[logged.id].logged == (1, 2)
