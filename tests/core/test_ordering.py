"""The order in which the jobs of one queue are taken."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.ordering import GAP, next_position, sort_key

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A place in a queue."""

    priority: int = 0
    position: int = 0
    available_at: datetime = START
    created_at: datetime = START
    seq: int = 1


few = st.integers(-2, 2)  # so that ties are common
moments = few.map(lambda seconds: START + timedelta(seconds=seconds))
places = st.builds(
    Placed,
    priority=few,
    position=few,
    available_at=moments,
    created_at=moments,
    seq=st.integers(1, 10**6),
)
queues = st.lists(places, unique_by=lambda place: place.seq, max_size=30)


@given(queues)
def test_the_key_orders_as_the_five_columns_one_after_the_other(queue: list[Placed]):
    by_columns = sorted(queue, key=lambda job: job.seq)  # the least important first, all stable
    by_columns.sort(key=lambda job: job.created_at)
    by_columns.sort(key=lambda job: job.available_at)
    by_columns.sort(key=lambda job: job.position)
    by_columns.sort(key=lambda job: job.priority, reverse=True)

    by_key = sorted(queue, key=sort_key)

    assert by_key == by_columns


@given(queues)
def test_no_two_jobs_share_a_place(queue: list[Placed]):
    keys = {sort_key(job) for job in queue}

    assert len(keys) == len(queue)


@given(queues, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_how_the_jobs_were_read(queue: list[Placed], random):
    shuffled = list(queue)
    random.shuffle(shuffled)

    assert sorted(shuffled, key=sort_key) == sorted(queue, key=sort_key)


@pytest.mark.parametrize(
    "earlier",
    [
        Placed(priority=1, position=9, available_at=START + timedelta(days=1), seq=9),
        Placed(position=-1, available_at=START + timedelta(days=1), seq=9),
        Placed(available_at=START - timedelta(microseconds=1), created_at=START, seq=9),
        Placed(created_at=START - timedelta(microseconds=1), seq=9),
        Placed(seq=0),
    ],
    ids=["priority", "position", "available_at", "created_at", "seq"],
)
def test_each_column_outweighs_all_that_follow_it(earlier: Placed):
    ordinary = Placed()

    assert sort_key(earlier) < sort_key(ordinary)


def test_the_same_moment_in_another_time_zone_is_the_same_place():
    here = Placed()
    there = replace(here, available_at=START.astimezone())

    assert sort_key(here) == sort_key(there)


@pytest.mark.parametrize(
    ("last", "gap", "position"), [(None, GAP, 100), (100, GAP, 200), (250, GAP, 350), (7, 5, 12)]
)
def test_a_new_job_goes_a_gap_behind_the_last(last: int | None, gap: int, position: int):
    assert next_position(last, gap) == position


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_a_new_job_is_always_behind_the_last(last: int, gap: int):
    assert next_position(last, gap) > last
