"""Doing what somebody left half-done, whatever kind of intent it is."""

from outlast.errors import StoreCorrupt
from outlast.store.keyvalue import intents
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, StoredItem
from outlast.store.keyvalue.operations import groups, positions


async def complete_all(context: StoreContext) -> int:
    """Do all that was left; how many notes there were."""
    left = await intents.pending(context.engine)
    for entry in left:
        await _finish(context, entry)
    return len(left)


async def complete(context: StoreContext, intent: Key) -> None:
    """Do the rest of one note; harmless when it is gone."""
    [entry] = await context.engine.get([intent])
    if entry is not None:
        await _finish(context, entry)


async def _finish(context: StoreContext, entry: StoredItem) -> None:
    match entry.value["kind"]:
        case intents.WRITES:
            await intents.complete_writes(context.engine, entry.key)
        case groups.SEAL:
            await groups.finish_seal(context, entry.value["group"])
        case positions.PLAN:
            await positions.finish_plan(context, entry.key)
        case other:
            raise StoreCorrupt(
                f"a note of kind {other!r:.40} was left by a newer Outlast; use that"
            )
