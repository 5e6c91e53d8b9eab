"""Complete pending intents of every kind."""

import logging

from outlast.errors import StoreCorrupt
from outlast.store.keyvalue import intents
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, StoredItem
from outlast.store.keyvalue.operations import groups, positions
from outlast.store.keyvalue.outcomes import concerns_store

log = logging.getLogger("outlast.store")


async def complete_all(context: StoreContext) -> dict[Key, Exception]:
    """Complete all pending intents; return those that cannot be completed, and why.

    Each of these is logged once and stops no other. Raises errors that concern the whole store.
    """
    stuck: dict[Key, Exception] = {}
    for entry in await intents.pending(context.engine):
        try:
            await _complete(context, entry)
        except Exception as error:
            if concerns_store(error):
                raise
            stuck[entry.key] = error
    for key in stuck.keys() - context.stuck_intents:
        log.warning("an intent cannot be completed: %s", key.sort, exc_info=stuck[key])
    context.stuck_intents.update(stuck)
    return stuck


async def warnings(context: StoreContext) -> list[str]:
    """Return a warning for operators about each intent that cannot be completed."""
    stuck = await complete_all(context)
    return [
        f"the operation {key.sort} is written in part and cannot be completed: {error}; "
        "run outlast verify"
        for key, error in stuck.items()
    ]


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
