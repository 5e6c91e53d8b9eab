"""Complete pending intents of every kind."""

from outlast.errors import StoreCorrupt
from outlast.store.keyvalue import intents
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, StoredItem
from outlast.store.keyvalue.operations import groups, positions


async def complete_all(context: StoreContext) -> int:
    """Complete all pending intents, and return how many there were."""
    left = await intents.pending(context.engine)
    for entry in left:
        await _complete(context, entry)
    return len(left)


async def complete(context: StoreContext, intent: Key) -> None:
    """Complete one intent; no-op if it is gone."""
    [entry] = await context.engine.get([intent])
    if entry is not None:
        await _complete(context, entry)


async def _complete(context: StoreContext, entry: StoredItem) -> None:
    match entry.value["kind"]:
        case intents.WRITES:
            await intents.complete_writes(context.engine, entry.key)
        case groups.SEAL:
            await groups.finish_seal(context, entry.value["group"])
        case positions.PLAN:
            await positions.finish_plan(context, entry.key)
        case other:
            raise StoreCorrupt(
                f"an intent of kind {other!r:.40} was written by a newer Outlast; use that version"
            )
