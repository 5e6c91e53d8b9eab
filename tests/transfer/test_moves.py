"""A move from any store to any other keeps everything; killed at any write, one of them works."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast.core.event import Released
from outlast.core.run import Lease
from outlast.errors import OperatorError, StoreBusy, StoreMoved, StoreSealed, TransitionRefused
from outlast.store.contract import Store
from outlast.store.contract.transfer import TransferStage
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    put,
    settle,
    started,
    take_many,
)
from outlast.testing.conformance.transfer_rows import everything, furnish
from outlast.verify import verify
from support.corruption.keyvalue import KeyValueCorruption
from support.engines.hands import MemoryHand

from .store_pairs import FROM, SEAL, TO, Died, Life, Mortal, accepting, accepts, make_store, move

KINDS = ("model", "sqlite", "postgres", "keyvalue")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@asynccontextmanager
async def opened(*stores: Store) -> AsyncIterator[tuple[Store, ...]]:
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
async def test_everything_arrives_as_it_was(
    source: str, target: str, tmp_path: Path, clock: FakeClock, postgres_places: Iterator[str]
) -> None:
    one = make_store(source, tmp_path, clock, postgres_places)
    await one.open()
    await furnish(one, clock)
    other = make_store(target, tmp_path, clock, postgres_places)
    async with opened(one, other):
        before = await everything(one)

        moved = await move(one, other)

        assert moved is not None
        assert await everything(other) == before
        assert {kind: each.rows for kind, each in moved.digests.items()} == {
            str(kind): len(rows) for kind, rows in before.items()
        }
        assert (await verify(other)).is_sound
        assert await accepting(one, other) == ["target"]
        with pytest.raises(StoreMoved, match=TO):
            await take_many(one)


async def test_a_record_that_cannot_be_read_is_named_and_the_source_goes_on(
    tmp_path: Path, clock: FakeClock, postgres_places: Iterator[str]
) -> None:
    one = make_store("keyvalue", tmp_path, clock, postgres_places)
    other = make_store("sqlite", tmp_path, clock, postgres_places)
    assert isinstance(one, KeyValueStore)
    async with opened(one, other):
        garbage, damaged = await put(one), await put(one)
        await KeyValueCorruption(one.engine).replace_params(garbage, "{not json")
        with pytest.raises(OperatorError, match=f"job {garbage} has params that are not JSON"):
            await move(one, other)

        await KeyValueCorruption(one.engine).replace_params(garbage, "{}")
        await MemoryHand(one.engine).edit_job(damaged, priority="high")
        with pytest.raises(OperatorError, match="is damaged: priority is 'high'"):
            await move(one, other)

        assert await accepting(one, other) == ["source"]


async def written(folder: Path, clock: FakeClock, kind: str = "sqlite") -> list[str]:
    """What a whole move writes, in order."""
    life = Life()
    async with worlds(folder, clock, kind) as (source, target):
        await move(Mortal(source, life), Mortal(target, life))
    return life.writes


@asynccontextmanager
async def worlds(
    folder: Path, clock: FakeClock, kind: str = "sqlite"
) -> AsyncIterator[tuple[Store, Store]]:
    """A source with a run whose worker is dead, and an empty target."""
    source = make_store(kind, folder, clock, iter(()))
    await source.open()
    await put(source)
    await settle(source, await started(source, queue="a"), Released("shutdown"))
    await started(source, queue="b")
    clock.advance(SEAL)
    target = make_store(kind, folder, clock, iter(()))
    async with opened(source, target):
        yield source, target


@pytest.mark.parametrize("kind", ["model", "sqlite", "keyvalue"])
@pytest.mark.parametrize("after", [False, True])
async def test_killed_at_any_write_exactly_one_takes_work(
    tmp_path: Path, clock: FakeClock, after: bool, kind: str
) -> None:
    """On files at every step alone: each write of theirs is killed elsewhere."""
    writes = await written(tmp_path, clock, kind)
    numbers = range(0 if after else 1, len(writes))  # before the first one nothing has begun
    chosen = [n for n in numbers if kind != "sqlite" or writes[n] == "change_transfer_status"]
    seen = []
    for number in chosen:
        (folder := tmp_path / f"{number}").mkdir()
        async with worlds(folder, clock, kind) as (source, target):
            life = Life(number, after=after)
            with pytest.raises(Died):
                await move(Mortal(source, life), Mortal(target, life))
            clock.advance(SEAL)

            working = await accepting(source, target)
            seen += working
            assert len(working) == 1, (number, writes[number])
            await move(source, target)

            assert await accepting(source, target) == ["target"]
            assert (await verify(target)).is_sound
            assert len(await everything(target)) == len(await everything(source))

    assert writes.count("change_transfer_status") == 5
    # It is the target from the decisive write on, which is the last but one.
    last = 2 if after else 1
    assert seen == ["source"] * (len(chosen) - last) + ["target"] * last


async def test_under_the_seal_no_store_accepts_work_until_it_expires(
    tmp_path: Path, clock: FakeClock
) -> None:
    writes = await written(tmp_path, clock)
    sealing = [n for n, name in enumerate(writes) if name == "change_transfer_status"][1]
    (folder := tmp_path / "killed").mkdir()
    async with worlds(folder, clock) as (source, target):
        life = Life(sealing, after=True)
        with pytest.raises(Died):
            await move(Mortal(source, life), Mortal(target, life))

        assert await accepting(source, target) == []
        clock.advance(SEAL)
        assert await accepting(source, target) == ["source"]


async def test_what_fails_under_the_seal_lets_the_source_go_on_at_once(
    tmp_path: Path, clock: FakeClock
) -> None:
    async with worlds(tmp_path, clock) as (source, target):
        await started(source, queue="c")  # by a worker that lives, and does not end it
        clock.advance("1s")

        with pytest.raises(TransitionRefused, match=r"1 jobs still run.*by worker-1"):
            await move(Hurried(source, clock), target)

        assert await accepts(source)
        assert (await target.transfer_status()).stage is TransferStage.FILLING
        with pytest.raises(StoreSealed, match=f"filled from {FROM}"):
            await put(target)


class Hurried:
    """A store for which the grace passes at the first look."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self._store = store
        self._clock = clock

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def transfer_status(self) -> object:
        footing = await self._store.transfer_status()
        if footing.stage is TransferStage.SEALED:
            self._clock.advance("10s")
            claim = (await self._store.running_under_other_boots(besides="", limit=1))[0]
            await self._store.renew([Lease(claim.id, claim.token)], span=SEAL)
        return footing


async def test_bad_targets_and_sources_are_refused_in_a_line(
    tmp_path: Path, clock: FakeClock
) -> None:
    async with worlds(tmp_path, clock) as (source, target):
        with pytest.raises(TransitionRefused, match="both --from and --to"):
            await move(source, target, to_url=FROM)
        await put(target)
        with pytest.raises(TransitionRefused, match=r"target.db is not empty: it has jobs"):
            await move(source, target)
        assert await accepts(target)
        assert await accepts(source)

    (folder := tmp_path / "others").mkdir()
    async with worlds(folder, clock) as (source, target):
        lock = await source.acquire_lock("outlast-copy")
        assert lock is not None
        with pytest.raises(StoreBusy, match=r"another transfer from or to .*source.db"):
            await move(source, target)
        await lock.release()
        with pytest.raises(Died):
            await move(Mortal(source, life := Life(3)), Mortal(target, life))
        with pytest.raises(TransitionRefused, match=r"is being filled from .*source.db"):
            await move(source, target, from_url="sqlite:////stranger.db")
        with pytest.raises(TransitionRefused, match="is itself being filled from"):
            await move(target, source)
        await move(source, target)
        assert await move(source, target) is None
        with pytest.raises(StoreMoved, match=r"was moved to .*target.db already"):
            await move(source, target, to_url="sqlite:////third.db")


async def test_broken_source_is_refused_before_it_is_sealed(
    tmp_path: Path, clock: FakeClock
) -> None:
    from support.corruption.sqlite import SqliteCorrupter  # noqa: PLC0415 - here alone

    async with worlds(tmp_path, clock) as (source, target):
        job = await put(source, queue="broken")
        await SqliteCorrupter(source.path).detach(job)  # type: ignore[attr-defined]

        with pytest.raises(OperatorError, match="breaks 1 invariants"):
            await move(source, target)

        assert await accepts(source)
