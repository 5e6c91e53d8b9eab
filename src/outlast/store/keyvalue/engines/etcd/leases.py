"""Leases of etcd, by the cluster's own clock, which stops while there is no majority."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from outlast.store.keyvalue.engine import LEASE, Keep, Write
from outlast.store.keyvalue.engines.etcd.client import EtcdClient


class EtcdLeases:
    """Grants and renews leases; `operation` builds the request that puts a record."""

    def __init__(self, client: EtcdClient, operation: Callable[[Write], Mapping[str, Any]]) -> None:
        self._client = client
        self._operation = operation

    async def put(self, record: Write, *, span: float) -> Keep:
        """Put a record with a new lease, and return the function that renews it."""
        lease = (await self._client.ask("/v3/lease/grant", {"TTL": str(math.ceil(span))}))["ID"]
        named = Write(record.key, {**(record.value or {}), LEASE: lease})
        put = self._operation(named)["request_put"]
        await self._client.ask("/v3/kv/put", {**put, "lease": lease})
        return partial(self._keep, lease)

    async def left(self, lease: str) -> int:
        """Return whole seconds until the lease expires; 0 or less if it has."""
        answer = await self._client.ask("/v3/lease/timetolive", {"ID": lease})
        return int(answer.get("TTL", 0))

    async def _keep(self, lease: str) -> bool:
        answer = await self._client.ask("/v3/lease/keepalive", {"ID": lease})
        return int(answer["result"].get("TTL", 0)) > 0
