"""How much work a worker holds ready: by how long the jobs of each type take, not all alike."""

from outlast.core.delivery import Delivery
from outlast.core.ids import JobId, RunId
from outlast.core.run import Claim
from outlast.worker.prefetch import (
    MAX_PREFETCH_WAIT_S,
    MAX_PREFETCHED_BYTES,
    PREFETCH_TARGET_S,
    PrefetchBudget,
)


def claims(kind, many, *, params="{}"):
    return [
        Claim(
            JobId(f"{kind}-{n}"),
            1,
            RunId(f"run-{n}"),
            type=kind,
            params=params,
            delivery=Delivery.LEASE,
            failures=0,
            losses=0,
            max_attempts=5,
        )
        for n in range(many)
    ]


def learnt(*, concurrency=2, most=1000, **seconds):
    stock = PrefetchBudget(concurrency=concurrency, limit=most)
    for kind, took in seconds.items():
        for _ in range(200):
            stock.ended(kind, took)
    return stock


def test_nothing_is_held_ready_before_anything_is_known():
    assert PrefetchBudget(concurrency=2, limit=1000).room([]) == 0


def test_as_many_are_held_ready_as_make_up_a_seconds_work_and_no_more_than_allowed():
    assert learnt(quick=0.01).room([]) == int(PREFETCH_TARGET_S * 2 / 0.01)
    assert learnt(quick=0.01, most=50).room([]) == 50
    assert learnt(quick=0.01, most=50).room(claims("quick", 45)) == 5
    assert learnt(slow=10.0).room([]) == 0


def test_slow_ones_at_hand_count_as_slow_however_quick_the_last_ones_were():
    stock = learnt(slow=1.0, quick=0.001)

    assert stock.room(claims("quick", 10)) > 500
    assert stock.room(claims("slow", 2)) == 0
    assert stock.room([*claims("slow", 1), *claims("quick", 10)]) < 20


def test_excess_is_the_last_claims_that_would_wait_too_long():
    stock = learnt(slow=1.0, quick=0.001)
    waiting = [*claims("slow", 6), *claims("quick", 10)]

    excess = stock.excess(waiting)

    assert excess == waiting[int(MAX_PREFETCH_WAIT_S * 2) :]
    assert stock.excess(claims("quick", 1000)) == []
    assert stock.excess(claims("slow", int(MAX_PREFETCH_WAIT_S * 2))) == []


def test_one_that_still_runs_tells_how_slow_its_type_is_at_least():
    stock = learnt(quick=0.001)
    before = stock.excess(claims("new", 100))

    stock.still_running("new", 0.5)

    assert (before, len(stock.excess(claims("new", 100)))) == (
        [],
        100 - int(MAX_PREFETCH_WAIT_S * 2 / 0.5),
    )
    stock.still_running("new", 0.1)  # another of them, begun later, says nothing against it
    assert len(stock.excess(claims("new", 100))) == 100 - int(MAX_PREFETCH_WAIT_S * 2 / 0.5)


def test_large_jobs_are_held_ready_up_to_a_number_of_bytes():
    stock, large = learnt(quick=0.001), claims("quick", 40, params="x" * 250_000)
    before = stock.room([])

    stock.claimed(large)

    assert before == 1000
    assert stock.room([]) == MAX_PREFETCHED_BYTES // 250_000
    assert stock.room(large) == (MAX_PREFETCHED_BYTES - 40 * 250_000) // 250_000
    assert stock.room(2 * large) == 0


def test_small_jobs_after_large_ones_are_held_ready_in_numbers_again():
    stock = learnt(quick=0.001)
    stock.claimed(claims("quick", 10, params="x" * 250_000))

    stock.claimed(claims("quick", 10))

    assert stock.room([]) == 1000
