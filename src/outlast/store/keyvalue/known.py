"""The list of queues that ever had a job: every index has one part per queue, and needs it."""

from outlast.store.keyvalue import layout
from outlast.store.keyvalue.desk import Desk
from outlast.store.keyvalue.port import Key, Write


async def remember_queue(desk: Desk, name: str) -> None:
    """Put it on the list, before it has its first job."""
    if name not in desk.known:
        key = Key(layout.QUEUE_NAME, name)
        await desk.engine.transact({key: None}, [Write(key, {"name": name})])
        desk.known.add(name)
