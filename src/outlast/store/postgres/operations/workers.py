"""The worker registry: register, heartbeat, deregister, list."""

from datetime import timedelta

from outlast.core.duration import MICROSECOND
from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.operations.queues import wait_for_claims
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.rows import jobs as job_rows


class PostgresWorkerOperations(PostgresOperations):
    """The worker registry."""

    async def register_worker(self, worker_info: WorkerInfo) -> None:
        """Register a worker under its instance and boot id."""
        info = job_rows.worker_info(worker_info)
        key = _worker_key(worker_info.holder)

        async def register(work: PostgresUnitOfWork) -> None:
            await work.run("workers.register", info=info, now=work.now, **key)

        await self._pool.transact(register)

    async def heartbeat(
        self, holder: LeaseHolder, *, span: timedelta, is_stopping: bool = False
    ) -> bool:
        """Mark a worker as alive for `span`; return False if it is not registered."""
        found = await self._pool.rows(
            "workers.heartbeat",
            now=self._now,
            mono=self._mono,
            span=span // MICROSECOND,
            stopping=is_stopping,
            **_worker_key(holder),
        )
        return bool(found)

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        """Mark a worker as stopped; a no-op if it is not registered."""

        async def deregister(work: PostgresUnitOfWork) -> None:
            await work.run("workers.deregister", now=work.now, **_worker_key(holder))

        await self._pool.transact(deregister)

    async def workers(self) -> list[WorkerRecord]:
        """Return every registered worker, oldest first."""
        found = await self._pool.rows("workers.list", mono=self._mono)
        return [job_rows.worker(tuple(row)) for row in found]


async def clear_registrations(work: PostgresUnitOfWork, before: int) -> None:
    """Clear registrations that ended before that moment, of workers whose rows runs reference."""
    await work.run("workers.clear_registrations", before=before, mono=work.mono)


async def delete_workers(work: PostgresUnitOfWork, older_than: timedelta, limit: int) -> None:
    """Delete the rows of workers whose registration ended that long ago and that have no run.

    Waits for claims in progress: one that has read the row may be opening a run that references it.
    The wait delays all claims, so there is none if no row is found.
    """
    ended = {"before": work.now - older_than // MICROSECOND, "mono": work.mono}
    former = await work.rows("workers.former", limit=limit, **ended)
    if former:
        await wait_for_claims(work)
        await work.run("workers.delete", ids=[worker for (worker,) in former], **ended)


def _worker_key(holder: LeaseHolder) -> dict[str, str]:
    """Return the worker as the statements name it."""
    return {"instance": holder.instance_id, "boot": holder.boot_id}
