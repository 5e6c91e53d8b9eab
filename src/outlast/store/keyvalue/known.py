"""The list of queues that ever had a job: every index has one part per queue, and needs it."""

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, Write


async def register_queue(desk: StoreContext, name: str) -> None:
    """Put it on the list, before it has its first job."""
    if name not in desk.registered_queues:
        key = Key(key_layout.QUEUE_NAME, name)
        await desk.engine.transact({key: None}, [Write(key, {"name": name})])
        desk.registered_queues.add(name)
