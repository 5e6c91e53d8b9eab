"""Schedulers in processes of their own, by a clock they are told."""

import secrets
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path

from holdfast.core.ids import Ids
from holdfast.scheduler.trigger import Trigger
from holdfast.store.base import Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import FakeClock


async def trigger_when_told(mouth: Connection, place: Path | str) -> None:
    """Trigger what is due at each moment it is told; tells how many slots it answered."""
    clock = FakeClock()
    store = store_at(place, clock)
    await store.open()
    trigger = Trigger(store, Ids(clock.now, secrets.randbits).job)
    mouth.send("ready")
    while (moment := mouth.recv()) is not None:
        clock.set_wall(moment)
        done = await trigger.run_once()
        mouth.send(sum(done.outcomes.values()))
    await store.close()


async def trigger_at_once(mouth: Connection, place: Path | str, moment: datetime) -> None:
    """Wait for the word, then trigger what is due at that moment."""
    clock = FakeClock(moment)
    store = store_at(place, clock)
    await store.open()
    trigger = Trigger(store, Ids(clock.now, secrets.randbits).job)
    mouth.send("ready")
    mouth.recv()
    done = await trigger.run_once()
    mouth.send(sum(done.outcomes.values()))
    await store.close()


def store_at(place: Path | str, clock: FakeClock) -> Store:
    """The file of that path, or what is at that URL."""
    if isinstance(place, str):
        return PostgresStore(place, clock=clock)
    return SqliteStore(place, clock=clock)
