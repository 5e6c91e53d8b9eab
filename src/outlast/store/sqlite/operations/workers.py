"""The worker registry."""

from collections.abc import Sequence
from datetime import timedelta

from outlast.core.duration import MICROSECOND
from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite.operations.base import SqliteOperations
from outlast.store.sqlite.writer import WriteTransaction


class SqliteWorkerOperations(SqliteOperations):
    """Register workers and record their heartbeats."""

    async def register_worker(self, worker: WorkerInfo) -> None:
        """Register a worker; the same boot again starts anew."""
        await self._writer.submit(register_worker, [worker])

    async def heartbeat(
        self, holder: LeaseHolder, *, span: timedelta, is_stopping: bool = False
    ) -> bool:
        """Mark the worker alive for `span`; False if it is not registered."""
        request = (holder, span, is_stopping)
        is_registered: bool = (await self._writer.submit(heartbeat, [request]))[0]
        return is_registered

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        """Mark the worker stopped; no-op if it is not registered."""
        await self._writer.submit(deregister_worker, [holder])

    async def workers(self) -> list[WorkerRecord]:
        """Return all registered workers, the earliest start first."""
        found = await self._reader.rows("workers.list", mono=self._clock.monotonic())
        return [job_rows.worker(row) for row in found]


def register_worker(tx: WriteTransaction, workers: Sequence[WorkerInfo]) -> list[None]:
    """Write the registration of each worker."""
    for worker in workers:
        info = job_rows.worker_info(worker)
        tx.run("workers.register", info=info, now=tx.now, **_identity(worker.holder))
    return [None] * len(workers)


def heartbeat(
    tx: WriteTransaction, heartbeats: Sequence[tuple[LeaseHolder, timedelta, bool]]
) -> list[bool]:
    """Write each heartbeat; False for a worker that is not registered."""
    return [_heartbeat_one(tx, *heartbeat) for heartbeat in heartbeats]


def deregister_worker(tx: WriteTransaction, holders: Sequence[LeaseHolder]) -> list[None]:
    """Mark each worker stopped."""
    for holder in holders:
        tx.run("workers.deregister", now=tx.now, **_identity(holder))
    return [None] * len(holders)


def prune_workers(tx: WriteTransaction, before: int, limit: int) -> None:
    """Drop registrations that ended before a moment, then rows that no run refers to."""
    tx.run("workers.drop_registrations", before=before, mono=tx.mono)
    tx.run("workers.delete", limit=limit)


def _heartbeat_one(
    tx: WriteTransaction, holder: LeaseHolder, span: timedelta, is_stopping: bool
) -> bool:
    values = {"now": tx.now, "until": tx.mono + span // MICROSECOND, "stopping": is_stopping}
    return tx.run("workers.heartbeat", **values, **_identity(holder)).rowcount > 0


def _identity(holder: LeaseHolder) -> dict[str, str]:
    return {"instance": holder.instance_id, "boot": holder.boot_id}
