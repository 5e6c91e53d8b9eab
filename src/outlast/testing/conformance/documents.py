"""A document is swapped by its version, and no version occurs twice."""

import asyncio
from collections.abc import Mapping

import pytest

from outlast.core.document import Document
from outlast.errors import InvalidArgument
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import HOUR, SECOND, TICK

BAD: Mapping[str, Mapping[str, str | None]] = {
    "kind": {"kind": "two words"},
    "empty kind": {"kind": ""},
    "key": {"key": ""},
    "long key": {"key": "k" * 513},
    "NUL in the key": {"key": "a\0b"},
    "no JSON": {"value": "{"},
    "NaN": {"value": "NaN"},
    "empty": {"value": ""},
    "NUL": {"value": '"\0"'},
    "lone surrogate": {"value": '"\ud800"'},
    "too large": {"value": '"' + "x" * 262_143 + '"'},
    "nothing to delete": {"value": None},
}


async def _put(store: Store, key: str = "daily", value: str = "1", kind: str = "note") -> Document:
    record = await store.swap(kind, key, expected=None, value=value)
    assert record is not None
    return record


async def _set(store: Store, record: Document, value: str | None) -> Document | None:
    return await store.swap(record.kind, record.key, expected=record.version, value=value)


async def test_record_is_kept_as_written(store: Store, clock: FakeClock) -> None:
    record = await _put(store, value='{"a":[1,"ü"]}')

    assert (record.kind, record.key, record.value) == ("note", "daily", '{"a":[1,"ü"]}')
    assert record.created_at == record.updated_at == clock.now()
    assert await store.document("note", "daily") == record
    assert await store.document("note", "weekly") is None
    assert await store.document("other", "daily") is None


async def test_record_as_large_as_allowed_is_kept(store: Store) -> None:
    value = '"' + "x" * 262_142 + '"'

    await _put(store, key="k" * 512, value=value)

    [record] = await store.documents("note")
    assert record.value == value


async def test_records_of_a_kind_come_by_key(store: Store) -> None:
    for key in ("b", "a", "ä", "Z", "aa", "\U0001f600"):
        await _put(store, key=key)
    await _put(store, key="c", kind="other")

    keys = [record.key for record in await store.documents("note")]

    assert keys == ["Z", "a", "aa", "b", "ä", "\U0001f600"]
    assert [record.key for record in await store.documents("other")] == ["c"]
    assert await store.documents("none") == []


async def test_what_is_there_is_not_created_again(store: Store) -> None:
    record = await _put(store)

    assert await store.swap("note", "daily", expected=None, value="2") is None
    assert await store.document("note", "daily") == record


async def test_who_knows_the_version_writes_and_nobody_else(store: Store, clock: FakeClock) -> None:
    first = await _put(store)
    clock.advance(SECOND)

    second = await _set(store, first, "2")
    late = await _set(store, first, "3")

    assert second is not None
    assert late is None
    assert second.version > first.version
    assert (second.created_at, second.updated_at) == (first.created_at, clock.now())
    assert await store.document("note", "daily") == second
    assert second.value == "2"


async def test_writing_the_same_value_is_a_write_too(store: Store) -> None:
    first = await _put(store)

    second = await _set(store, first, first.value)

    assert second is not None
    assert (second.value, second.version > first.version) == (first.value, True)
    assert await _set(store, first, "2") is None


async def test_what_is_not_there_is_neither_written_nor_deleted(store: Store) -> None:
    gone = await _put(store)
    await _set(store, gone, None)

    assert await _set(store, gone, "2") is None
    assert await _set(store, gone, None) is None
    assert await store.documents("note") == []


async def test_deleting_answers_the_record_that_went(store: Store) -> None:
    first = await _put(store)
    second = await _set(store, first, "2")
    assert second is not None

    assert await _set(store, first, None) is None, "an old version deletes nothing"
    assert await _set(store, second, None) == second
    assert await store.document("note", "daily") is None


async def test_record_created_anew_does_not_fit_what_was_known_of_the_old(store: Store) -> None:
    known = []
    for _ in range(3):
        record = await _put(store)
        known.append(record)
        await _set(store, record, None)
    now = await _put(store)

    versions = [record.version for record in [*known, now]]
    assert versions == sorted(set(versions))
    assert [await _set(store, record, "9") for record in known] == [None] * 3
    assert [await _set(store, record, None) for record in known] == [None] * 3


async def test_no_two_records_share_a_version(store: Store) -> None:
    records = [await _put(store, key=key) for key in "abc"]

    assert len({record.version for record in records}) == 3


async def test_updated_at_rises_though_the_clock_is_set_back(
    store: Store, clock: FakeClock
) -> None:
    first = await _put(store)

    same_tick = await _set(store, first, "2")
    clock.set_back(HOUR)
    set_back = same_tick and await _set(store, same_tick, "3")

    assert same_tick is not None
    assert set_back is not None
    assert same_tick.updated_at == first.updated_at + TICK
    assert set_back.updated_at == same_tick.updated_at + TICK
    assert set_back.created_at == first.created_at


async def test_of_many_at_once_one_writes(store: Store) -> None:
    record = await _put(store)

    written = await asyncio.gather(*(_set(store, record, str(number)) for number in range(20)))
    created = await asyncio.gather(
        *(store.swap("note", "new", expected=None, value=str(number)) for number in range(20))
    )

    for answers, key in ((written, "daily"), (created, "new")):
        [winner] = [answer for answer in answers if answer is not None]
        assert await store.document("note", key) == winner


@pytest.mark.parametrize("what", sorted(BAD))
async def test_record_that_cannot_be_kept_is_refused(store: Store, what: str) -> None:
    wish: dict[str, str | None] = {"kind": "note", "key": "daily", "value": "1", **BAD[what]}

    with pytest.raises(InvalidArgument):
        await store.swap(str(wish["kind"]), str(wish["key"]), expected=None, value=wish["value"])

    assert await store.documents("note") == []
