"""Keeping the list of workers: who started, who stopped, who is forgotten."""

from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.rows import jobs as job_rows


async def enlist(work: UnitOfWork, worker: WorkerInfo) -> None:
    info = job_rows.worker_info(worker)
    await work.run("workers.register", info=info, now=work.now, **who(worker.holder))


async def retire(work: UnitOfWork, holder: LeaseHolder) -> None:
    await work.run("workers.deregister", now=work.now, **who(holder))


async def forget_workers(work: UnitOfWork, before: int) -> None:
    """Those that ended before that moment leave the list; their runs still name them."""
    await work.run("workers.clear_registrations", before=before, mono=work.mono)


def who(holder: LeaseHolder) -> dict[str, str]:
    """A worker as the statements name it."""
    return {"instance": holder.instance_id, "boot": holder.boot_id}
