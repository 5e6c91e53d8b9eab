"""Records edited behind the store's back, as people do with the tools of a database."""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Engine, Key, KeyRange, StoredItem, Write
from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine


class Hand(Protocol):
    """Edits records; a field of value None is taken away."""

    async def write(self, key: Key, value: Mapping[str, Any]) -> None: ...
    async def edit(self, key: Key, /, **fields: Any) -> None: ...
    async def edit_job(self, job_id: str, /, **fields: Any) -> None: ...
    async def delete_job(self, job_id: str) -> None: ...
    async def job(self, job_id: str) -> Mapping[str, Any]: ...


class MemoryHand:
    """Edits records through any engine: each edit gives the record a new version."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def write(self, key: Key, value: Mapping[str, Any]) -> None:
        assert await self._engine.transact({}, [Write(key, value)])

    async def edit(self, key: Key, /, **fields: Any) -> None:
        [item] = await self._engine.get([key])
        assert item is not None
        edited = {**item.value, **fields}
        await self.write(key, {name: each for name, each in edited.items() if each is not None})

    async def edit_job(self, job_id: str, /, **fields: Any) -> None:
        await self.edit((await self._item(job_id)).key, **fields)

    async def delete_job(self, job_id: str) -> None:
        await self._engine.transact({}, [Write((await self._item(job_id)).key, None)])

    async def job(self, job_id: str) -> Mapping[str, Any]:
        return (await self._item(job_id)).value

    async def _item(self, job_id: str) -> StoredItem:
        items = await self._engine.range(KeyRange(key_layout.JOB), limit=10_000)
        [item] = [item for item in items if item.key.sort.endswith(f"#{job_id}")]
        return item


class DynamoDBHand(MemoryHand):
    """Edits items with boto3: `record_version` stays as it is."""

    def __init__(self, engine: DynamoDBEngine, table: Any) -> None:
        super().__init__(engine)
        self._table = table

    async def write(self, key: Key, value: Mapping[str, Any]) -> None:
        item = {"PK": key.part, "SK": key.sort, **value}
        await asyncio.to_thread(self._table.put_item, Item=item)

    async def edit(self, key: Key, /, **fields: Any) -> None:
        updates = {
            name: {"Action": "DELETE"} if value is None else {"Action": "PUT", "Value": value}
            for name, value in fields.items()
        }
        where = {"PK": key.part, "SK": key.sort}
        await asyncio.to_thread(self._table.update_item, Key=where, AttributeUpdates=updates)
