"""What the tests of the companion share: a store that forgets, a companion that dies in its job."""

import os
import signal
from dataclasses import replace
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from companion.companion import Companion, Rules
from companion.memory import Memory
from outlast.core.decide import Change
from outlast.store.contract import Store

from .timeouts import SOON

MONDAY = date(2026, 1, 5)
TUESDAY = date(2026, 1, 6)
QUICK = Rules(poll_seconds=0.02, base_delay_seconds=0.02, lease_seconds=30)
MORTAL = replace(QUICK, lease_seconds=1.5)
"""For one that is killed: somebody takes over while a test looks on."""

When = Literal["sent, not noted", "noted, not completed"]


class Forgetful:
    """A store of which the first end that somebody writes is lost, as if they had died before."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.forgot = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, changes: list[Change]) -> list[bool]:
        if self.forgot:
            return await self._store.apply(changes)
        self.forgot = len(changes)
        return [False] * len(changes)


async def die_in_a_summary(mouth: Connection, folder: Path, when: When) -> None:
    """Sync Ada, send her summary, and be killed right then."""
    companion = Companion(folder, rules=MORTAL)
    memory = companion.world.memory

    def note_and_die(*args: Any, **kwargs: Any) -> bool:
        if when == "noted, not completed":
            Memory.note_sent(memory, *args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    memory.note_sent = note_and_die  # type: ignore[method-assign]  # that is the point
    async with companion.app, companion.app.worker(instance_id="first"):
        await (await companion.schedule_sync("ada")).wait(SOON)
        handle = await companion.schedule_summary("ada", MONDAY)
        mouth.send(handle.id)
        await handle.wait(SOON)
