"""Hostile questions, ids and numbers: nothing found or a reason why, and nobody else harmed."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from outlast.core.decide import succeed
from outlast.core.ids import JobId
from outlast.core.job import Slot
from outlast.core.run import Lease
from outlast.errors import OutlastError
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import LEASE, MANY, make_job, put, take_many
from support.crash.sqlite_target import dump

from .hostile import HOSTILE

DAY = timedelta(days=1)
LAST = datetime.max.replace(tzinfo=UTC)
READS: dict[str, Callable[[SqliteStore, str], Any]] = {
    "find queue": lambda s, text: s.find(Filter(queue=text), limit=1),
    "find type": lambda s, text: s.find(Filter(type=text), limit=1),
    "get": lambda s, text: s.get([JobId(text)]),
    "chain": lambda s, text: s.chain(JobId(text)),
    "runs": lambda s, text: s.runs(JobId(text)),
    "events": lambda s, text: s.events(JobId(text)),
    "peek": lambda s, text: s.peek(text, limit=1),
    "claim": lambda s, text: take_many(s, queue=text),
    "claim types": lambda s, text: take_many(s, types=[text]),
    "renew": lambda s, text: s.renew([Lease(JobId(text), 1)], span=LEASE),
    "apply": lambda s, text: s.apply([succeed(JobId(text), 1, None)]),
}
NOTHING = ([], [None], [False])


@pytest.mark.parametrize("verb", READS)
async def test_asking_for_what_is_not_there_finds_nothing_or_says_why(
    store: SqliteStore, verb: str
) -> None:
    await put(store)
    strange: list[str] = []

    for text in HOSTILE:
        try:
            found = await READS[verb](store, text)
        except OutlastError:
            continue
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not ours
            strange.append(f"{text[:40]!a}: {type(error).__name__}")
        else:
            held = [renewal.held for renewal in found] if verb == "renew" else found
            assert held in NOTHING, ascii(text[:40])

    assert strange == []


async def test_job_of_a_strange_id_is_kept_exactly_or_refused_and_sinks_no_neighbour(
    store: SqliteStore,
) -> None:
    strange = [make_job(id=JobId(text)) for text in HOSTILE]
    good = make_job()

    added = await store.add([*strange, good])

    stored = {job.id for job in await store.find(Filter(), limit=MANY)}
    assert added[-1].created
    assert stored == {answer.id for answer in added if answer.created}
    assert all(answer.created or answer.refused for answer in added)


async def test_queue_of_a_strange_name_is_refused(store: SqliteStore, path: Path) -> None:
    allowed = {"_", "0", "-1", "NULL", "null", "true", "NaN", "1e999", "--", "0x7fffffffffffffff"}
    refused = set()

    for text in HOSTILE:
        try:
            await store.set_queue(Queue(name=text))
        except (OutlastError, ValueError):
            refused.add(text)

    names = {name for name, *_ in dump(path)["outlast_queues"]}
    assert names == set(HOSTILE) - refused
    assert names >= allowed & set(HOSTILE)


@pytest.mark.parametrize(
    "over",
    [
        {"delay": timedelta.max},
        {"at": LAST, "start_within": DAY},
        {"start_within": timedelta.max},
        {"slot": Slot(series="daily", at=LAST), "start_within": DAY},
        {"delay": timedelta.min},
        {"max_attempts": 2**80},
        {"max_attempts": -1},
        {"max_attempts": 0},
        {"priority": 2**80},
        {"priority": -(2**80)},
    ],
    ids=lambda over: "-".join(over),
)
async def test_absurd_number_is_refused_or_can_be_read_again(
    store: SqliteStore, over: dict[str, Any]
) -> None:
    good, job = await put(store), make_job(**over)

    [added] = await store.add([job])

    found = await store.find(Filter(), limit=MANY)
    assert {one.id for one in found} == ({good, job.id} if added.created else {good})
