"""Doing what somebody left half-done, whatever kind of note it is."""

from outlast.errors import StoreBroken
from outlast.store.keyvalue import grouping, notes, places
from outlast.store.keyvalue.desk import Desk
from outlast.store.keyvalue.port import Entry, Key


async def settle(desk: Desk) -> int:
    """Do all that was left; how many notes there were."""
    left = await notes.left(desk.engine)
    for entry in left:
        await _finish(desk, entry)
    return len(left)


async def finish(desk: Desk, note: Key) -> None:
    """Do the rest of one note; harmless when it is gone."""
    [entry] = await desk.engine.get([note])
    if entry is not None:
        await _finish(desk, entry)


async def _finish(desk: Desk, entry: Entry) -> None:
    match entry.value["kind"]:
        case notes.WRITES:
            await notes.finish_writes(desk.engine, entry.key)
        case grouping.SEAL:
            await grouping.finish_seal(desk, entry.value["group"])
        case places.PLAN:
            await places.finish_plan(desk, entry.key)
        case other:
            raise StoreBroken(f"a note of kind {other!r:.40} was left by a newer Outlast; use that")
