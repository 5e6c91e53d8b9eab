"""Ids sort by the time they were made and never meet."""

import os
import random
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core import ids as ids_module
from outlast.core.ids import Ids

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

moments = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone


def ids_at(moment: datetime, bits: Callable[[int], int] = secrets.randbits) -> Ids:
    return Ids(lambda: moment, bits)


def millis(text: str) -> int:
    return UUID(text).int >> 80


@given(moments, st.integers(0, 2**74 - 1))
def test_every_id_is_a_version_7_uuid_in_plain_form(moment: datetime, drawn: int):
    made = ids_at(moment, lambda count: drawn >> (74 - count)).job()

    uuid = UUID(made)
    assert (uuid.version, uuid.variant) == (7, RFC_4122)
    assert str(uuid) == made


@given(moments)
def test_an_id_bears_the_millisecond_it_was_made_in(moment: datetime):
    made = ids_at(moment).job()

    exact = (moment - EPOCH) // timedelta(milliseconds=1)
    assert millis(made) == pytest.approx(exact, abs=1)


@given(moments, st.timedeltas(timedelta(milliseconds=1), timedelta(days=365)))
def test_ids_sort_by_the_millisecond_they_were_made_in(moment: datetime, later: timedelta):
    first, second = ids_at(moment).job(), ids_at(moment + later).job()

    assert millis(first) <= millis(second)
    assert first < second or millis(first) == millis(second)


@given(st.integers(0, 2**50 - 1), st.integers(0, 2**50 - 1))
def test_all_fifty_random_bits_reach_the_prefix(one: int, other: int):
    prefixes = {ids_at(NOW, lambda _, bits=bits: bits).prefix() for bits in (one, other)}

    assert len(prefixes) == len({one, other})


def test_many_ids_of_one_millisecond_are_all_different():
    ids = ids_at(NOW)

    made = [ids.job() for _ in range(50_000)]

    assert len(set(made)) == 50_000


def test_a_batch_is_numbered_in_order_under_one_draw():
    draws: list[int] = []
    ids = ids_at(NOW, lambda count: draws.append(count) or secrets.randbits(count))

    made = ids.jobs(1000)

    assert draws == [50]
    assert made == sorted(made)
    assert [int(text[-6:], 16) for text in made] == list(range(1000))
    assert len({text[:-6] for text in made}) == 1
    assert {UUID(text).version for text in made} == {7}


def test_a_batch_longer_than_its_numbers_draws_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ids_module, "BATCH", 4)
    ids = ids_at(NOW)

    made = ids.jobs(10)

    assert len(set(made)) == 10
    assert len({text[:-6] for text in made}) == 3


@pytest.mark.parametrize("count", [0, 1])
def test_a_batch_has_as_many_ids_as_were_asked_for(count: int):
    assert len(ids_at(NOW).jobs(count)) == count


def test_two_makers_on_one_clock_differ_by_their_bits():
    one, other = (ids_at(NOW, random.Random(seed).getrandbits) for seed in (1, 2))

    made = [*one.jobs(1000), *other.jobs(1000), *(ids.job() for ids in (one, other))]

    assert len(set(made)) == 2002


def test_a_maker_remembers_nothing_that_a_fork_could_repeat():
    ids = ids_at(NOW, lambda count: int.from_bytes(os.urandom(16)) >> (128 - count))
    before = dict(vars(ids))

    made = {ids.job(), *ids.jobs(3), ids.job()}

    assert len(made) == 5
    assert vars(ids) == before
