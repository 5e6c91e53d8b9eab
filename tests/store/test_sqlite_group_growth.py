"""What a member costs does not grow with its group, counted in steps of SQLite's machine."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from outlast.core.decide import decide
from outlast.core.event import Failed, GroupStopped
from outlast.core.group import GroupMode, OnMemberFailure
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite import reader
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SUCCEEDED,
    make_job,
    new_id,
    put_group,
    sweep,
    take_many,
)

from .sqlite_helpers import opened, reading, writing
from .test_sqlite_growth import BATCH, TOLERANCE, Counter

SMALL, LARGE = 100, 10_000
SEQUENTIAL = {"mode": GroupMode.SEQUENTIAL}
STOP = {"on_failure": OnMemberFailure.STOP}

Act = Callable[[SqliteStore, str], Awaitable[object]]


@pytest.fixture(autouse=True)
def _one_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "THREADS", 1)  # so that its steps are all the steps


async def _finish(store: SqliteStore, _: str) -> None:
    claims = await take_many(store, limit=BATCH)
    assert len(claims) == BATCH
    assert all(await store.apply([decide(c, SUCCEEDED, new_id=new_id) for c in claims]))


async def _one_by_one(store: SqliteStore, _: str) -> None:
    for _number in range(BATCH):
        [claim] = await take_many(store)
        assert await store.apply([decide(claim, SUCCEEDED, new_id=new_id)]) == [True]


async def _fail(store: SqliteStore, group_id: str) -> None:
    claims = await take_many(store, limit=BATCH)
    broke = Failed("broke", permanent=True)
    assert all(await store.apply([decide(c, broke, new_id=new_id) for c in claims]))
    assert len(await store.closing_groups(limit=BATCH)) == 1


async def _sweep_some(store: SqliteStore, group_id: str) -> None:
    await store.stop_group(group_id, reason=None)
    left = await store.remaining_members(group_id, limit=BATCH)
    assert len(left) == BATCH
    await store.apply([decide(job, GroupStopped(), new_id=new_id) for job in left])


async def _join(store: SqliteStore, group_id: str) -> None:
    jobs = [make_job(group_id=group_id, member=True) for _ in range(BATCH)]
    assert all(added.created for added in await store.add(jobs))


async def _prune(store: SqliteStore, group_id: str) -> None:
    clock = store._clock
    assert isinstance(clock, FakeClock)
    clock.advance(2 * HOUR)
    assert await store.prune(older_than=HOUR, limit=BATCH) == BATCH


async def _look(store: SqliteStore, group_id: str) -> None:
    assert len(await store.find(Filter(group=group_id), limit=BATCH)) == BATCH
    assert await store.groups_finished([group_id]) == [False]


async def _look_for_work(store: SqliteStore, group_id: str) -> None:
    """What a worker asks each second while a group closes."""
    await store.stop_group(group_id, reason=None)
    await store.closing_groups(limit=BATCH)
    assert len(await store.remaining_members(group_id, limit=BATCH)) == BATCH
    assert await store.mark_groups_closed(limit=BATCH) == 0
    assert await store.expire_groups(older_than=HOUR, limit=BATCH) == 0


async def _steps(
    path: Path, size: int, act: Act, over: dict[str, Any], *, reads: bool = False
) -> int:
    async with opened(path / f"{size}.db", clock=FakeClock()) as store:
        jobs = [make_job() for _ in range(size)]
        group_id, _ = await put_group(store, *jobs, is_sealed=act is not _join, **over)
        if act is _prune:
            await store.stop_group(group_id, reason=None)
            while await sweep(store):
                pass
        await store.promote_due(limit=LARGE)  # which takes them all, once
        await store.groups_finished([group_id])
        counter = Counter(reading(store)[0] if reads else writing(store))
        await act(store, group_id)
    return counter.steps


@pytest.mark.parametrize(
    ("act", "over"),
    [
        (_finish, {}),
        (_one_by_one, SEQUENTIAL),
        (_fail, STOP),
        (_sweep_some, {}),
        (_join, {}),
        (_prune, {}),
    ],
)
async def test_writing_costs_the_same_in_a_large_group(
    tmp_path: Path, act: Act, over: dict[str, Any]
) -> None:
    small, large = [await _steps(tmp_path, size, act, over) for size in (SMALL, LARGE)]

    assert large <= small * TOLERANCE


@pytest.mark.parametrize("act", [_look, _look_for_work])
async def test_reading_costs_the_same_in_a_large_group(tmp_path: Path, act: Act) -> None:
    small, large = [await _steps(tmp_path, size, act, {}, reads=True) for size in (SMALL, LARGE)]

    assert large <= small * TOLERANCE
